//! `dshd serve`: the daemon in the foreground.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Failure, Globals, exit};
use crate::config::{Listen, Loaded, LogFormat};
use crate::daemon::{self, DaemonError, ServeOptions};

/// Arguments of `dshd serve`.
#[expect(clippy::doc_markdown, reason = "help texts are no Markdown")]
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd serve
  dshd serve --listen unix:/run/dshd/dshd.sock --data-dir /var/lib/dshd
  dshd serve --check")]
pub struct ServeArgs {
    /// Serve this address: unix:/path or tcp:host:port; repeat for more [config: listen]
    #[arg(long, short, value_name = "ADDR")]
    pub listen: Vec<Listen>,
    /// Stop after so long without clients and turns
    #[arg(long, value_name = "DUR", value_parser = crate::config::duration::parse)]
    pub idle_exit: Option<Duration>,
    /// What to log: error, warn, info, debug, trace, or a filter [env: DSHD_LOG] [config: log.level]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// How stderr is written [config: log.format]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormatName>,
    /// Check the configuration and leave, as `dshd config check`
    #[arg(long)]
    pub check: bool,
    /// Leave the session and terminal of the command that started it; how clients start one
    #[arg(long, hide = true)]
    pub own_session: bool,
}

/// The values of `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormatName {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

impl From<LogFormatName> for LogFormat {
    fn from(name: LogFormatName) -> Self {
        match name {
            LogFormatName::Text => Self::Text,
            LogFormatName::Json => Self::Json,
        }
    }
}

pub(super) async fn run(args: ServeArgs, loaded: Loaded, _globals: &Globals) -> Result<u8, Failure> {
    if args.own_session {
        // It fails in a process that leads a group already, which then has what it wants but for the terminal.
        if let Err(error) = rustix::process::setsid() {
            tracing::warn!(%error, "cannot leave the session of the command that started dshd");
        }
    }
    daemon::serve(loaded, ServeOptions { idle_exit: args.idle_exit }).await?;
    Ok(exit::OK)
}

pub(super) fn check(_args: &ServeArgs, globals: &Globals) -> Result<u8, Failure> {
    super::config::check(None, globals)
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        let (code, kind) = match &error {
            DaemonError::Bind { .. } => (exit::UNREACHABLE, "bind"),
            DaemonError::Internal { .. } => (exit::BUG, "internal"),
            DaemonError::Storage { .. } => (exit::STORAGE, "storage_failed"),
            DaemonError::AlreadyRunning { .. } => (exit::ALREADY_RUNNING, "already_running"),
            DaemonError::Config { .. } => (exit::CONFIG, "config"),
        };
        let help = error.help().map(str::to_owned);
        Self { code, kind: kind.into(), message: error.to_string(), help }
    }
}
