//! Marks: which call of which session a process belongs to, written where the process does not lose it.
//!
//! A mark is a number. It stands in the soft limit on file locks, which Linux has not looked at since 2.4 and which every
//! child inherits, whatever it does to its environment, its session or its title; and, for kernels that do not keep that
//! limit, in a variable.

use std::fs::File;
use std::io::Read as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Resource, Rlimit, getrlimit};

/// The variable that holds the mark in hexadecimal.
pub(super) const VARIABLE: &str = "DSHD_CALL";

/// The most that is read of a process's environment, in bytes: as much as a program can be started with.
const ENVIRONMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// From the top: 4 bits that say that it is a mark, 20 of this daemon, 20 of a session's life in memory, 20 of a call.
/// Lives and calls come again after so many, which nobody notices: what the first of that number left has long ended.
const MAGIC: u64 = 0x5;
const PROCESS_BITS: u32 = 20;
const LIFE_BITS: u32 = 20;
const CALL_BITS: u32 = 20;
/// Of a call's bits: it is a background job.
const JOB: u64 = 1 << (CALL_BITS - 1);

/// Tells this daemon's children from those of another that it may have started.
static PROCESS: LazyLock<u64> =
    LazyLock::new(|| u64::from(uuid::Uuid::new_v4().as_fields().0) & ones(PROCESS_BITS));
static LIVES: AtomicU64 = AtomicU64::new(0);

/// Names a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

/// What a set of processes has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The calls of that daemon started them.
    Process(u64),
    /// The calls of a session that is in memory started them.
    Life(u64),
    /// That call started them.
    Call(Mark),
    /// The session's calls from that number on started them; background jobs are left out.
    Since(u64, u64),
}

impl Mark {
    /// The mark of a call.
    pub(super) fn new(life: u64, number: u64, is_job: bool) -> Self {
        let call = (number & (JOB - 1)) | if is_job { JOB } else { 0 };
        Self((((MAGIC << PROCESS_BITS | *PROCESS) << LIFE_BITS | life) << CALL_BITS) | call)
    }

    fn from_raw(raw: u64) -> Option<Self> {
        (raw >> (PROCESS_BITS + LIFE_BITS + CALL_BITS) == MAGIC).then_some(Self(raw))
    }

    /// The mark of a process, if it has one and lets us see it.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        in_limits(pid).or_else(|| in_environment(pid))
    }

    /// What the mark looks like in [`VARIABLE`].
    pub(super) fn text(self) -> String {
        format!("{:x}", self.0)
    }

    /// The limit that carries it; none where the hard limit leaves no room.
    pub(super) fn limit(self) -> Option<Rlimit> {
        let maximum = getrlimit(Resource::Locks).maximum;
        maximum.is_none_or(|maximum| maximum >= self.0).then_some(Rlimit { current: Some(self.0), maximum })
    }

    fn call(self) -> u64 {
        self.0 & ones(CALL_BITS)
    }

    fn life(self) -> u64 {
        self.0 >> CALL_BITS & ones(LIFE_BITS)
    }

    fn process(self) -> u64 {
        self.0 >> (CALL_BITS + LIFE_BITS) & ones(PROCESS_BITS)
    }
}

impl Of {
    /// Whether a process with this mark is one of them.
    pub(super) fn covers(self, mark: Mark) -> bool {
        match self {
            Self::Process(process) => mark.process() == process,
            Self::Life(life) => mark.process() == *PROCESS && mark.life() == life,
            Self::Call(call) => mark == call,
            Self::Since(life, number) => {
                Self::Life(life).covers(mark) && mark.call() & JOB == 0 && mark.call() >= number
            }
        }
    }
}

/// The number of this process.
pub(super) fn this_process() -> u64 {
    *PROCESS
}

/// A number for a session's life in memory.
pub(super) fn next_life() -> u64 {
    LIVES.fetch_add(1, Ordering::Relaxed) & ones(LIFE_BITS)
}

fn ones(bits: u32) -> u64 {
    (1 << bits) - 1
}

fn in_limits(pid: Pid) -> Option<Mark> {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_pid())).ok()?;
    let locks = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
    Mark::from_raw(locks.split_whitespace().next()?.parse().ok()?)
}

fn in_environment(pid: Pid) -> Option<Mark> {
    let file = File::open(format!("/proc/{}/environ", pid.as_raw_pid())).ok()?;
    let mut environment = Vec::new();
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment).ok()?;
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    Mark::from_raw(u64::from_str_radix(std::str::from_utf8(value).ok()?, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_call_its_session_and_this_process() {
        let (one, other) = (next_life(), next_life());
        let mark = Mark::new(one, 7, false);
        assert_eq!(Mark::from_raw(mark.0), Some(mark));
        for (of, covered) in [
            (Of::Process(this_process()), true),
            (Of::Process(this_process() ^ 1), false),
            (Of::Life(one), true),
            (Of::Life(other), false),
            (Of::Call(mark), true),
            (Of::Call(Mark::new(one, 8, false)), false),
            (Of::Since(one, 7), true),
            (Of::Since(one, 8), false),
            (Of::Since(other, 0), false),
        ] {
            assert_eq!(of.covers(mark), covered, "{of:?}");
        }
        let job = Mark::new(one, 9, true);
        assert!(Of::Life(one).covers(job) && !Of::Since(one, 0).covers(job));
    }

    #[test]
    fn a_number_that_is_no_mark_and_a_mark_of_another_daemon_are_not_ours() {
        assert_eq!(Mark::from_raw(1024), None);
        assert_eq!(Mark::from_raw(u64::MAX), None);
        let foreign = Mark(Mark::new(1, 1, false).0 ^ (1 << (LIFE_BITS + CALL_BITS)));
        assert!(!Of::Process(this_process()).covers(foreign) && !Of::Life(1).covers(foreign));
    }
}
