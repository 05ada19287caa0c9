//! Wire types of docs/protocol.md; no async, no I/O.
