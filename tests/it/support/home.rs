//! A user's home of one test: HOME, XDG directories, data directory and a workspace, all in a temporary directory.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::within;

/// The variable that says what confines commands.
pub(crate) const SANDBOX: &str = "DSHD_TOOLS__SANDBOX";

/// A home. Cheap to clone; the last clone removes it and ends a daemon that was auto-started in it.
#[derive(Clone, Debug)]
pub(crate) struct Home(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: TempDir,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Fails the test unless the command ended with this code.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The only document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The objects on stdout, one a line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// What a daemon says of itself in `daemon.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct DaemonFile {
    pub(crate) pid: i32,
    pub(crate) listeners: Vec<Listener>,
}

/// A line of `daemon.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Listener {
    pub(crate) address: String,
}

impl Home {
    /// An empty home with a workspace that holds `notes.txt` and `src/`.
    pub(crate) fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// The same in a directory below this one.
    pub(crate) fn within(base: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("dshd-it-").tempdir_in(base).unwrap();
        let home = Self(Arc::new(Inner { dir }));
        for path in ["home/.config/dshd", "run", "data", "work/src"] {
            fs::create_dir_all(home.path(path)).unwrap();
        }
        fs::write(home.work().join("notes.txt"), "one\ntwo\n").unwrap();
        home
    }

    /// A path in the temporary directory.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.0.dir.path().join(relative)
    }

    /// The workspace, which is also where commands run.
    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// The Unix socket where clients look by default.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run/dshd/dshd.sock")
    }

    /// Writes the user's configuration file.
    pub(crate) fn configure(&self, toml: &str) {
        fs::write(self.path("home/.config/dshd/dshd.toml"), toml).unwrap();
    }

    /// `dshd` in this home: no variable but those that place it here.
    pub(crate) fn dshd<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dshd"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("DSHD_DATA_DIR", self.data())
            // Under bubblewrap commands see pids of their own, which tests could not find; it has tests of its own.
            // By hand, others can be chosen.
            .env(SANDBOX, std::env::var_os("DSHD_IT_SANDBOX").unwrap_or_else(|| "landlock".into()))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs `dshd` to its end.
    pub(crate) async fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        finish(self.dshd(args), b"").await
    }

    /// Runs `dshd` with something on its stdin.
    pub(crate) async fn run_with<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        stdin: &[u8],
    ) -> Ran {
        let mut command = self.dshd(args);
        command.stdin(Stdio::piped());
        finish(command, stdin).await
    }

    /// What the daemon of this home says of itself, if it has written it.
    pub(crate) fn daemon_file(&self) -> Option<DaemonFile> {
        self.0.daemon_file()
    }
}

/// Runs a command to its end.
pub(crate) async fn finish(mut command: Command, stdin: &[u8]) -> Ran {
    let mut child = command.spawn().unwrap();
    let pipe = child.stdin.take();
    let feeding = async {
        if let Some(mut pipe) = pipe {
            // A command that does not read its stdin is a result, not a failure of the test.
            let _ = pipe.write_all(stdin).await;
        }
    };
    let (output, ()) = within("the command", async { tokio::join!(child.wait_with_output(), feeding) }).await;
    let output = output.unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Inner {
    fn daemon_file(&self) -> Option<DaemonFile> {
        let text = fs::read(self.dir.path().join("data/daemon.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Whether a daemon holds the data directory.
    fn is_held(&self) -> bool {
        fs::File::open(self.dir.path().join("data/LOCK")).is_ok_and(|lock| lock.try_lock().is_err())
    }
}

impl Drop for Inner {
    /// Ends a daemon that a command of this test has started: nobody else can.
    fn drop(&mut self) {
        let Some(daemon) = self.daemon_file().filter(|_| self.is_held()) else { return };
        if let Some(pid) = rustix::process::Pid::from_raw(daemon.pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
