//! Who may connect: peer credentials, named tokens, scopes.

pub mod certificate;
pub mod peer;
pub mod token;

use std::fmt;

use serde::{Deserialize, Serialize};

/// What TLS calls our protocol (ALPN); whoever does not ask for it is not one of ours.
pub const ALPN: &[u8] = b"dshd/1";

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read.
    Observe,
    /// Everything.
    Control,
}

impl Scope {
    /// The name, as tokens and messages have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Control => "control",
        }
    }

    /// The scope of a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Observe, Self::Control].into_iter().find(|scope| scope.as_str() == name)
    }

    /// Whether it includes another.
    pub fn allows(self, needed: Self) -> bool {
        self >= needed
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_allows_all_and_observe_itself() {
        assert!(Scope::Control.allows(Scope::Observe));
        assert!(Scope::Observe.allows(Scope::Observe));
        assert!(!Scope::Observe.allows(Scope::Control));
    }
}
