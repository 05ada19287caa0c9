//! Who may connect: peer credentials, named tokens, scopes.
