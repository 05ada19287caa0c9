//! Starting a daemon when a command needs one and none is there. Racing commands start one among them: a lock, another
//! look, then the start.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::discover::{self, Found, Search};
use super::{Failure, Globals, exit, refusal, tell};
use crate::config::{Config, Environment, Loaded};
use crate::process::inherited;

/// A daemon that a client has started ends after so long without clients and turns.
const IDLE_EXIT: &str = "15m";

/// A daemon is ready within this, or has failed.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Another command may be starting one; it needs no longer than that.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How often to look whether the daemon is there.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Lines of a failed daemon's log that are shown.
const TAIL_LINES: usize = 10;

/// End of a failed daemon's log that is read, in bytes.
const TAIL_BYTES: u64 = 16 * 1024;

/// Variables that the daemon gets as they are; with them `LC_*`, `XDG_*`, `DSHD_*` and those that providers name.
const PASSED: [&str; 14] = [
    "HOME",
    "USER",
    "PATH",
    "LANG",
    "TZ",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Variables of this client alone.
const KEPT: [&str; 3] = ["DSHD_CONNECT", "DSHD_TOKEN", "DSHD_TOKEN_FILE"];

/// Base URLs of the built-in providers, beside the keys that the configuration names.
const BASE_URLS: [&str; 3] = ["DEEPSEEK_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"];

/// Starts a daemon, or finds the one that somebody else has started meanwhile.
///
/// # Errors
/// What the daemon said when it did not become ready.
pub(super) async fn start(globals: &Globals, loaded: &Loaded) -> Result<Found, Failure> {
    let data_dir = &loaded.paths.data_dir;
    make_private(data_dir)?;
    make_private(&loaded.paths.logs)?;
    let _lock = lock(&data_dir.join("autostart.lock")).await?;
    if let Search::Found(found) = look(globals, loaded).await? {
        return Ok(*found);
    }
    let log = loaded.paths.logs.join("autostart.log");
    let mut child = if discover::is_held(data_dir) {
        // Somebody else's is on its way; it is only waited for.
        None
    } else {
        Some(spawn(globals, loaded, &log)?)
    };
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        if let Search::Found(found) = look(globals, loaded).await? {
            if let Some(child) = child {
                mark(data_dir, child.id());
                tell::remark(
                    globals,
                    &format!("started dshd (pid {}); it stops after 15 idle minutes", child.id()),
                );
            }
            return Ok(*found);
        }
        if let Some(status) = child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
            return Err(failed(&format!("it ended with {status}"), &log));
        }
        if Instant::now() >= deadline {
            return Err(failed("it was not ready within 5 s", &log));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Whether the daemon with this pid was started by a client, and not by a person or a service manager.
pub(super) fn was_autostarted(data_dir: &Path, pid: u32) -> bool {
    fs::read_to_string(marker(data_dir)).is_ok_and(|text| text.trim() == pid.to_string())
}

fn marker(data_dir: &Path) -> PathBuf {
    data_dir.join("autostart.pid")
}

fn mark(data_dir: &Path, pid: u32) {
    if let Err(error) = fs::write(marker(data_dir), format!("{pid}\n")) {
        // Without the mark the daemon is taken for a person's, and never replaced.
        tracing::warn!(%error, "cannot note that dshd was started by a client");
    }
}

async fn look(globals: &Globals, loaded: &Loaded) -> Result<Search, Failure> {
    discover::search(globals, loaded)
        .await
        .map_err(|(target, error)| refusal::connect(&target, error, loaded))
}

async fn lock(path: &Path) -> Result<File, Failure> {
    let open = || OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = open().map_err(|error| cannot(path, &error))?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(LOOK_EVERY).await,
            Err(TryLockError::WouldBlock) => {
                let message = format!("another command holds {} for over 10 s", path.display());
                return Err(Failure::new(exit::UNREACHABLE, "unreachable", message)
                    .with_help("dshd serve, to see what keeps a daemon from starting"));
            }
            Err(TryLockError::Error(error)) => return Err(cannot(path, &error)),
        }
    }
}

fn spawn(globals: &Globals, loaded: &Loaded, log: &Path) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(|error| cannot(Path::new("dshd"), &error))?;
    let output = fresh_log(log).map_err(|error| cannot(log, &error))?;
    let errors = output.try_clone().map_err(|error| cannot(log, &error))?;
    let mut command = Command::new(&program);
    command
        .args(["serve", "--own-session", "--idle-exit", IDLE_EXIT, "--data-dir"])
        .arg(&loaded.paths.data_dir);
    if let Some(config) = &globals.args.config {
        command.arg("--config").arg(globals.environment.cwd().join(config));
    }
    // A directory named on the command line has a daemon of its own, beside the one on the user's socket.
    if globals.args.data_dir.is_some() && !loaded.sources.contains_key("listen") {
        command.arg("--listen").arg(loaded.paths.data_dir.join("run/dshd.sock"));
    }
    command.env_clear().envs(environment(&globals.environment, &loaded.config));
    command.current_dir(&loaded.paths.data_dir).stdin(Stdio::null()).stdout(output).stderr(errors);
    if let Err(error) = inherited::keep_from_children() {
        tracing::debug!(%error, "the daemon may get descriptors of the shell");
    }
    command.spawn().map_err(|error| cannot(&program, &error))
}

/// What a daemon inherits: where things are, the language, proxies, and the keys of its providers. Nothing else of the
/// shell that happened to start it.
fn environment(all: &Environment, config: &Config) -> Vec<(String, String)> {
    let named: Vec<&str> =
        config.providers.values().filter_map(|provider| provider.api_key_env.as_deref()).collect();
    let is_passed = |name: &str| {
        let is_ours = ["LC_", "XDG_", "DSHD_"].iter().any(|prefix| name.starts_with(prefix));
        (is_ours && !KEPT.contains(&name))
            || PASSED.contains(&name)
            || BASE_URLS.contains(&name)
            || named.contains(&name)
    };
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    all.iter().filter(|(name, _)| is_passed(name)).map(owned).collect()
}

/// A new log; the one before is kept beside it.
fn fresh_log(path: &Path) -> io::Result<File> {
    match fs::rename(path, path.with_extension("1.log")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn failed(why: &str, log: &Path) -> Failure {
    let mut message = format!("cannot start dshd: {why}");
    for line in tail(log) {
        message.push_str("\n  ");
        message.push_str(&line);
    }
    Failure::new(exit::UNREACHABLE, "autostart", message)
        .with_help(format!("dshd serve, to see it fail   (log: {})", log.display()))
}

/// The last lines of a file; none when it can't be read.
fn tail(path: &Path) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

fn make_private(dir: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| cannot(dir, &error))
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot start dshd: {}: {error}", path.display());
    Failure::new(exit::UNREACHABLE, "autostart", message).with_help("dshd serve --data-dir DIR")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ProviderConfig;

    #[test]
    fn a_daemon_inherits_places_language_proxies_and_keys_and_nothing_else() {
        let mut config = Config::default();
        let provider = ProviderConfig { api_key_env: Some("MY_KEY".to_owned()), ..ProviderConfig::default() };
        config.providers.insert("mine".to_owned(), provider);
        let all = Environment::of([
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("XDG_RUNTIME_DIR", "/r"),
            ("DSHD_LOG", "debug"),
            ("DSHD_CONNECT", "unix:/x"),
            ("DSHD_TOKEN", "secret"),
            ("https_proxy", "p"),
            ("MY_KEY", "k"),
            ("DEEPSEEK_BASE_URL", "u"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("SSH_AUTH_SOCK", "/a"),
        ]);
        let passed: Vec<String> = environment(&all, &config).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            passed,
            ["DEEPSEEK_BASE_URL", "DSHD_LOG", "HOME", "LC_ALL", "MY_KEY", "XDG_RUNTIME_DIR", "https_proxy"]
        );
    }

    #[test]
    fn a_failed_start_shows_the_last_lines_of_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("autostart.log");
        let lines: Vec<String> = (0..30).map(|n| format!("line {n}\n\n")).collect();
        fs::write(&log, lines.concat()).unwrap();
        let failure = failed("it ended", &log);
        assert!(
            failure.message.starts_with("cannot start dshd: it ended\n  line 20\n"),
            "{}",
            failure.message
        );
        assert!(failure.message.ends_with("\n  line 29"), "{}", failure.message);
    }

    #[test]
    fn the_log_of_the_start_before_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("autostart.log");
        for text in ["first", "second"] {
            io::Write::write_all(&mut fresh_log(&log).unwrap(), text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&log).unwrap(), "second");
        assert_eq!(fs::read_to_string(dir.path().join("autostart.1.log")).unwrap(), "first");
    }

    #[test]
    fn only_the_daemon_that_a_client_started_is_marked() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!was_autostarted(dir.path(), 7));
        mark(dir.path(), 7);
        assert!(was_autostarted(dir.path(), 7));
        assert!(!was_autostarted(dir.path(), 8));
    }
}
