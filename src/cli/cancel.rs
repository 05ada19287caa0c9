//! `dshd cancel`: cancels a session's turn.

use clap::Args;

use super::{Failure, Globals, exit};

/// Arguments of `dshd cancel`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd cancel 3f9c
  dshd cancel --all
  dshd cancel 3f9c --json")]
pub struct CancelArgs {
    /// The session
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub id: Option<String>,
    /// Every running session
    #[arg(long)]
    pub all: bool,
}

pub(super) async fn run(_args: CancelArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
