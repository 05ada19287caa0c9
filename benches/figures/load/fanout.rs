//! One writer and many readers, all of whom keep up.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{MANY, Told, follow, last, raise_descriptors};
use crate::daemon::{Daemon, Peer};
use crate::model::{Model, Script};
use crate::turns::delays_of;
use crate::{quantile, sized};

/// A thread that only waits for a socket needs little of a stack.
const STACK_BYTES: usize = 256 * 1024;

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap()
}

/// One session that writes 20,000 deltas in a second, and its followers: the CPU of the daemon, and what each was told.
fn stream(subscribers: usize, deltas: usize) -> (Duration, Duration, Vec<Told>) {
    let script =
        Script { deltas, pause: Duration::from_millis(1), batch: 20, stamped: false, calls: 0, width: 0 };
    let model = Model::start(script);
    let daemon = Daemon::start_with(&model.base_url, &MANY);
    let mut prompting = daemon.connect();
    // It exists, and can be followed.
    let id = prompting.send("session/create", &json!({ "sessionId": "s" }));
    prompting.reply(id, |_| {});
    let mut peers: Vec<Peer> = (0..subscribers).map(|_| daemon.connect()).collect();
    for peer in &mut peers {
        follow(peer, "s");
    }
    let (cpu, began) = (daemon.cpu(), Instant::now());
    let readers: Vec<_> = peers
        .into_iter()
        .map(|mut peer| {
            spawn(move || {
                let mut told = Told::default();
                loop {
                    let line = peer.next();
                    let over = line.contains("\"type\":\"turn/end\"");
                    told.take(line);
                    if over {
                        return told;
                    }
                }
            })
        })
        .collect();
    let id = prompting.prompt("s");
    prompting.reply(id, |_| {});
    let told: Vec<Told> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    (daemon.cpu().saturating_sub(cpu), began.elapsed(), told)
}

/// 256 followers of one session.
pub(crate) fn session() -> Value {
    raise_descriptors();
    let (subscribers, deltas) = (sized(256, 16), sized(20_000, 2_000));
    let (one_cpu, one_whole, one) = stream(1, deltas);
    let (cpu, whole, told) = stream(subscribers, deltas);
    let text = crc32c::crc32c("word ".repeat(deltas).as_bytes());
    let correct = one.iter().chain(&told).filter(|told| told.text == text).count();
    let frames: u64 = told.iter().map(|told| told.deltas).sum();
    json!({
        "subscribers": subscribers, "deltas": deltas, "ideal_s": deltas as f64 / 20_000.0,
        "whole_s": whole.as_secs_f64(), "whole_of_one_s": one_whole.as_secs_f64(),
        "cpu_s": cpu.as_secs_f64(), "cpu_of_one_s": one_cpu.as_secs_f64(),
        "frames_each": frames as f64 / subscribers as f64, "correct": correct,
        "met": correct == subscribers + 1,
    })
}

/// 1,000 followers of sessions that write ten times a second.
pub(crate) fn subscribers() -> Value {
    raise_descriptors();
    let (sessions, each, deltas) = (sized(100, 5), sized(10, 4), sized(50, 10));
    let script =
        Script { deltas, pause: Duration::from_millis(100), batch: 1, stamped: true, calls: 0, width: 0 };
    let model = Model::start(script);
    let daemon = Daemon::start_with(&model.base_url, &MANY);
    let mut prompting = daemon.connect();
    let mut readers = Vec::new();
    for at in 0..sessions {
        let session = format!("s{at}");
        prompting.call("session/create", &json!({ "sessionId": session }));
        for _ in 0..each {
            let mut peer = daemon.connect();
            follow(&mut peer, &session);
            readers.push(spawn(move || {
                let mut delays = Vec::new();
                loop {
                    let line = peer.next();
                    if line.contains("\"type\":\"turn/end\"") {
                        return delays;
                    }
                    delays.extend(delays_of(line));
                }
            }));
        }
    }
    let cpu = daemon.cpu();
    let prompters: Vec<_> = (0..sessions)
        .map(|at| {
            let mut peer = daemon.connect();
            spawn(move || {
                let id = peer.prompt(&format!("s{at}"));
                peer.reply(id, |_| {});
            })
        })
        .collect();
    let mut delays: Vec<f64> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    for prompter in prompters {
        prompter.join().unwrap();
    }
    let cpu = daemon.cpu().saturating_sub(cpu);
    delays.sort_by(f64::total_cmp);
    let whole = last(&mut prompting, "s0");
    let p99 = quantile(&delays, 0.99);
    json!({
        "connections": sessions * each, "sessions": sessions, "told": delays.len(), "events_of_one": whole + 1,
        "delay_p50_ms": quantile(&delays, 0.5), "delay_p99_ms": p99, "delay_p99_goal_ms": 50,
        "cpu_s": cpu.as_secs_f64(), "met": p99 <= 50.0,
    })
}
