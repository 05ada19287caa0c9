//! `dshd completions`: a completion script for a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failure, exit, output};

/// Arguments of `dshd completions`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd completions bash > ~/.local/share/bash-completion/completions/dshd
  dshd completions zsh > ~/.zfunc/_dshd
  dshd completions fish > ~/.config/fish/completions/dshd.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dshd", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(exit::OK)
}
