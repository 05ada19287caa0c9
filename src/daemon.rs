//! The composition root: builds the parts, walks the phases, owns the order of shutdown.

use std::time::Duration;

use crate::config::Loaded;

/// How to serve, beside the configuration.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Stop after so long without clients and turns.
    pub idle_exit: Option<Duration>,
}

/// Why the daemon ended other than by a request to stop.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// An address can't be bound; exit 69.
    #[error("{message}")]
    Bind {
        /// What and why.
        message: String,
        /// The next step.
        help: Option<String>,
    },
    /// A bug of ours; exit 70.
    #[error("{message}")]
    Internal {
        /// What, with the incident id.
        message: String,
    },
    /// Storage failed; exit 74.
    #[error("{message}")]
    Storage {
        /// What and why.
        message: String,
    },
    /// Another daemon holds the data directory or the socket; exit 75.
    #[error("{message}")]
    AlreadyRunning {
        /// Which, with its pid.
        message: String,
        /// The next step.
        help: Option<String>,
    },
    /// The configuration can't be served; exit 78.
    #[error("{message}")]
    Config {
        /// What and why.
        message: String,
        /// The next step.
        help: Option<String>,
    },
}

impl DaemonError {
    /// What to do next.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Bind { help, .. } | Self::AlreadyRunning { help, .. } | Self::Config { help, .. } => {
                help.as_deref()
            }
            Self::Internal { .. } | Self::Storage { .. } => None,
        }
    }
}

/// Serves the configured addresses until asked to stop.
///
/// # Errors
/// [`DaemonError`].
#[expect(clippy::unused_async, reason = "awaits once it serves")]
pub async fn serve(_loaded: Loaded, _options: ServeOptions) -> Result<(), DaemonError> {
    Err(DaemonError::Internal { message: "not built yet".to_owned() })
}

/// Serves stdin and stdout until EOF, `shutdown` or a signal. The defaults of `Loaded::profile` apply.
///
/// # Errors
/// [`DaemonError`].
#[expect(clippy::unused_async, reason = "awaits once it serves")]
pub async fn stdio(_loaded: Loaded) -> Result<(), DaemonError> {
    Err(DaemonError::Internal { message: "not built yet".to_owned() })
}
