//! `dshd token`: the tokens of TCP clients.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{Failure, Globals, exit};

/// Arguments of `dshd token`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd token create laptop > ~/.config/dshd/laptop.token
  dshd token create grafana --scope observe --expires 90d
  dshd token revoke laptop")]
pub struct TokenArgs {
    /// What to do
    #[command(subcommand)]
    pub action: TokenAction,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Make a token and print its secret, once
    Create {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// What it may do
        #[arg(long, value_enum, default_value_t, value_name = "SCOPE")]
        scope: ScopeName,
        /// It ends after so long, as 90d; without it never
        #[arg(long, value_name = "DUR", value_parser = crate::config::duration::parse)]
        expires: Option<Duration>,
    },
    /// List tokens; secrets are not kept
    List {
        /// Print no header
        #[arg(long)]
        no_header: bool,
    },
    /// Remove a token; it is refused from then on
    Revoke {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// The values of `--scope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ScopeName {
    /// Everything.
    #[default]
    Control,
    /// Reading.
    Observe,
}

pub(super) fn run(_args: &TokenArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
