//! `dshd stop`: stops the daemon, by request and never by pid.

use clap::Args;

use super::{Failure, Globals, exit};

/// Arguments of `dshd stop`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd stop
  dshd stop --now
  dshd stop --deadline 5m")]
pub struct StopArgs {
    /// Cancel running turns at once
    #[arg(long, conflicts_with = "deadline")]
    pub now: bool,
    /// Running turns may take so long to finish [config: shutdown.drain_timeout]
    #[arg(long, value_name = "DUR", value_parser = crate::config::duration::parse)]
    pub deadline: Option<std::time::Duration>,
}

pub(super) async fn run(_args: StopArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
