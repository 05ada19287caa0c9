//! Readers that stop, that pause, and one that reads for long.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{MANY, Told, between, follow, last};
use crate::daemon::{Daemon, Peer};
use crate::model::{Model, Script};
use crate::sized;

/// A turn of a megabyte of text, which is two on the wire: as it is written, and as a message.
fn megabyte() -> Script {
    Script { deltas: 1000, pause: Duration::ZERO, batch: 20, stamped: false, calls: 0, width: 1000 }
}

/// Turns of one session. A model is sent all that was said, so a conversation of hundreds of megabytes would be what is
/// measured; sessions that are through leave memory.
const TURNS: usize = 20;

const LEAVING: (&str, &str) = ("DSHD_SESSIONS__IDLE_UNLOAD", "100ms");

/// What a follower of many sessions was told of each.
#[derive(Default)]
struct All(HashMap<String, Told>);

impl All {
    fn take(&mut self, line: &str) {
        if let Some(session) = between(line, "\"sessionId\":\"", "\"") {
            if !self.0.contains_key(session) {
                self.0.insert(session.to_owned(), Told::default());
            }
            self.0.get_mut(session).unwrap().take(line);
        }
    }

    /// The hashes of all events, by session.
    fn hashes(&self) -> BTreeMap<&str, (u64, u32)> {
        self.0.iter().map(|(session, told)| (session.as_str(), (told.next, told.events))).collect()
    }
}

/// Runs turns and reads all of them; megabytes of text a second.
fn run(peer: &mut Peer, turns: std::ops::Range<usize>, told: &mut All) -> f64 {
    let (count, began) = (turns.len(), Instant::now());
    for turn in turns {
        let id = peer.prompt(&format!("s{}", turn / TURNS));
        peer.reply(id, |line| told.take(line));
    }
    count as f64 / began.elapsed().as_secs_f64()
}

/// One reader that keeps up and fifty that have stopped.
pub(crate) fn stopped() -> Value {
    let (turns, readers, resumed) = (sized(500, 40), sized(50, 5), sized(4, 2));
    let model = Model::start(megabyte());
    let daemon = Daemon::start_with(&model.base_url, &[&MANY[..], &[LEAVING]].concat());
    let mut fast = daemon.connect();
    let mut told = All::default();
    // Alone before and after, since a machine's pace is not constant.
    let half = turns / 2 / TURNS * TURNS;
    run(&mut fast, 0..half, &mut told);
    let alone_before = run(&mut fast, half..2 * half, &mut told);
    let from = 2 * half;
    let mut stopped: Vec<Peer> = (0..readers).map(|_| daemon.connect()).collect();
    for at in from / TURNS..(from + turns) / TURNS {
        fast.call("session/create", &json!({ "sessionId": format!("s{at}") }));
        for peer in &mut stopped {
            follow(peer, &format!("s{at}"));
        }
    }
    let memory = daemon.memory_kib();
    let mut seen = All::default();
    let beside = run(&mut fast, from..from + turns, &mut seen);
    let grown = daemon.memory_kib().saturating_sub(memory) as f64 / 1024.0;
    let mut same = 0;
    for mut peer in stopped.drain(..resumed) {
        let mut late = All::default();
        while late.hashes() != seen.hashes() {
            let behind = late.0.values().map(|told| told.next).sum::<u64>()
                < seen.0.values().map(|told| told.next).sum();
            assert!(behind, "a reader that had stopped was told something else");
            late.take(peer.next());
        }
        same += 1;
    }
    drop(stopped);
    let after = from + turns;
    let alone_after = run(&mut fast, after..after + half, &mut told);
    let alone = f64::midpoint(alone_before, alone_after);
    let lost = 100.0 * (1.0 - beside / alone);
    json!({
        "stopped": readers, "megabytes": turns, "sessions": turns / TURNS,
        "mb_s_alone_before": alone_before, "mb_s_alone_after": alone_after, "mb_s_beside_them": beside,
        "lost_percent": lost, "lost_percent_goal": 5, "memory_grown_mib": grown, "memory_grown_goal_mib": 60,
        "resumed": resumed, "resumed_to_the_same_hash": same,
        "met": lost < 5.0 && grown <= 60.0 && same == resumed,
    })
}

/// 20,000 small events at once to a client that pauses two seconds.
pub(crate) fn pause() -> Value {
    let events = sized(20_000, 1_000);
    let model = Model::start(Script::at_once(20));
    let daemon = Daemon::start_with(
        &model.base_url,
        &[
            ("DSHD_LIMITS__IN_FLIGHT", "1000"),
            ("DSHD_LIMITS__MAILBOX", "1000"),
            ("DSHD_LIMITS__WRITE_PROGRESS", "30s"),
        ],
    );
    let mut writer = daemon.connect();
    let mut told = Told::default();
    let id = writer.prompt("s");
    writer.reply(id, |line| told.take(line));
    let mut reader = daemon.connect();
    follow(&mut reader, "s");
    let began = Instant::now();
    // Each update is an event or two; a few hundred are under way at a time, and answered in any order.
    let mut under_way = 0;
    let answer = |writer: &mut Peer| {
        while !{
            let line = writer.next();
            line.contains("\"id\":") && !line.contains("\"method\"")
        } {}
    };
    for at in 0..events {
        writer.send("session/update", &json!({ "sessionId": "s", "title": format!("title {at}") }));
        under_way += 1;
        if under_way >= 500 {
            answer(&mut writer);
            under_way -= 1;
        }
    }
    (0..under_way).for_each(|_| answer(&mut writer));
    let written = began.elapsed();
    std::thread::sleep(Duration::from_secs(2).saturating_sub(written));
    let whole = last(&mut writer, "s");
    let mut seen = Told::default();
    seen.read_to(&mut reader, whole);
    json!({
        "events": whole + 1, "written_s": written.as_secs_f64(), "told": seen.next, "met": seen.next == whole + 1,
    })
}

/// Two gigabytes to one client (`BENCH_GB` for more): memory must not follow.
pub(crate) fn gigabytes() -> Value {
    let gigabytes: usize = std::env::var("BENCH_GB").ok().map_or(2, |text| text.parse().unwrap());
    let turns = sized(gigabytes * 1000, 20);
    let model = Model::start(megabyte());
    let daemon = Daemon::start_with(&model.base_url, &[&MANY[..], &[LEAVING]].concat());
    let mut peer = daemon.connect();
    let mut bytes = 0;
    let mut run = |from: usize, to: usize| {
        for turn in from..to {
            let id = peer.prompt(&format!("s{}", turn / TURNS));
            peer.reply(id, |line| bytes += line.len() as u64);
        }
    };
    let warm = turns / 5;
    run(0, warm);
    let before = daemon.memory_kib();
    run(warm, turns);
    let grown = daemon.memory_kib().saturating_sub(before) as f64 / 1024.0;
    let measured = (turns - warm) as f64 / 1000.0;
    json!({
        "gigabytes_of_text": turns as f64 / 1000.0, "gigabytes_read": bytes as f64 / 1e9,
        "memory_kib": before, "grown_mib_a_gigabyte": grown / measured, "grown_goal_mib": 1,
        "met": grown / measured <= 1.0,
    })
}
