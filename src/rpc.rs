//! The JSON-RPC envelope: ids, errors, encoding, the in-flight table; knows no method.
