//! Connections that say nothing, and clients that vanish.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{MANY, raise_descriptors};
use crate::daemon::Daemon;
use crate::model::{Model, Script};
use crate::{quantile, sized};

/// The middle of some turns' times, in milliseconds.
fn latency(daemon: &Daemon) -> f64 {
    let mut peer = daemon.connect();
    let mut times: Vec<f64> = (0..60)
        .map(|_| {
            let began = Instant::now();
            let id = peer.prompt("latency");
            peer.reply(id, |_| {});
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    quantile(&times, 0.5)
}

/// 10,000 idle initialized connections.
pub(crate) fn connections() -> Value {
    raise_descriptors();
    let count = sized(9_800, 500);
    let model = Model::start(Script::at_once(20));
    let daemon = Daemon::start_with(&model.base_url, &MANY);
    let alone = latency(&daemon);
    let before = daemon.memory_kib();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"cwd": daemon.cwd}});
    let idle: Vec<UnixStream> = (0..count)
        .map(|_| {
            let mut stream = daemon.stream();
            stream.write_all(format!("{hello}\n").as_bytes()).unwrap();
            let mut line = String::new();
            // The reply is all that comes, so that nothing is left in a buffer.
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert!(line.contains("serverInfo"), "{line}");
            stream
        })
        .collect();
    let each = (daemon.memory_kib().saturating_sub(before)) as f64 / count as f64;
    let (cpu, began) = (daemon.cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let percent = daemon.cpu().saturating_sub(cpu).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    let among = latency(&daemon);
    drop(idle);
    json!({
        "connections": count, "kib_each": each, "kib_each_goal": 16,
        "cpu_percent": percent, "cpu_percent_goal": 2,
        "turn_alone_ms": alone, "turn_among_them_ms": among, "ratio": among / alone,
        "met": each <= 16.0 && percent < 2.0 && among / alone < 1.25,
    })
}

/// Clients that vanish in the middle of a stream.
pub(crate) fn killed() -> Value {
    let count = sized(1000, 60);
    let script =
        Script { deltas: 100, pause: Duration::from_millis(2), batch: 1, stamped: false, calls: 0, width: 0 };
    let model = Model::start(script);
    let daemon = Daemon::start_with(&model.base_url, &MANY);
    let mut steady = daemon.connect();
    let id = steady.prompt("steady");
    steady.reply(id, |_| {});
    let before = daemon.descriptors();
    for at in 0..count {
        let mut peer = daemon.connect();
        let text = json!([{ "type": "text", "text": "go" }]);
        let session = format!("s{}", at % 50);
        peer.send(
            "session/prompt",
            &json!({ "sessionId": session, "contentBlocks": text, "whenBusy": "queue" }),
        );
        // After none to a few of its lines.
        for _ in 0..at % 7 {
            peer.next();
        }
    }
    for at in 0..50.min(count) {
        steady.call("session/close", &json!({ "sessionId": format!("s{at}") }));
    }
    let began = Instant::now();
    let (descriptors, status) = loop {
        let now = daemon.descriptors();
        let status = steady.call("server/status", &json!({}))["result"].take();
        let gone = status["counts"]["connections"] == 1 && status["counts"]["turnsRunning"] == 0;
        // A descriptor more or less is one of the store's.
        if (gone && now <= before + 1) || began.elapsed() > Duration::from_secs(20) {
            break (now, status);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let counts = &status["counts"];
    let in_flight = status["usage"]["in_flight_total"].as_u64().unwrap();
    json!({
        "killed": count, "descriptors_before": before, "descriptors_after": descriptors,
        "connections_left": counts["connections"].as_u64().unwrap() - 1,
        "turns_left": counts["turnsRunning"], "in_flight_left": in_flight,
        "met": descriptors <= before + 1 && counts["connections"] == 1 && counts["turnsRunning"] == 0 && in_flight == 0,
    })
}
