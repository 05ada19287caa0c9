//! `dshd completions`: a completion script for a shell.

mod nushell;

use clap::{Args, CommandFactory, ValueEnum};
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
    pub shell: ShellName,
}

/// The shells that we have a script for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShellName {
    /// GNU bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
    /// Elvish.
    Elvish,
    /// PowerShell.
    #[value(name = "powershell")]
    PowerShell,
    /// Nushell.
    Nushell,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<u8, Failure> {
    output::print(&script(args.shell))?;
    Ok(exit::OK)
}

fn script(shell: ShellName) -> String {
    let mut command = Cli::command();
    let known = match shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
        ShellName::Elvish => Shell::Elvish,
        ShellName::PowerShell => Shell::PowerShell,
        ShellName::Nushell => {
            command.build();
            return nushell::script(&command);
        }
    };
    let mut script = Vec::new();
    clap_complete::generate(known, &mut command, "dshd", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for shell in ShellName::value_variants() {
            let script = script(*shell);
            for word in ["prompt", "completions", "idle-exit"] {
                assert!(script.contains(word), "{shell:?} does not know {word}");
            }
        }
    }
}
