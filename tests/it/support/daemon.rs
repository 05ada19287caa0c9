//! A daemon of one test: the built program, started and awaited, killed when dropped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, PipeReader};
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::{Home, PATIENCE, Peer, within};

/// A running `dshd serve`.
#[derive(Debug)]
pub(crate) struct Daemon {
    home: Home,
    child: Child,
    stderr: Arc<Stderr>,
}

/// What the daemon has said so far; a thread of its own reads it, so that the pipe never fills.
#[derive(Debug, Default)]
struct Stderr {
    said: Mutex<Said>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Said {
    lines: Vec<String>,
    ended: bool,
}

impl Daemon {
    /// Serves the default socket of a new home.
    pub(crate) fn start() -> Self {
        Self::start_in(&Home::new(), [] as [&str; 0])
    }

    /// Serves the default socket of a new home with this configuration file.
    pub(crate) fn configured(toml: &str) -> Self {
        let home = Home::new();
        home.configure(toml);
        Self::start_in(&home, [] as [&str; 0])
    }

    /// Runs `dshd serve` with these arguments in a home, and waits until it is ready.
    pub(crate) fn start_in<S: AsRef<OsStr>>(home: &Home, args: impl IntoIterator<Item = S>) -> Self {
        let mut command = home.dshd(["serve"]);
        command.args(args);
        Self::spawn(home, command)
    }

    /// Runs a command that serves, and waits until it is ready.
    pub(crate) fn spawn(home: &Home, mut command: Command) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let child = command.stdout(std::process::Stdio::null()).stderr(writer).spawn().unwrap();
        // The command holds the pipe's write side; without this the reader never sees its end.
        drop(command);
        let stderr = Arc::new(Stderr::default());
        let collected = Arc::clone(&stderr);
        std::thread::spawn(move || collected.collect(reader));
        let daemon = Self { home: home.clone(), child, stderr };
        daemon.wait_for_line("ready");
        daemon
    }

    /// Waits until a line with `part` was said on stderr, and returns it.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, part: &str) -> String {
        let find = |said: &Said| said.lines.iter().find(|line| line.contains(part)).cloned();
        let said = self.stderr.said.lock().unwrap();
        let (said, _) = self
            .stderr
            .changed
            .wait_timeout_while(said, PATIENCE, |said| !said.ended && find(said).is_none())
            .unwrap();
        find(&said).unwrap_or_else(|| panic!("no line with {part:?} on stderr:\n{}", said.lines.join("\n")))
    }

    /// All that was said on stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.said.lock().unwrap().lines.join("\n")
    }

    /// Where it lives.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().and_then(|pid| i32::try_from(pid).ok()).expect("it runs")
    }

    /// `host:port` of its TCP listener.
    pub(crate) fn tcp(&self) -> String {
        let file = self.home.daemon_file().expect("daemon.json");
        let tcp = file.listeners.iter().find_map(|listener| listener.address.strip_prefix("tcp:"));
        tcp.expect("a TCP listener").to_owned()
    }

    /// A peer on its Unix socket that has said nothing yet.
    pub(crate) async fn connect(&self) -> Peer {
        Peer::unix(&self.home.socket()).await
    }

    /// A peer on its Unix socket that has initialized itself in the workspace.
    pub(crate) async fn peer(&self) -> Peer {
        let mut peer = self.connect().await;
        peer.initialize(serde_json::json!({ "cwd": self.home.work() })).await;
        peer
    }

    /// The same, without the text as it is written.
    pub(crate) async fn peer_without_deltas(&self) -> Peer {
        let mut peer = self.connect().await;
        peer.initialize(serde_json::json!({ "cwd": self.home.work(), "deltas": false })).await;
        peer
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn exited(&mut self) -> ExitStatus {
        within("the daemon's end", self.child.wait()).await.unwrap()
    }

    /// Asks it to end as a service manager does, and waits.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.exited().await
    }

    /// Kills it without warning, and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        self.exited().await;
    }
}

impl Stderr {
    fn collect(&self, reader: PipeReader) {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            self.said.lock().unwrap().lines.push(line);
            self.changed.notify_all();
        }
        self.said.lock().unwrap().ended = true;
        self.changed.notify_all();
    }
}
