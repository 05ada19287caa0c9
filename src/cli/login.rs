//! `dshd login`: stores a provider's key where daemon and editors find it.

use clap::{Args, Subcommand};

use super::{Failure, Globals, exit};

/// Arguments of `dshd login`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "EXAMPLES:
  dshd login
  dshd login deepseek-official --key-stdin <<<\"$DEEPSEEK_API_KEY\"
  dshd login status"
)]
pub struct LoginArgs {
    /// The provider; deepseek means deepseek-official
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,
    /// Read the key from stdin
    #[arg(long)]
    pub key_stdin: bool,
    /// What else to do
    #[command(subcommand)]
    pub action: Option<LoginAction>,
}

/// What else `dshd login` does.
#[derive(Debug, Subcommand)]
pub enum LoginAction {
    /// Say which providers have a key, and from where
    Status,
    /// Remove a stored key
    Logout {
        /// The provider
        #[arg(value_name = "PROVIDER")]
        provider: Option<String>,
    },
}

pub(super) fn run(_args: &LoginArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
