//! Peers over TCP that hold their place and never say who they are, and one that does.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::raise_descriptors;
use crate::daemon::{Daemon, Peer};
use crate::model::{Model, Script};
use crate::{quantile, sized};

const WAVES: usize = 40;

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A token's secret, and the daemon at a Unix socket and a TCP port of its choice.
fn start(home: &Path, base_url: &str) -> (String, Killed, SocketAddr) {
    let socket = home.join("s");
    let mut create = Command::new(env!("CARGO_BIN_EXE_dshd"));
    create
        .env_clear()
        .env("HOME", home)
        .args(["token", "create", "bench", "--data-dir"])
        .arg(home.join("data"));
    let secret = String::from_utf8(create.output().unwrap().stdout).unwrap().trim().to_owned();
    let child = Daemon::command(home, &socket, base_url)
        .args(["--listen", "tcp:127.0.0.1:0"])
        .env("DSHD_TOOLS__ALLOW_UNSANDBOXED_REMOTE", "true")
        .spawn()
        .unwrap();
    let child = Killed(child);
    let began = Instant::now();
    let file = home.join("data/daemon.json");
    let address = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let said: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut tcp = said["listeners"].as_array().into_iter().flatten();
        let found = tcp.find_map(|one| one["address"].as_str()?.strip_prefix("tcp:")?.parse().ok());
        if let Some(address) = found {
            break address;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "the daemon does not listen");
        std::thread::sleep(Duration::from_millis(1));
    };
    (secret, child, address)
}

/// One that begins a request and never ends it, from an address of its own.
fn stranger(number: usize, to: SocketAddr) -> Option<Socket> {
    let [_, a, b, c] = u32::try_from(number).unwrap().to_be_bytes();
    let from = Ipv4Addr::new(127, a.wrapping_add(1), b, c.max(1));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).ok()?;
    // It may have been closed already.
    let _ = socket.send(b"{");
    Some(socket)
}

/// Connects, shows the token and says hello, and is answered.
fn come_in(to: SocketAddr, secret: &str) -> Option<()> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_nodelay(true).ok()?;
    let lines = format!(
        "{}\n{}\n",
        json!({"id": 1, "method": "authenticate", "params": {"token": secret}}),
        json!({"id": 2, "method": "initialize", "params": {}}),
    );
    stream.write_all(lines.as_bytes()).ok()?;
    let mut said = BufReader::new(stream).lines();
    let (first, second) = (said.next()?.ok()?, said.next()?.ok()?);
    let good = first.contains("\"result\"") && second.contains("serverInfo");
    good.then_some(())
}

fn descriptors(child: &Killed) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", child.0.id())).unwrap().count()
}

/// 20,000 of them in waves, from many sources.
pub(crate) fn slow() -> Value {
    raise_descriptors();
    let count = sized(20_000, 5_000);
    let model = Model::start(Script::at_once(20));
    let home = TempDir::new().unwrap();
    let (secret, child, address) = start(home.path(), &model.base_url);
    let mut owner = Peer::new(std::os::unix::net::UnixStream::connect(home.path().join("s")).unwrap());
    owner.call("initialize", &json!({}));
    let before = descriptors(&child);

    let flood = std::thread::spawn(move || {
        let mut last = Vec::new();
        for wave in 0..WAVES {
            let each = count / WAVES;
            let now: Vec<_> = (0..each).filter_map(|at| stranger(wave * each + at, address)).collect();
            // The wave before stays until this one is there.
            drop(std::mem::replace(&mut last, now));
        }
        last
    });
    let (mut times, mut again, mut held_max) = (Vec::new(), 0_u64, 0);
    while !flood.is_finished() {
        // Whoever lost its place before its token had arrived comes again, as clients do; all of it is its time.
        let began = Instant::now();
        while come_in(address, &secret).is_none() {
            again += 1;
        }
        times.push(began.elapsed().as_secs_f64() * 1e3);
        let status = owner.call("server/status", &json!({}));
        held_max = held_max.max(status["result"]["usage"]["preauth_connections"].as_u64().unwrap());
    }
    drop(flood.join().unwrap());
    let began = Instant::now();
    let (left, after) = loop {
        let status = owner.call("server/status", &json!({}))["result"].take();
        let left = status["counts"]["connections"].as_u64().unwrap() - 1;
        let after = descriptors(&child);
        if (left == 0 && after <= before + 1) || began.elapsed() > Duration::from_secs(20) {
            break (left, after);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    times.sort_by(f64::total_cmp);
    let (p50, p99) = (quantile(&times, 0.5), quantile(&times, 0.99));
    json!({
        "strangers": count, "good_clients": times.len(), "good_clients_that_came_again": again,
        "initialize_p50_ms": p50, "initialize_p99_ms": p99, "initialize_p99_ms_goal": 200,
        "held_max": held_max, "held_goal": 64,
        "connections_left": left, "descriptors_before": before, "descriptors_after": after,
        "met": p99 <= 200.0 && held_max <= 64 && left == 0 && after <= before + 1,
    })
}
