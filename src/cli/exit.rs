//! Exit codes: one table for all commands, also in the manual page and README.

/// Done; the turn was `ok`.
pub const OK: u8 = 0;
/// The turn ended in an error, or any other refusal.
pub const REFUSED: u8 = 1;
/// It goes on without us; `status`: no daemon.
pub const STILL_RUNNING: u8 = 3;
/// `status`: no daemon, as systemctl says it.
pub const NO_DAEMON: u8 = 3;
/// No such session.
pub const NO_SESSION: u8 = 4;
/// The session is busy.
pub const BUSY: u8 = 5;
/// An approval was rejected, or nobody could answer it, and the turn ended because of it.
pub const APPROVAL: u8 = 6;
/// Wrong usage.
pub const USAGE: u8 = 64;
/// The daemon can't be reached, or can't bind.
pub const UNREACHABLE: u8 = 69;
/// A bug of ours.
pub const BUG: u8 = 70;
/// Storage failed.
pub const STORAGE: u8 = 74;
/// `serve`: another one runs.
pub const ALREADY_RUNNING: u8 = 75;
/// The daemon speaks another protocol version.
pub const PROTOCOL: u8 = 76;
/// Not allowed: token missing, wrong, or of too small a scope.
pub const NOT_ALLOWED: u8 = 77;
/// The configuration is wrong.
pub const CONFIG: u8 = 78;
/// Cancelled by Ctrl-C, after the turn's end was confirmed.
pub const INTERRUPTED: u8 = 130;
/// The reader of stdout is gone, as if by SIGPIPE.
pub const BROKEN_PIPE: u8 = 141;
/// Cancelled by SIGTERM, after the turn's end was confirmed.
pub const TERMINATED: u8 = 143;

/// Ended by a signal, as shells say it.
pub fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(INTERRUPTED)
}

/// The table as help text.
pub const TABLE: &str = "\
0         done; the turn was ok
1         the turn ended in an error, or another refusal
3         still going without us; status: no daemon
4         no such session
5         the session is busy
6         an approval was rejected or could not be answered
64        wrong usage
69        the daemon cannot be reached, or cannot bind
70        a bug in dshd; its incident id is printed
74        storage failed
75        serve: another daemon already runs
76        the daemon speaks another protocol version
77        not allowed: token missing, wrong or of too small a scope
78        the configuration is wrong
130, 143  cancelled by Ctrl-C or SIGTERM, after the turn's end was confirmed
141       the reader of stdout went away";
