//! Calls over real sockets, and the bytes of requests.
