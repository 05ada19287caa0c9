//! The walk: finding and signalling the processes that calls started, wherever they went.
//!
//! The daemon is a child subreaper, so whatever leaves its group, its session and its parent is still a descendant. A
//! process belongs to the call that its mark names; one whose mark can't be seen belongs to its parent's call. A signal
//! goes through a pidfd that was checked against what was seen, so that it never hits a stranger with a recycled number.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_child_subreaper};

use super::group;
use super::mark::{self, Mark, Of};

/// Processes whose ends one walk lets its caller wait for. The rest is found by the next walk.
const HANDLES_MAX: usize = 64;
/// A process whose parents are more hides something.
const ANCESTORS_MAX: usize = 1000;

/// A process as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// With the number it names a process for good.
    started: u64,
    /// It has ended and waits to be reaped.
    pub(super) is_zombie: bool,
}

/// What a walk did.
#[derive(Debug, Default)]
pub(super) struct Struck {
    /// Processes that were signalled.
    pub(super) count: usize,
    /// Some of them, to wait for.
    pub(super) handles: Vec<OwnedFd>,
}

/// Makes this process the parent of what its descendants leave behind.
///
/// # Errors
/// When the system refuses.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(rustix::process::getpid())).map_err(Into::into)
}

/// Whether a process is one that this daemon runs for an agent: all its descendants are, since it adopts those that
/// lose their parents. One that has ended since it was heard of might have been. Blocks on `/proc`, some microseconds.
pub fn is_own_program(pid: i32) -> bool {
    // Without a command there was no program; and a number that is none is of a process that can't be seen from here.
    let Some(pid) = Pid::from_raw(pid).filter(|_| group::any_started()) else { return false };
    let own = std::process::id().cast_signed();
    if pid.as_raw_pid() == own {
        return false;
    }
    let of = Of::Process(mark::this_process());
    if Mark::of(pid).is_some_and(|mark| of.covers(mark)) {
        return true;
    }
    let mut seen = look(pid);
    if seen.is_none() {
        return true;
    }
    for _ in 0..ANCESTORS_MAX {
        match seen {
            Some(Seen { parent, .. }) if parent == own => return true,
            Some(Seen { parent, .. }) => seen = Pid::from_raw(parent).and_then(look),
            None => return false,
        }
    }
    true
}

/// The living processes of a set. Blocks on `/proc`.
pub(super) fn find(of: Of) -> io::Result<Vec<Seen>> {
    let mut children: HashMap<i32, Vec<Seen>> = HashMap::new();
    for seen in all()? {
        children.entry(seen.parent).or_default().push(seen);
    }
    let mut found = Vec::new();
    // A process that is seen twice, moved in the middle of the reading, is followed once.
    let mut open: Vec<_> = children.remove(&std::process::id().cast_signed()).unwrap_or_default();
    let mut belongs: HashMap<i32, bool> = HashMap::new();
    while let Some(seen) = open.pop() {
        let from_parent = belongs.get(&seen.parent).copied().unwrap_or(false);
        let is_one = Mark::of(seen.pid).map_or(from_parent, |mark| of.covers(mark));
        belongs.insert(seen.pid.as_raw_pid(), is_one);
        if is_one && !seen.is_zombie {
            found.push(seen);
        }
        open.extend(children.remove(&seen.pid.as_raw_pid()).unwrap_or_default());
    }
    Ok(found)
}

/// Signals the living processes of a set, but for those in a group that was signalled as such. Blocks on `/proc`.
pub(super) fn strike(of: Of, signals: &[Signal], but_group: Option<Pid>) -> io::Result<Struck> {
    let outside = |seen: &Seen| but_group.is_none_or(|group| group.as_raw_pid() != seen.group);
    strike_all(find(of)?.into_iter().filter(outside), signals)
}

/// The same for processes that are no descendants of ours, by their marks alone.
pub(super) fn strike_anywhere(of: Of, signals: &[Signal]) -> io::Result<Struck> {
    let own = rustix::process::getuid().as_raw();
    let is_one = |seen: &Seen| {
        let user = std::fs::metadata(format!("/proc/{}", seen.pid.as_raw_pid())).map(|entry| entry.uid());
        !seen.is_zombie
            && user.is_ok_and(|user| user == own)
            && Mark::of(seen.pid).is_some_and(|mark| of.covers(mark))
    };
    strike_all(all()?.into_iter().filter(is_one), signals)
}

fn strike_all(all: impl Iterator<Item = Seen>, signals: &[Signal]) -> io::Result<Struck> {
    let mut struck = Struck::default();
    for seen in all {
        match signal(seen, signals) {
            Ok(Some(handle)) => {
                struck.count += 1;
                if struck.handles.len() < HANDLES_MAX {
                    struck.handles.push(handle);
                }
            }
            // It ended by itself.
            Ok(None) => {}
            // A program that changed its user; nothing of ours can end it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(
                    pid = seen.pid.as_raw_pid(),
                    "a process that a command left can't be signalled"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(struck)
}

fn signal(seen: Seen, signals: &[Signal]) -> io::Result<Option<OwnedFd>> {
    let gone = |error: rustix::io::Errno| match error {
        rustix::io::Errno::SRCH => Ok(None),
        error => Err(io::Error::from(error)),
    };
    let handle = match pidfd_open(seen.pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(error) => return gone(error),
    };
    if look(seen.pid).is_none_or(|now| now.started != seen.started || now.is_zombie) {
        return Ok(None);
    }
    for one in signals {
        if let Err(error) = pidfd_send_signal(&handle, *one) {
            return gone(error);
        }
    }
    Ok(Some(handle))
}

fn all() -> io::Result<Vec<Seen>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        all.extend(number.and_then(Pid::from_raw).and_then(look));
    }
    Ok(all)
}

/// This process's direct children.
pub(super) fn children() -> io::Result<Vec<Seen>> {
    let own = std::process::id().cast_signed();
    let mut numbers = String::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        match std::fs::read_to_string(thread?.path().join("children")) {
            Ok(list) => numbers.push_str(&list),
            // A kernel without these lists, or a thread that has ended meanwhile.
            Err(_) => return Ok(all()?.into_iter().filter(|seen| seen.parent == own).collect()),
        }
    }
    let pids = numbers.split_whitespace().filter_map(|number| number.parse().ok());
    Ok(pids.filter_map(Pid::from_raw).filter_map(look).filter(|seen| seen.parent == own).collect())
}

/// A process that can't be read has ended.
fn look(pid: Pid) -> Option<Seen> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    parse(pid, &stat)
}

/// `pid (name) state parent group …`; the name may hold anything.
fn parse(pid: Pid, stat: &[u8]) -> Option<Seen> {
    const STARTED: usize = 19;
    let after_name = memchr::memrchr(b')', stat)? + 1;
    let mut fields = std::str::from_utf8(stat.get(after_name..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let started = fields.nth(STARTED - 3)?.parse().ok()?;
    Some(Seen { pid, parent, group, started, is_zombie: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_anything_in_it_is_passed_over() {
        let pid = Pid::from_raw(7).unwrap();
        let line = b"7 (a) Z 9 (\xFF) S 3 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9";
        let seen = parse(pid, line).unwrap();
        assert_eq!((seen.parent, seen.group, seen.started, seen.is_zombie), (3, 5, 4711, false));
        assert!(parse(pid, b"7 (a) Z 3 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9").unwrap().is_zombie);
        assert_eq!(parse(pid, b"7 (a"), None);
    }

    #[test]
    fn children_are_own_programs_and_those_who_started_us_are_not() {
        let mut command = tokio::process::Command::new("sleep");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let mut child = command.arg("600").kill_on_drop(true).spawn().unwrap();
        group::say_started();
        assert!(is_own_program(child.id().unwrap().cast_signed()));
        assert!(!is_own_program(std::process::id().cast_signed()));
        assert!(!is_own_program(rustix::process::getppid().unwrap().as_raw_pid()));
        assert!(!is_own_program(0));
        child.start_kill().unwrap();
    }

    #[test]
    fn this_process_is_seen_with_its_parent() {
        let own = look(rustix::process::getpid()).unwrap();
        assert_eq!(own.parent, rustix::process::getppid().unwrap().as_raw_pid());
        assert!(!own.is_zombie && own.started > 0);
    }
}
