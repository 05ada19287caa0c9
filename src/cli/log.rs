//! `dshd log`: prints a session's log.

use clap::Args;

use super::{Failure, Globals, exit};

/// Arguments of `dshd log`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd log 3f9c -n 20
  dshd log 3f9c -f --json
  dshd log 3f9c --type turn/end")]
pub struct LogArgs {
    /// The session
    #[arg(value_name = "ID")]
    pub id: String,
    /// Go on with what comes
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last N events
    #[arg(short = 'n', value_name = "N")]
    pub count: Option<usize>,
    /// Only events after this seq or time
    #[arg(long, value_name = "SEQ|TIME")]
    pub since: Option<String>,
    /// Only events up to this seq or time
    #[arg(long, value_name = "SEQ|TIME")]
    pub until: Option<String>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// Lines as they are stored
    #[arg(long)]
    pub raw: bool,
}

pub(super) async fn run(_args: LogArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
