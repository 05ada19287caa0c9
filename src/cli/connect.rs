//! `dshd connect`: joins stdin and stdout with the daemon.

use clap::Args;

use super::{Failure, Globals, exit};

/// Arguments of `dshd connect`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd connect
  dshd connect --to unix:/run/dshd/dshd.sock
  ssh host dshd connect")]
pub struct ConnectArgs {
    /// The address, as --connect
    #[arg(long, value_name = "ADDR")]
    pub to: Option<String>,
    /// Never start a daemon [env: DSHD_AUTOSTART=0] [config: client.autostart]
    #[arg(long)]
    pub no_autostart: bool,
}

pub(super) async fn run(_args: ConnectArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
