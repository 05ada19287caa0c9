//! `dshd status`: says how the daemon is.

use clap::Args;

use super::{Failure, Globals, exit};

/// Arguments of `dshd status`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd status
  dshd status --wait=10s
  dshd status --json | jq .phase")]
pub struct StatusArgs {
    /// Wait until it is ready, at most so long (30s)
    #[arg(long, short, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "30s",
          value_parser = crate::config::duration::parse)]
    pub wait: Option<std::time::Duration>,
}

pub(super) async fn run(_args: StatusArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
