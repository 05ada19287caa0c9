//! `dshd stdio` and `dshd --profile sdk`: a runtime in this process, spoken to over stdin and stdout.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, exit};
use crate::config::Loaded;
use crate::{daemon, telemetry};

/// Arguments of `dshd stdio`.
#[derive(Debug, Default, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd stdio
  dshd stdio --data-dir /tmp/dshd
  printf '%s\\n' '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/ping\"}' | dshd stdio")]
pub struct StdioArgs {
    /// The `--patch` files of `--profile sdk`.
    #[arg(skip)]
    pub ignored_patches: Vec<PathBuf>,
}

pub(super) async fn run(args: StdioArgs, loaded: Loaded) -> Result<u8, Failure> {
    for patch in &args.ignored_patches {
        telemetry::say(&format!("note: --patch {} is ignored", patch.display()));
    }
    daemon::stdio(loaded).await?;
    Ok(exit::OK)
}
