//! `dshd config`: shows, checks and starts the configuration.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{Failure, Globals, exit};

/// Arguments of `dshd config`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd config show --sources
  dshd config check ./dshd.toml
  dshd config init --provider local --base-url http://127.0.0.1:11434/v1")]
pub struct ConfigArgs {
    /// What to do
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Print the configuration in force, secrets masked
    Show {
        /// Say where each value comes from
        #[arg(long)]
        sources: bool,
    },
    /// Check a file, or all that would be read
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print where configuration, data and socket are
    Path,
    /// Print one value
    Get {
        /// The key, as limits.in_flight
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Write a configuration file to start from
    Init(InitArgs),
}

/// Arguments of `dshd config init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Set up this provider and make it the default
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Where the provider is
    #[arg(long, value_name = "URL", requires = "provider")]
    pub base_url: Option<String>,
    /// The default model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Variable that holds the provider's key
    #[arg(long, value_name = "NAME", requires = "provider")]
    pub api_key_env: Option<String>,
    /// Replace a file that exists
    #[arg(long)]
    pub force: bool,
}

pub(super) fn run(_args: &ConfigArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}

pub(super) fn check(_file: Option<&Path>, globals: &Globals) -> Result<u8, Failure> {
    globals.load()?;
    Ok(exit::OK)
}
