//! The one match on the method; exactly one reply a request.
