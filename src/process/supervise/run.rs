//! The supervisor's life.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, PipeReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities};
use seccompiler::BpfProgram;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::{Filter, Orders, Report};
use crate::process::run::End;
use crate::process::sandbox::{filter, landlock};
use crate::process::{memory, unchecked, walk};

/// The error's number when the program could not be confined, which no start of a program gives.
pub(in crate::process) const UNCONFINED: i32 = libc::ENOTRECOVERABLE;
const TEMPORARY_VARIABLE: &str = "TMPDIR";
/// Of a supervisor that got no orders, or could not follow them.
const FAILED: u8 = 125;
/// Between two rounds of killing what is left when the daemon has ended, and how many there are.
const KILL_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
const KILL_ROUNDS: usize = 2000;

/// Where the program is in its life.
struct Supervised {
    main: Option<Pid>,
    report: File,
}

pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> u8 {
    let Some(orders) = Orders::parse(arguments) else { return FAILED };
    let (report, lifeline) = (unchecked::adopt(orders.report), unchecked::adopt(orders.lifeline));
    if let Some(own_program) = orders.own_program {
        drop(unchecked::adopt(own_program));
    }
    let mut supervised = Supervised { main: None, report: File::from(report) };
    let outcome = prepare(&orders).and_then(|(command, children)| {
        supervised.start(command)?;
        supervised.watch(&lifeline, &children)
    });
    if let Some(temporary) = &orders.temporary {
        // What can't be removed is in a directory that others can't enter.
        let _ = std::fs::remove_dir_all(temporary);
    }
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            supervised.tell(Report::Failed(error.raw_os_error().unwrap_or(UNCONFINED)));
            FAILED
        }
    }
}

/// Makes this process fit for its task, and the command of the program. Also what says that a child has ended.
fn prepare(orders: &Orders) -> io::Result<(Command, PipeReader)> {
    memory::keep_memory_private()?;
    if !is_first() {
        walk::adopt_orphans()?;
    }
    let (children, ended) = io::pipe()?;
    signal_hook::low_level::pipe::register(SIGCHLD, OwnedFd::from(ended))?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // They are meant for the program, which gets them itself.
        signal_hook::flag::register(signal, std::sync::Arc::default())?;
    }
    let mut command = Command::new(&orders.program);
    command.args(&orders.arguments);
    if let Some(temporary) = &orders.temporary {
        make_private(temporary)?;
        command.env(TEMPORARY_VARIABLE, temporary);
    }
    confine(&mut command, orders)?;
    Ok((command, children))
}

fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)
}

fn confine(command: &mut Command, orders: &Orders) -> io::Result<()> {
    let network = orders.view.as_ref().is_some_and(|view| view.network);
    let program: Option<BpfProgram> = match orders.filter {
        Filter::Off => None,
        Filter::Bwrap => Some(filter::bwrap().map_err(io::Error::other)?),
        Filter::Landlock => Some(filter::landlock(network).map_err(io::Error::other)?),
    };
    let mut rules = match &orders.view {
        Some(view) => Some(landlock::rules(view, orders.temporary.as_deref()).map_err(io::Error::other)?),
        None => None,
    };
    let unconfined = || io::Error::from_raw_os_error(UNCONFINED);
    if orders.filter != Filter::Off {
        // Root's rights pass many a check of Landlock's; bubblewrap has taken them already.
        give_up_bounding_set();
    }
    let confined = orders.filter != Filter::Off;
    unchecked::before_exec(command, move || {
        if confined {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            set_capabilities(None, sets)?;
        }
        if let Some(rules) = rules.take() {
            rules.restrict_self().map_err(|_| unconfined())?;
        }
        program
            .as_ref()
            .map_or(Ok(()), |program| seccompiler::apply_filter(program).map_err(|_| unconfined()))
    });
    Ok(())
}

/// What is not in it can't be had again by starting a program. Who may not change it has nothing to give up.
fn give_up_bounding_set() {
    for capability in CapabilitySet::all().iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// Whether this is the first process of a pid namespace.
fn is_first() -> bool {
    std::process::id() == 1
}

impl Supervised {
    fn start(&mut self, mut command: Command) -> io::Result<()> {
        let child = command.spawn()?;
        self.main = Pid::from_raw(child.id().cast_signed());
        self.tell(Report::Started);
        // Who reads the program's output waits until nobody holds it.
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(())
    }

    /// Until nothing of the program is left, or the daemon has ended.
    fn watch(&mut self, lifeline: &OwnedFd, children: &PipeReader) -> io::Result<()> {
        let mut drained = [0; 64];
        while self.reap() {
            let mut events = [PollFd::new(lifeline, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
            match poll(&mut events, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !events[0].revents().is_empty() {
                self.end_all(children);
                return Ok(());
            }
            if !events[1].revents().is_empty() {
                rustix::io::read(children, &mut drained)?;
            }
        }
        Ok(())
    }

    /// Reaps what has ended. Says whether anything lives.
    fn reap(&mut self) -> bool {
        let mut ended = None;
        let lives = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if Some(pid) == self.main => {
                    self.main = None;
                    let signal = status.terminating_signal().unwrap_or_default();
                    ended = Some(status.exit_status().map_or(End::Signalled(signal), End::Exited));
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        if let Some(end) = ended {
            self.tell(Report::Ended { end, left: lives });
        }
        lives
    }

    /// The daemon has ended: nothing may stay. In a pid namespace this process's end does it.
    fn end_all(&mut self, children: &PipeReader) {
        if is_first() {
            return;
        }
        for _ in 0..KILL_ROUNDS {
            for child in walk::children().unwrap_or_default().into_iter().filter(|child| !child.is_zombie) {
                let _ = kill_process(child.pid, Signal::KILL);
            }
            if !self.reap() {
                return;
            }
            // What lost its parent is a child of this process at the next round.
            let _ = poll(&mut [PollFd::new(children, PollFlags::ERR)], Some(&KILL_PAUSE));
        }
    }

    fn tell(&mut self, report: Report) {
        // A daemon that has ended hears nothing.
        let _ = self.report.write_all(&report.to_bytes());
    }
}
