//! `dshd models`: lists configured models.

use clap::Args;

use super::{Failure, Globals, exit};

/// Arguments of `dshd models`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd models
  dshd models --check
  dshd models --json")]
pub struct ModelsArgs {
    /// Ask each for a word
    #[arg(long)]
    pub check: bool,
    /// Print no header
    #[arg(long)]
    pub no_header: bool,
}

pub(super) async fn run(_args: ModelsArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
