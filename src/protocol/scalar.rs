//! Small values with rules of their own.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{Cost, PermissionMode, Seq};

/// `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// A positive integer that an IEEE double holds exactly: 1 to 2^53-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PositiveInt(pub u64);

impl<'de> Deserialize<'de> for PositiveInt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = u64::deserialize(deserializer)?;
        if (1..1 << 53).contains(&value) {
            Ok(Self(value))
        } else {
            Err(D::Error::custom(format!("expected an integer from 1 to 9007199254740991, got {value}")))
        }
    }
}

/// An amount of money, 0 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Amount(pub Cost);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value.is_finite() && value >= 0.0 {
            Ok(Self(Cost::new(value)))
        } else {
            Err(D::Error::custom(format!("expected an amount of 0 or more, got {value}")))
        }
    }
}

/// The last event of a log; -1 when it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSeq(pub Option<Seq>);

/// Where to read on: after an event, or -1 for from the start.
pub type Since = LastSeq;

impl Serialize for LastSeq {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(seq) => serializer.serialize_u64(seq.0),
            None => serializer.serialize_i64(-1),
        }
    }
}

impl<'de> Deserialize<'de> for LastSeq {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = i64::deserialize(deserializer)?;
        match (value, u64::try_from(value)) {
            (-1, _) => Ok(Self(None)),
            (_, Ok(seq)) => Ok(Self(Some(Seq(seq)))),
            _ => {
                Err(D::Error::custom(format!("expected a sequence number, or -1 for the start, got {value}")))
            }
        }
    }
}

/// What an agent may touch, in the wire's spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing may change.
    ReadOnly,
    /// The workspace may change.
    WorkspaceWrite,
    /// Anything.
    FullAccess,
}

impl From<Mode> for PermissionMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::ReadOnly => Self::ReadOnly,
            Mode::WorkspaceWrite => Self::WorkspaceWrite,
            Mode::FullAccess => Self::FullAccess,
        }
    }
}

impl From<PermissionMode> for Mode {
    fn from(mode: PermissionMode) -> Self {
        match mode {
            PermissionMode::ReadOnly => Self::ReadOnly,
            PermissionMode::WorkspaceWrite => Self::WorkspaceWrite,
            PermissionMode::FullAccess => Self::FullAccess,
        }
    }
}
