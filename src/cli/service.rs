//! `dshd service`: the daemon as a service of systemd, for the machine or for one user. It says each file that it writes
//! and each command that it runs.

mod units;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::process::Command;

use self::units::{Manager, Unit};
use super::{Failure, Globals, exit, output};
use crate::config::Listen;

/// Arguments of `dshd service`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd service install --user --enable
  sudo dshd service install --dry-run
  dshd service logs --user -f")]
pub struct ServiceArgs {
    /// What to do
    #[command(subcommand)]
    pub action: ServiceAction,
}

/// What to do with the service.
#[derive(Debug, Subcommand)]
pub enum ServiceAction {
    /// Write the units that start this program
    Install {
        /// For this user alone, without root
        #[arg(long)]
        user: bool,
        /// Start it with the machine, or with the user's first login
        #[arg(long)]
        enable: bool,
        /// Where it listens: unix:/path instead of the usual socket, tcp:host:port beside it
        #[arg(long, short, value_name = "ADDR")]
        listen: Vec<Listen>,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Stop it and remove the units; what it has stored stays
    Uninstall {
        /// That of this user
        #[arg(long)]
        user: bool,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Show what systemd knows of it
    Status {
        /// That of this user
        #[arg(long)]
        user: bool,
    },
    /// Show its log
    Logs {
        /// That of this user
        #[arg(long)]
        user: bool,
        /// Go on as more comes
        #[arg(long, short)]
        follow: bool,
        /// So many of the last lines
        #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
        lines: u32,
    },
}

pub(super) async fn run(args: ServiceArgs, globals: &Globals) -> Result<u8, Failure> {
    match args.action {
        ServiceAction::Install { user, enable, listen, dry_run } => {
            let manager = Manager::of(user, globals)?;
            let (units, start) = units::installed(&manager, &program(user)?, &listen)?;
            let mut work = Work::new(dry_run, globals);
            for unit in &units {
                work.write(unit)?;
            }
            if !user {
                work.run(vec!["systemd-sysusers".to_owned(), units::SYSUSERS.to_owned()]).await?;
            }
            work.run(manager.systemctl(["daemon-reload"])).await?;
            if enable {
                let start = start.iter().map(String::as_str);
                work.run(manager.systemctl(["enable", "--now"].into_iter().chain(start))).await?;
            }
            work.end()
        }
        ServiceAction::Uninstall { user, dry_run } => {
            let manager = Manager::of(user, globals)?;
            let mut work = Work::new(dry_run, globals);
            let there: Vec<PathBuf> = manager.files().into_iter().filter(|path| path.exists()).collect();
            if there.is_empty() {
                return Err(Failure::new(
                    exit::REFUSED,
                    "not_installed",
                    "no service of dshd is installed there",
                )
                .with_help(if user {
                    "dshd service uninstall"
                } else {
                    "dshd service uninstall --user"
                }));
            }
            let units = there.iter().filter_map(|path| path.file_name()?.to_str());
            let units = units.filter(|name| name.ends_with(".socket") || name.ends_with(".service"));
            work.run(manager.systemctl(["disable", "--now"].into_iter().chain(units))).await?;
            for path in &there {
                work.remove(path)?;
            }
            work.run(manager.systemctl(["daemon-reload"])).await?;
            work.end()
        }
        ServiceAction::Status { user } => {
            let manager = Manager::of(user, globals)?;
            hand_over(manager.systemctl(["--no-pager", "status", "dshd.service", "dshd.socket"])).await
        }
        ServiceAction::Logs { user, follow, lines } => {
            let mut command = vec!["journalctl".to_owned()];
            command.extend(
                if user { ["--user-unit", "dshd.service"] } else { ["-u", "dshd.service"] }
                    .map(str::to_owned),
            );
            command.extend(["--no-pager".to_owned(), format!("--lines={lines}")]);
            command.extend(follow.then(|| "--follow".to_owned()));
            hand_over(command).await
        }
    }
}

/// The program that the units start: this one, where the service can find it.
fn program(user: bool) -> Result<PathBuf, Failure> {
    let path = std::env::current_exe().map_err(|error| {
        Failure::new(exit::REFUSED, "io", format!("cannot tell where this program is: {error}"))
    })?;
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    if !text.chars().all(is_plain) {
        let message = format!("a unit can't name this program: {text}");
        return Err(Failure::new(exit::REFUSED, "path", message).with_help("install it in /usr/local/bin"));
    }
    if !user && ["/home/", "/root/", "/tmp/"].iter().any(|hidden| text.starts_with(hidden)) {
        let message = format!("the machine's service sees no homes, and this program is {text}");
        let help =
            format!("sudo install {text} /usr/local/bin/dshd, and run that; or: dshd service install --user");
        return Err(Failure::new(exit::REFUSED, "path", message).with_help(help));
    }
    Ok(path)
}

#[derive(Default, Serialize)]
struct Document {
    schema: &'static str,
    #[serde(rename = "dryRun")]
    dry_run: bool,
    wrote: Vec<String>,
    removed: Vec<String>,
    ran: Vec<String>,
}

/// Does it, and says so; or says it alone.
struct Work<'a> {
    globals: &'a Globals,
    told: Document,
}

impl<'a> Work<'a> {
    fn new(dry_run: bool, globals: &'a Globals) -> Self {
        Self { globals, told: Document { schema: "dshd.service/1", dry_run, ..Document::default() } }
    }

    fn say(&self, what: &str, text: &str) -> Result<(), Failure> {
        if self.globals.args.json || self.globals.args.quiet {
            return Ok(());
        }
        let would = if self.told.dry_run { "would " } else { "" };
        output::print(&format!("{would}{what} {text}\n"))
    }

    fn write(&mut self, unit: &Unit) -> Result<(), Failure> {
        let path = unit.path.display().to_string();
        self.say("write", &path)?;
        if self.told.dry_run {
            if self.globals.args.verbose > 0 && !self.globals.args.json {
                output::print(&unit.text)?;
            }
        } else {
            let directory = unit.path.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(directory)
                .and_then(|()| fs::write(&unit.path, &unit.text))
                .map_err(|error| refused(&format!("cannot write {path}: {error}"), error.kind()))?;
        }
        self.told.wrote.push(path);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), Failure> {
        let shown = path.display().to_string();
        self.say("remove", &shown)?;
        if !self.told.dry_run {
            fs::remove_file(path)
                .map_err(|error| refused(&format!("cannot remove {shown}: {error}"), error.kind()))?;
        }
        self.told.removed.push(shown);
        Ok(())
    }

    async fn run(&mut self, command: Vec<String>) -> Result<(), Failure> {
        let shown = command.join(" ");
        self.say("run", &shown)?;
        if !self.told.dry_run {
            let output = spawn(&command, Stdio::piped()).output().await;
            let output = output.map_err(|error| no_program(&command, &error))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
                let message = format!("{shown} failed ({}): {said}", output.status);
                return Err(Failure::new(exit::REFUSED, "command_failed", message)
                    .with_help(format!("look why, then go on with: {shown}")));
            }
        }
        self.told.ran.push(shown);
        Ok(())
    }

    fn end(self) -> Result<u8, Failure> {
        if self.globals.args.json {
            output::print_json(&self.told)?;
        }
        Ok(exit::OK)
    }
}

fn refused(message: &str, kind: ErrorKind) -> Failure {
    let failure = Failure::new(exit::REFUSED, "io", message);
    if kind == ErrorKind::PermissionDenied {
        return failure.with_help("sudo dshd service …, or for yourself alone: dshd service … --user");
    }
    failure
}

fn no_program(command: &[String], error: &std::io::Error) -> Failure {
    let name = command.first().map_or("", String::as_str);
    Failure::new(exit::REFUSED, "command_failed", format!("cannot run {name}: {error}"))
        .with_help("this needs systemd; without it let another supervisor run: dshd serve")
}

fn spawn(command: &[String], output: Stdio) -> Command {
    let mut words = command.iter();
    let mut spawned = Command::new(words.next().map_or("", String::as_str));
    spawned.args(words).stdin(Stdio::null()).stderr(output);
    spawned
}

/// Runs a command that talks to the user by itself. Its exit code is ours.
async fn hand_over(command: Vec<String>) -> Result<u8, Failure> {
    let status = spawn(&command, Stdio::inherit()).status().await;
    let status = status.map_err(|error| no_program(&command, &error))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::REFUSED))
}
