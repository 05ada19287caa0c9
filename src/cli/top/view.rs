//! How a look is shown: as a line, as a screen. No I/O.

use std::fmt::Write as _;

use super::super::escape::one_line;
use super::super::{Globals, human};
use super::rates::Rates;
use crate::clock::now_ms;
use crate::protocol::{ConnectionState, Phase, SessionStatus, StatusResult};

/// Connections and sessions that a screen shows.
const ROWS_MAX: usize = 20;

/// What a peer may be still for before it counts as stuck, in milliseconds.
const STUCK_MS: u64 = 5000;

const HEADER: &str =
    "    time  sess   run  wait  conn turns/s    ev/s  delta/s   tok/s   lag_max fsync_p99      rss\n";

/// A line as vmstat writes it.
pub(super) fn line(rates: &Rates, status: &StatusResult, header: bool) -> String {
    let mut text = if header { HEADER.to_owned() } else { String::new() };
    let time = human::local(now_ms());
    let clock = time.get(11..19).unwrap_or(&time);
    let (waiting, lag) = (status.usage.mailbox, status.usage.outbound_bytes);
    let _ = writeln!(
        text,
        "{clock} {:>5} {:>5} {waiting:>5} {:>5} {:>7.1} {:>7.0} {:>8.0} {:>7.0} {:>9} {:>9} {:>8}",
        status.counts.sessions_loaded,
        status.counts.turns_running,
        status.counts.connections,
        rates.turns,
        rates.events,
        rates.deltas,
        rates.tokens,
        human::size(lag).replace(' ', ""),
        rates.sync_p99_micros.map_or_else(|| "-".to_owned(), |micros| format!("{:.1}ms", millis(micros))),
        human::size(status.counts.memory_bytes).replace(' ', ""),
    );
    text
}

/// A screenful: the daemon, the rates, sessions that work, connections by their lag.
pub(super) fn screen(rates: &Rates, status: &StatusResult, globals: &Globals) -> String {
    let mut text = String::new();
    let phase = match status.phase {
        Phase::Ready => "ready",
        Phase::Draining => "draining",
    };
    let counts = &status.counts;
    let sync =
        rates.sync_p99_micros.map_or_else(|| "-".to_owned(), |micros| format!("{:.1} ms", millis(micros)));
    let lines = [
        format!(
            "dshd {}  {phase}  pid {}  up {}  {}  {}",
            status.version,
            status.pid,
            human::elapsed(status.uptime_ms),
            human::size(counts.memory_bytes),
            human::short_path(&status.data_dir, &globals.environment)
        ),
        format!(
            "sessions {} loaded, {} running · clients {} · in flight {} · children {}",
            counts.sessions_loaded,
            counts.turns_running,
            counts.connections,
            counts.in_flight,
            status.usage.children
        ),
        format!(
            "a second: {:.1} turns · {:.0} events · {:.0} deltas · {:.0} tokens · {} out · fsync p99 {sync}",
            rates.turns,
            rates.events,
            rates.deltas,
            rates.tokens,
            human::size(whole(rates.bytes_out))
        ),
        String::new(),
        format!("{:<40} {:>8} {:>10}", "SESSION", "STATE", "SEQ"),
    ];
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    let working = status.sessions.iter().filter(|session| session.status == SessionStatus::Running);
    for session in working.take(ROWS_MAX) {
        let seq = session.last_seq.0.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
        let _ =
            writeln!(text, "{:<40} {:>8} {seq:>10}", one_line(session.session_id.as_str(), 40), "running");
    }
    let _ = writeln!(text, "\n{:<40} {:>5} {:>9} {:>10} {:>7}", "CLIENT", "SUBS", "EVENTS", "BYTES", "MOVES");
    for one in status.connections.iter().take(ROWS_MAX) {
        let name = format!("{}@{}", one.client.as_deref().unwrap_or("a client"), one.peer);
        let _ = writeln!(
            text,
            "{:<40} {:>5} {:>9} {:>10} {:>7}",
            one_line(&name, 40),
            one.subscriptions,
            one.lag_events,
            human::size(one.lag_bytes),
            moves(one)
        );
    }
    text
}

/// Whether a client that is behind takes what it is given.
pub(in super::super) fn moves(connection: &ConnectionState) -> &'static str {
    match (connection.lag_bytes, connection.last_progress_ms) {
        (0, _) => "level",
        (_, 0..STUCK_MS) => "moving",
        (..) => "stuck",
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown to people")]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shown to people; a cast saturates"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}
