//! Starting a program: directly, or under a supervisor, and then in whatever must hold it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use super::group::{Group, NotStarted};
use super::mark::{self, Mark};
use super::sandbox::{self, Confinement, Hold, Unconfinable, View};
use super::supervise::{self, Filter, Orders, Reports};
use super::unchecked::{self, Before};
use super::{nofile, temporary};

/// The longest wait for a supervisor to come to life.
const START_MAX: Duration = Duration::from_secs(20);
/// Of what bubblewrap says when it fails.
const SAID_BYTES_MAX: u64 = 4096;
/// Where the program that this process runs is, even if its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
const TEMPORARY_VARIABLE: &str = "TMPDIR";
/// Where a program in a namespace of its own has temporary files: all of this is its own there.
const TEMPORARY_IN_NAMESPACE: &str = "/tmp";

/// A program did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be started.
    #[error("cannot start {}", .program.display())]
    Program {
        /// The program.
        program: OsString,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nothing can hold it to what it may do.
    #[error(transparent)]
    Unconfinable(#[from] Unconfinable),
    /// What was to hold it failed.
    #[error("the sandbox of {} could not be made: {said}", .program.display())]
    Sandbox {
        /// The program.
        program: OsString,
        /// What was said of it.
        said: String,
    },
}

/// What to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct What<'a> {
    pub(super) program: &'a OsStr,
    pub(super) arguments: &'a [OsString],
    pub(super) directory: &'a Path,
    pub(super) environment: &'a [(OsString, OsString)],
    pub(super) confinement: &'a Confinement,
}

/// A program that starts, and is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Starting {
    program: OsString,
    group: Group,
}

/// The command of a program, and what is to be kept until it has forked.
struct Made {
    command: Command,
    reports: Option<Reports>,
    passed: Vec<RawFd>,
    temporary: Option<PathBuf>,
    _report: Option<OwnedFd>,
}

/// What each supervisor is started with.
#[derive(Debug)]
struct Lines {
    /// Our own program.
    program: File,
    /// The end of the pipe that supervisors hold.
    lifeline: io::PipeReader,
    /// Ours: never written to, closed by the kernel when this process ends.
    _held: io::PipeWriter,
}

/// Starts a program whose output is taken in.
pub(super) async fn start(what: What<'_>, mark: Mark, stdin: Stdio) -> Result<Starting, StartError> {
    let failed = |source| StartError::Program { program: what.program.to_owned(), source };
    let (confinement, program) = (what.confinement.clone(), PathBuf::from(what.program));
    let directory = what.directory.to_path_buf();
    let held = tokio::task::spawn_blocking(move || confinement.hold(&program, &directory)).await;
    let hold = held.map_err(|error| failed(io::Error::other(error)))??;
    let mut made = make(what, hold).map_err(failed)?;
    made.command
        .current_dir(what.directory)
        .env(mark::VARIABLE, mark.text())
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let before = Before {
        files: nofile::limit_of_children(),
        mark: mark.limit(),
        passed: std::mem::take(&mut made.passed),
    };
    unchecked::set_before(&mut made.command, before);
    let group =
        Group::start(&mut made.command, made.reports.take(), made.temporary.take()).map_err(failed)?;
    Ok(Starting { program: what.program.to_owned(), group })
}

impl Starting {
    /// Waits until it runs. The group and what it writes to.
    pub(super) async fn running(
        mut self,
    ) -> Result<(Group, (Option<ChildStdout>, Option<ChildStderr>)), StartError> {
        let started = timeout(START_MAX, self.group.started()).await;
        let (stdout, mut stderr) = self.group.take_output();
        match started {
            Ok(Ok(())) => Ok((self.group, (stdout, stderr))),
            Ok(Err(NotStarted::Failed(error))) if error == supervise::UNCONFINED => {
                Err(self.no_sandbox("Landlock or seccomp could not be put in force".to_owned()))
            }
            Ok(Err(NotStarted::Failed(error))) => {
                let source = io::Error::from_raw_os_error(error);
                Err(StartError::Program { program: self.program, source })
            }
            Ok(Err(NotStarted::Silent)) => {
                let said = said(stderr.as_mut()).await;
                Err(self.no_sandbox(said))
            }
            Ok(Err(NotStarted::Unheard(source))) => {
                Err(StartError::Program { program: self.program, source })
            }
            Err(_) => Err(self.no_sandbox(format!("nothing happened within {} s", START_MAX.as_secs()))),
        }
    }

    fn no_sandbox(&self, said: String) -> StartError {
        StartError::Sandbox { program: self.program.clone(), said }
    }
}

/// What a program that has ended wrote.
async fn said(stderr: Option<&mut ChildStderr>) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = stderr {
        let mut start = stderr.take(SAID_BYTES_MAX);
        // What was read in time is told.
        let _ = timeout(Duration::from_secs(1), start.read_to_end(&mut said)).await;
    }
    let said = String::from_utf8_lossy(&said);
    let said = said.trim();
    if said.is_empty() { "it ended without a word".to_owned() } else { said.to_owned() }
}

fn make(what: What<'_>, hold: Hold) -> io::Result<Made> {
    if !supervise::is_enabled() {
        // A means to hold it would not have been found without a supervisor.
        return Ok(Made {
            command: bare(what.program, what),
            reports: None,
            passed: Vec::new(),
            temporary: None,
            _report: None,
        });
    }
    let lines = lines()?;
    let (reports, report) = Reports::new()?;
    let mut orders = Orders {
        report: report.as_raw_fd(),
        lifeline: lines.lifeline.as_raw_fd(),
        program: what.program.to_owned(),
        arguments: what.arguments.to_vec(),
        ..Orders::default()
    };
    let mut passed = vec![orders.report, orders.lifeline];
    let command = match hold {
        Hold::Nothing => supervised(what, &orders),
        Hold::Landlock(view) => {
            (orders.filter, orders.view) = (Filter::Landlock, Some(view));
            orders.temporary = Some(temporary::fresh());
            supervised(what, &orders)
        }
        Hold::Bwrap(bwrap, view) => {
            let own = lines.program.as_raw_fd();
            (orders.filter, orders.own_program) = (Filter::Bwrap, Some(own));
            passed.push(own);
            in_namespace(what, &orders, &bwrap.0, &view)
        }
    };
    let temporary = orders.temporary.take();
    Ok(Made { command, reports: Some(reports), passed, temporary, _report: Some(report) })
}

fn bare(program: impl AsRef<OsStr>, what: What<'_>) -> Command {
    let mut command = Command::new(program);
    command.args(what.arguments).env_clear().envs(what.environment.iter().map(|(name, value)| (name, value)));
    command
}

fn supervised(what: What<'_>, orders: &Orders) -> Command {
    let mut command = bare(OWN_PROGRAM, What { arguments: &[], ..what });
    command.arg0(env!("CARGO_PKG_NAME")).arg(supervise::ARGUMENT).args(orders.to_arguments());
    command
}

fn in_namespace(what: What<'_>, orders: &Orders, bwrap: &Path, view: &View) -> Command {
    let mut command = bare(bwrap, What { arguments: &[], ..what });
    command.args(sandbox::bwrap_arguments(view, what.directory));
    command.arg(format!("/proc/self/fd/{}", orders.own_program.unwrap_or_default()));
    command.arg(supervise::ARGUMENT).args(orders.to_arguments());
    command.env(TEMPORARY_VARIABLE, TEMPORARY_IN_NAMESPACE);
    command
}

fn lines() -> io::Result<&'static Lines> {
    static LINES: OnceLock<Lines> = OnceLock::new();
    if let Some(lines) = LINES.get() {
        return Ok(lines);
    }
    let path_only = rustix::fs::OFlags::PATH.bits().cast_signed();
    let program = File::options().read(true).custom_flags(path_only).open(OWN_PROGRAM)?;
    let (lifeline, held) = io::pipe()?;
    Ok(LINES.get_or_init(|| Lines { program, lifeline, _held: held }))
}
