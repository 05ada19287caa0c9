//! What can be wrong with configuration, told with key, file and line.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Source {
    /// Nowhere; it is built in.
    Default,
    /// By `--profile sdk`.
    Profile,
    /// In a file.
    File {
        /// Which.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// By a variable.
    Variable {
        /// Its name.
        name: String,
    },
    /// By a flag.
    Flag {
        /// Its name.
        name: &'static str,
    },
    /// A key in a file of its own, or in the file of `dshd login`.
    KeyFile {
        /// Which.
        path: PathBuf,
    },
}

impl Source {
    /// A variable.
    pub fn variable(name: impl Into<String>) -> Self {
        Self::Variable { name: name.into() }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Profile => f.write_str("--profile sdk"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable { name } => f.write_str(name),
            Self::Flag { name } => f.write_str(name),
            Self::KeyFile { path } => write!(f, "{}", path.display()),
        }
    }
}

/// Why configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that was named is not there, or can't be read.
    #[error("cannot read the configuration file {}: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Who named it: a flag, a variable, or nobody.
        named_by: Option<&'static str>,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A file is not TOML.
    #[error("{}:{line}: not TOML: {reason}", path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// A key that does not exist.
    #[error("{origin}: unknown key `{key}`")]
    UnknownKey {
        /// The whole key.
        key: String,
        /// Where it is.
        origin: Source,
        /// The nearest key that exists.
        nearest: Option<String>,
    },
    /// A value that can't be used.
    #[error("{}", value(key, origin, reason))]
    Value {
        /// The whole key.
        key: String,
        /// Where it is.
        origin: Source,
        /// What is expected and what was given.
        reason: String,
    },
    /// No directory for data can be told.
    #[error("no place for data: neither HOME nor XDG_STATE_HOME nor STATE_DIRECTORY is set")]
    NoDataDirectory,
}

impl ConfigError {
    /// What to do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Unreadable { named_by: Some(name), .. } => {
                Some(format!("check {name}, or write the file: dshd config init"))
            }
            Self::Unreadable { named_by: None, path, .. } => {
                Some(format!("check who may read it: ls -l {}", path.display()))
            }
            Self::UnknownKey { nearest: Some(nearest), .. } => Some(format!("did you mean `{nearest}`?")),
            Self::UnknownKey { nearest: None, .. } => {
                Some("all keys with their values: dshd config show".to_owned())
            }
            Self::Syntax { path, .. } => Some(format!("dshd config check {}", path.display())),
            Self::Value { origin: Source::File { path, .. }, .. } => {
                Some(format!("mend it, then: dshd config check {}", path.display()))
            }
            Self::Value { origin: Source::Variable { name }, .. } => {
                Some(format!("give it such a value, or: unset {name}"))
            }
            Self::Value { .. } => {
                Some("all values and where they are set: dshd config show --sources".to_owned())
            }
            Self::NoDataDirectory => Some("pass --data-dir DIR, or set DSHD_DATA_DIR".to_owned()),
        }
    }
}

fn value(key: &str, origin: &Source, reason: &str) -> String {
    match origin {
        Source::Flag { name } => format!("{name}: {reason}"),
        Source::Default
        | Source::Profile
        | Source::File { .. }
        | Source::Variable { .. }
        | Source::KeyFile { .. } => format!("{origin}: `{key}`: {reason}"),
    }
}
