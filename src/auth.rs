//! Who may connect: peer credentials, named tokens, scopes.

pub mod peer;
