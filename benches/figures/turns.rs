//! Turns through the built daemon: what it adds to the model's own time, and how many deltas it carries.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Peer};
use crate::model::{Model, Script, now_ns};
use crate::{quantile, sized};

/// A settled turn of a warm session, beside the model's time and a bare fdatasync on the same disk.
pub(crate) fn turn() -> Value {
    let model = Model::start(Script::at_once(20));
    let daemon = Daemon::start(&model.base_url);
    let mut peer = daemon.connect();
    let mut run = || {
        let id = peer.prompt("warm");
        peer.reply(id, |_| {});
    };
    (0..20).for_each(|_| run());
    let rounds = sized(200, 20);
    let (served, began) = (model.served(), Instant::now());
    (0..rounds).for_each(|_| run());
    let (whole, served) = (began.elapsed(), model.served().checked_sub(served).unwrap());
    let per = |duration: Duration| duration.as_secs_f64() * 1e3 / rounds as f64;
    json!({"turn_ms": per(whole), "model_ms": per(served), "fdatasync_ms": fdatasync_ms(&daemon.cwd)})
}

/// A turn of 50 steps, each one call of `read`: what the daemon takes beside the model's own time.
pub(crate) fn steps() -> Value {
    const STEPS: u32 = 50;
    let model = Model::start(Script { calls: u64::from(STEPS) - 1, ..Script::at_once(20) });
    let daemon = Daemon::start(&model.base_url);
    std::fs::write(daemon.cwd.join("probe"), "one\ntwo\n").unwrap();
    let mut peer = daemon.connect();
    let rounds = sized(20, 2);
    let mut run = |round: usize| {
        let id = peer.prompt(&format!("steps-{round}"));
        peer.reply(id, |_| {});
    };
    run(rounds);
    let (served, began) = (model.served(), Instant::now());
    (0..rounds).for_each(&mut run);
    let (whole, served) = (began.elapsed(), model.served().checked_sub(served).unwrap());
    let per = |duration: Duration| duration.as_secs_f64() * 1e3 / rounds as f64;
    let overhead = per(whole.checked_sub(served).unwrap());
    json!({
        "steps": STEPS, "turn_ms": per(whole), "model_ms": per(served), "overhead_ms": overhead,
        "overhead_ms_a_step": overhead / f64::from(STEPS),
    })
}

fn fdatasync_ms(directory: &std::path::Path) -> f64 {
    use std::io::Write as _;
    let mut file = std::fs::File::create(directory.join("probe")).unwrap();
    let mut samples: Vec<f64> = (0..100)
        .map(|_| {
            file.write_all(&[b'x'; 2000]).unwrap();
            let began = Instant::now();
            file.sync_data().unwrap();
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    quantile(&samples, 0.5)
}

/// From the model server's write to the client's read of the same text.
pub(crate) fn latency() -> Value {
    let deltas = sized(500, 50);
    let model = Model::start(Script {
        deltas,
        pause: Duration::from_millis(5),
        batch: 1,
        stamped: true,
        calls: 0,
        width: 0,
    });
    let daemon = Daemon::start(&model.base_url);
    let mut peer = daemon.connect();
    let mut delays = Vec::new();
    let id = peer.prompt("latency");
    peer.reply(id, |line| delays.extend(delays_of(line)));
    delays.sort_by(f64::total_cmp);
    json!({"deltas": delays.len(), "p50_ms": quantile(&delays, 0.5), "p99_ms": quantile(&delays, 0.99), "goal_p50_ms": 1})
}

/// How long each stamp in a delta's text was on its way, in milliseconds.
pub(crate) fn delays_of(line: &str) -> Vec<f64> {
    let now = now_ns();
    let Some((_, text)) = line.split_once("\"type\":\"text-delta\"") else { return Vec::new() };
    let Some((_, text)) = text.split_once("\"text\":\"") else { return Vec::new() };
    let stamps = text.split([' ', '"']).map_while(|stamp| stamp.parse::<u128>().ok());
    stamps.map(|stamp| now.saturating_sub(stamp) as f64 / 1e6).collect()
}

/// A turn of 5,000 deltas as fast as the model writes.
pub(crate) fn deltas() -> Value {
    let deltas = sized(5_000, 5_000);
    let model =
        Model::start(Script { deltas, pause: Duration::ZERO, batch: 50, stamped: false, calls: 0, width: 0 });
    let daemon = Daemon::start(&model.base_url);
    let mut peer = daemon.connect();
    let rounds = sized(20, 3);
    let mut rates: Vec<f64> = (0..rounds)
        .map(|_| {
            let mut characters = 0;
            let began = Instant::now();
            let id = peer.prompt("fast");
            peer.reply(id, |line| characters += text_len(line));
            assert_eq!(characters, deltas * 5, "the deltas are the text");
            deltas as f64 / began.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    json!({"deltas_per_second_p50": quantile(&rates, 0.5), "goal": 200_000})
}

fn text_len(line: &str) -> usize {
    let Some((_, text)) = line.split_once("\"type\":\"text-delta\"") else { return 0 };
    let Some((_, text)) = text.split_once("\"text\":\"") else { return 0 };
    text.find('"').unwrap_or(0)
}

/// A million deltas from one model stream: the daemon's CPU time.
pub(crate) fn million() -> Value {
    let deltas = sized(1_000_000, 100_000);
    let model =
        Model::start(Script { deltas, pause: Duration::ZERO, batch: 20, stamped: false, calls: 0, width: 0 });
    let daemon = Daemon::start(&model.base_url);
    let mut peer = daemon.connect();
    let before = daemon.cpu();
    let began = Instant::now();
    let id = peer.prompt("million");
    let mut characters = 0;
    peer.reply(id, |line| characters += text_len(line));
    assert_eq!(characters, deltas * 5, "the deltas are the text");
    let cpu = daemon.cpu().checked_sub(before).unwrap();
    json!({"deltas": deltas, "cpu_s": cpu.as_secs_f64(), "wall_s": began.elapsed().as_secs_f64(), "goal_cpu_s": 3})
}

/// 100 sessions of 200 deltas, 10 ms apart, each on a connection of its own.
pub(crate) fn sessions() -> Value {
    let (count, deltas, pause) = (sized(100, 10), sized(200, 20), Duration::from_millis(10));
    let model = Model::start(Script { deltas, pause, batch: 1, stamped: true, calls: 0, width: 0 });
    let daemon = Daemon::start(&model.base_url);
    let mut peers: Vec<Peer> = (0..count).map(|_| daemon.connect()).collect();
    let before = daemon.cpu();
    let began = Instant::now();
    let threads: Vec<_> = peers
        .drain(..)
        .enumerate()
        .map(|(at, mut peer)| {
            std::thread::spawn(move || {
                let mut delays = Vec::new();
                let id = peer.prompt(&format!("s{at}"));
                peer.reply(id, |line| delays.extend(delays_of(line)));
                delays
            })
        })
        .collect();
    let mut delays: Vec<f64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let (whole, cpu) = (began.elapsed(), daemon.cpu().checked_sub(before).unwrap());
    delays.sort_by(f64::total_cmp);
    let ideal = pause * u32::try_from(deltas).unwrap();
    let (ratio, p99) = (whole.as_secs_f64() / ideal.as_secs_f64(), quantile(&delays, 0.99));
    json!({
        "sessions": count, "ideal_s": ideal.as_secs_f64(), "whole_s": whole.as_secs_f64(),
        "over_ideal": ratio, "over_ideal_goal": 1.1,
        "delay_p50_ms": quantile(&delays, 0.5), "delay_p99_ms": p99, "delay_p99_goal_ms": 10.0,
        "cpu_s": cpu.as_secs_f64(), "cpu_goal_s": 1.0,
        "met": ratio <= 1.1 && p99 <= 10.0 && cpu.as_secs_f64() <= 1.0,
    })
}
