//! `dshd man`: the manual, one page a command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::{Cli, Failure, exit, output};

/// Arguments of `dshd man`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd man | man -l -
  dshd man ~/.local/share/man/man1
  dshd man /usr/share/man/man1")]
pub struct ManArgs {
    /// Write a page for every command here; without it the main page is printed
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

pub(super) fn run(args: &ManArgs) -> Result<u8, Failure> {
    let mut command = Cli::command();
    command.build();
    match &args.dir {
        None => output::print(&String::from_utf8_lossy(&page(command).map_err(output::stdout_failed)?))?,
        Some(dir) => {
            for path in write_pages(&command, dir).map_err(|error| unwritable(dir, &error))? {
                output::print(&format!("{}\n", path.display()))?;
            }
        }
    }
    Ok(exit::OK)
}

fn write_pages(root: &Command, dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    let mut written = Vec::new();
    let mut pending = vec![("dshd".to_owned(), root.clone())];
    while let Some((name, command)) = pending.pop() {
        for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
            pending.push((format!("{name}-{}", child.get_name()), child.clone()));
        }
        let path = dir.join(format!("{name}.1"));
        fs::write(&path, page(command)?)?;
        written.push(path);
    }
    written.sort();
    Ok(written)
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text)?;
    exit_status().to_writer(&mut text)?;
    Ok(text)
}

fn exit_status() -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["EXIT STATUS"]);
    for row in exit::TABLE.lines() {
        let (codes, meaning) = row.split_at(row.find("  ").unwrap_or(row.len()));
        section.control("TP", []);
        section.text([bold(codes.trim())]);
        section.text([roman(meaning.trim())]);
    }
    section
}

fn unwritable(dir: &Path, error: &io::Error) -> Failure {
    Failure::new(exit::REFUSED, "io", format!("cannot write pages to {}: {error}", dir.display()))
        .with_help("dshd man DIR with a directory that you may write")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples_and_exit_codes() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Cli::command();
        command.build();
        let pages = write_pages(&command, dir.path()).unwrap();
        let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(pages.len() >= 16, "{pages:?}");
        assert!(text("dshd-token-create.1").contains("dshd\\-token\\-create"));
        let prompt = text("dshd-prompt.1");
        assert!(prompt.contains("EXAMPLES") && prompt.contains("EXIT STATUS"), "{prompt}");
        assert!(prompt.contains("already runs"), "{prompt}");
    }
}
