//! What a daemon costs before it does anything: time to the first reply, memory at rest.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::{Daemon, Peer};
use crate::model::{Model, Script};
use crate::{quantile, sized};

const ANSWER: Script =
    Script { deltas: 20, pause: Duration::ZERO, batch: 20, stamped: false, calls: 0, width: 0 };

/// The yardstick: binds a Unix socket and answers one line.
pub(crate) fn minimal_server(path: &str) {
    let listener = UnixListener::bind(path).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
    stream.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n").unwrap();
}

/// From `exec` to the reply to `initialize`, beside the yardstick's.
pub(crate) fn start() -> Value {
    let rounds = sized(15, 3);
    let home = TempDir::new().unwrap();
    let (mut ours, mut minimal) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let socket = home.path().join(format!("m{round}"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--minimal-server").arg(&socket).stdout(Stdio::null());
        minimal.push(first_reply(command, &socket, &json!({})));
        let socket = home.path().join(format!("d{round}"));
        let own = home.path().join(format!("home{round}"));
        std::fs::create_dir(&own).unwrap();
        let command = Daemon::command(&own, &socket, "http://127.0.0.1:1");
        ours.push(first_reply(command, &socket, &json!({"cwd": own})));
    }
    ours.sort_by(f64::total_cmp);
    minimal.sort_by(f64::total_cmp);
    let (ours, minimal) = (quantile(&ours, 0.5), quantile(&minimal, 0.5));
    json!({"p50_ms": ours, "minimal_p50_ms": minimal, "over_minimal_ms": ours - minimal, "goal_over_minimal_ms": 10})
}

fn first_reply(mut command: Command, socket: &Path, params: &Value) -> f64 {
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    let stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
        assert!(began.elapsed() < Duration::from_secs(10), "nothing listens");
    };
    Peer::new(stream).call("initialize", params);
    let took = began.elapsed().as_secs_f64() * 1e3;
    let _ = child.kill();
    let _ = child.wait();
    took
}

/// Memory after start and one turn, and what a loaded idle session adds.
pub(crate) fn memory() -> Value {
    let model = Model::start(ANSWER);
    let daemon = Daemon::start(&model.base_url);
    let mut peer = daemon.connect();
    let turn = |peer: &mut Peer, session: &str| {
        let id = peer.prompt(session);
        peer.reply(id, |_| {});
    };
    turn(&mut peer, "first");
    let after_one = daemon.memory_kib();
    for session in 0..20 {
        turn(&mut peer, &format!("warm{session}"));
    }
    let warm = daemon.memory_kib();
    let count = sized(200, 40);
    for session in 0..count {
        turn(&mut peer, &format!("s{session}"));
    }
    let loaded = daemon.memory_kib();
    daemon.stop();
    let each = (loaded.saturating_sub(warm)) / count as u64;
    json!({
        "after_start_and_one_turn_kib": after_one, "goal_after_one_turn_kib": 12 * 1024,
        "loaded_idle_session_kib": each, "goal_loaded_idle_session_kib": 64,
    })
}
