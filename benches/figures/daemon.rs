//! The built daemon under measurement, and a plain blocking client of it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A daemon in directories of its own; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    home: TempDir,
    socket: PathBuf,
    pub(crate) cwd: PathBuf,
}

impl Daemon {
    /// Starts it with `model` as its only provider and waits until it listens.
    pub(crate) fn start(base_url: &str) -> Self {
        Self::prepared(base_url, |_data| {}, |_elapsed| {})
    }

    /// The same with more variables.
    pub(crate) fn start_with(base_url: &str, variables: &[(&str, &str)]) -> Self {
        Self::begin(base_url, variables, |_data| {}, |_elapsed| {})
    }

    /// The same on a data directory that is filled before. `ready` is told how long it took until it listened.
    pub(crate) fn prepared(
        base_url: &str,
        fill: impl FnOnce(&std::path::Path),
        ready: impl FnOnce(Duration),
    ) -> Self {
        Self::begin(base_url, &[], fill, ready)
    }

    fn begin(
        base_url: &str,
        variables: &[(&str, &str)],
        fill: impl FnOnce(&std::path::Path),
        ready: impl FnOnce(Duration),
    ) -> Self {
        let home = TempDir::new().unwrap();
        let (socket, cwd) = (home.path().join("s"), home.path().join("cwd"));
        std::fs::create_dir(&cwd).unwrap();
        fill(&home.path().join("data"));
        let began = Instant::now();
        let child =
            Self::command(home.path(), &socket, base_url).envs(variables.iter().copied()).spawn().unwrap();
        let daemon = Self { child, home, socket, cwd };
        while UnixStream::connect(&daemon.socket).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "the daemon does not listen");
            std::thread::sleep(Duration::from_micros(200));
        }
        ready(began.elapsed());
        daemon
    }

    /// The command that starts it.
    pub(crate) fn command(home: &std::path::Path, socket: &std::path::Path, base_url: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dshd"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("BENCH_KEY", "sk-bench")
            .env("DSHD_PROVIDERS__BENCH__KIND", "chat")
            .env("DSHD_PROVIDERS__BENCH__BASE_URL", base_url)
            .env("DSHD_PROVIDERS__BENCH__API_KEY_ENV", "BENCH_KEY")
            .env("DSHD_DEFAULT_PROVIDER", "bench")
            .env("DSHD_DEFAULT_MODEL", "bench-model")
            .env("DSHD_LOG__LEVEL", "warn")
            .env("DSHD_LIMITS__CONNECTIONS_PER_UID", "1024")
            .args(["serve", "--data-dir"])
            .arg(home.join("data"))
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    pub(crate) fn connect(&self) -> Peer {
        let mut peer = Peer::new(UnixStream::connect(&self.socket).unwrap());
        peer.call("initialize", &json!({"cwd": self.cwd}));
        peer
    }

    /// Where its sessions are.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// A stream on which nothing was said.
    pub(crate) fn stream(&self) -> UnixStream {
        UnixStream::connect(&self.socket).unwrap()
    }

    /// Descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// CPU time used so far, user and system.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    /// Memory in KiB: what is resident and its own, without shared file pages.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        field("VmRSS:")
    }

    /// `fdatasync` and `fsync` calls are not counted by the kernel; bytes written to storage are.
    pub(crate) fn stop(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection.
pub(crate) struct Peer {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    next_id: u64,
    line: String,
}

impl Peer {
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let reader = BufReader::with_capacity(1 << 16, stream.try_clone().unwrap());
        Self { stream, reader, next_id: 0, line: String::new() }
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.next_id
    }

    pub(crate) fn prompt(&mut self, session: &str) -> u64 {
        let blocks = json!([{"type": "text", "text": "go"}]);
        self.send("session/prompt", &json!({"sessionId": session, "contentBlocks": blocks}))
    }

    /// The next line.
    pub(crate) fn next(&mut self) -> &str {
        self.line.clear();
        assert!(self.reader.read_line(&mut self.line).unwrap() > 0, "the daemon closed the connection");
        &self.line
    }

    /// Reads on to the reply to `id`; hands every other line to `each`.
    pub(crate) fn reply(&mut self, id: u64, mut each: impl FnMut(&str)) -> Value {
        let marker = format!("\"id\":{id},");
        loop {
            let line = self.next();
            if line.contains(&marker) && !line.contains("\"method\"") {
                let reply: Value = serde_json::from_str(line).unwrap();
                assert!(reply.get("error").is_none(), "{reply}");
                return reply;
            }
            each(line);
        }
    }

    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.reply(id, |_| {})
    }
}
