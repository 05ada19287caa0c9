//! Where a daemon may be, in the order of the manual: a named address first, then what this machine offers.
//!
//! Nothing here starts a daemon; that is `autostart`. Called by `reach`.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{Failure, Globals, exit};
use crate::client::{Address, ConnectError, Stream, Trust};
use crate::config::Loaded;

/// The socket of a daemon that serves a whole machine.
const SYSTEM_SOCKET: &str = "/run/dshd/dshd.sock";

/// Longest wait for a connection. A daemon on this machine takes it at once, even when it is stopped.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// `daemon.json` is small; a larger file is not ours, in bytes.
const DAEMON_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Who said where the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// `--connect` or `--to`.
    Flag,
    /// `DSHD_CONNECT`.
    Variable,
    /// `[client] connect` of the configuration.
    Config,
    /// `daemon.json` in the data directory.
    DaemonFile,
    /// The user's socket.
    UserSocket,
    /// The machine's socket.
    SystemSocket,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "--connect",
            Self::Variable => "DSHD_CONNECT",
            Self::Config => "client.connect in the configuration",
            Self::DaemonFile => "daemon.json",
            Self::UserSocket => "the user's socket",
            Self::SystemSocket => "the machine's socket",
        })
    }
}

/// A place where a daemon may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) origin: Origin,
}

/// What a ready daemon writes into its data directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaemonFile {
    pub(super) pid: u32,
    listeners: Vec<Listener>,
}

#[derive(Clone, Debug, Deserialize)]
struct Listener {
    address: String,
}

impl DaemonFile {
    /// Reads it, if it is there and belongs to us or root.
    pub(super) fn read(data_dir: &Path) -> Option<Self> {
        let path = data_dir.join("daemon.json");
        let meta = fs::metadata(&path).ok()?;
        let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid());
        if !is_ours || meta.len() > DAEMON_FILE_BYTES_MAX {
            return None;
        }
        serde_json::from_slice(&fs::read(&path).ok()?).ok()
    }

    /// Its addresses, those that need no token first.
    fn targets(&self) -> Vec<Target> {
        let mut addresses: Vec<Address> =
            self.listeners.iter().filter_map(|listener| from_here(&listener.address).parse().ok()).collect();
        addresses.sort_by_key(|address| !matches!(address, Address::Unix(_)));
        let target = |address| Target { address, origin: Origin::DaemonFile };
        addresses.into_iter().map(target).collect()
    }
}

/// An address that is all of a machine's, as this machine reaches it.
fn from_here(address: &str) -> String {
    address.replace(":0.0.0.0:", ":127.0.0.1:").replace(":[::]:", ":[::1]:")
}

/// Whether a daemon holds the data directory. Asking takes no lock when one does.
pub(super) fn is_held(data_dir: &Path) -> bool {
    let Ok(lock) = File::open(data_dir.join("LOCK")) else { return false };
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// The address that was named, if one was.
pub(super) fn named(globals: &Globals, loaded: &Loaded) -> Result<Option<Target>, Failure> {
    let config = loaded.config.client.connect.as_deref();
    let said = [
        (Origin::Flag, globals.args.connect.as_deref()),
        (Origin::Variable, globals.environment.get("DSHD_CONNECT")),
        (Origin::Config, config),
    ];
    let Some((origin, text)) = said.into_iter().find_map(|(origin, text)| Some((origin, text?))) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(address) => Ok(Some(Target { address, origin })),
        Err(error) => {
            let code = if origin == Origin::Config { exit::CONFIG } else { exit::USAGE };
            let kind = if origin == Origin::Config { "config" } else { "usage" };
            Err(Failure::new(code, kind, error.to_string()).with_help(format!("mend {origin}")))
        }
    }
}

/// What a look around this machine has found.
#[derive(Debug)]
pub(super) enum Search {
    /// A daemon that takes connections.
    Found(Box<Found>),
    /// None; why, and what else was seen, for the user.
    None(Missing, Vec<String>),
}

/// A daemon that takes connections, and where it is.
pub(super) type Found = (Target, Stream);

/// Why no daemon was found, the most telling reason.
#[derive(Debug)]
pub(super) enum Missing {
    /// A socket is there that we may not use.
    NotAllowed(PathBuf),
    /// A socket is there, and nobody listens.
    Died(PathBuf),
    /// No socket where one would be.
    NoSocket(PathBuf),
}

/// Looks for a daemon on this machine: the one of the data directory, the user's, the machine's.
///
/// # Errors
/// A [`ConnectError`] of a daemon that is there and can't be used.
pub(super) async fn search(globals: &Globals, loaded: &Loaded) -> Result<Search, (Target, ConnectError)> {
    let mut missing = Missing::NoSocket(loaded.paths.socket.clone());
    let mut seen = Vec::new();
    // What this machine's own daemon has, if it has one.
    let ca = Some(loaded.paths.data_dir.join("tls/ca.pem")).filter(|ca| ca.exists());
    let trust = Trust { ca, ..Trust::default() };
    for target in local(globals, loaded) {
        let is_of_file = target.origin == Origin::DaemonFile;
        match Stream::open(&target.address, &trust, CONNECT_TIMEOUT).await {
            Ok(stream) if !is_of_file || is_held(&loaded.paths.data_dir) => {
                return Ok(Search::Found(Box::new((target, stream))));
            }
            Ok(_) => seen.push("daemon.json is stale: another daemon listens there".to_owned()),
            Err(ConnectError::NoSocket { .. }) if is_of_file => {
                seen.push(format!("daemon.json is stale: there is no socket at {}", target.address));
            }
            Err(ConnectError::Tls { problem, .. }) if is_of_file => {
                seen.push(format!("{} can't be used: {problem}", target.address));
            }
            Err(ConnectError::Io { .. }) if is_of_file => {
                seen.push(format!("daemon.json is stale: nobody listens at {}", target.address));
            }
            Err(ConnectError::NoSocket { .. }) => {}
            Err(ConnectError::NobodyListens { path }) => {
                seen.push(format!("{} is stale: nobody listens there", target.address));
                missing.or(Missing::Died(path));
            }
            Err(ConnectError::NotAllowed { path }) => {
                seen.push(format!("not allowed to use {}", target.address));
                missing.or(Missing::NotAllowed(path));
            }
            Err(error) => return Err((target, error)),
        }
    }
    Ok(Search::None(missing, seen))
}

impl Missing {
    /// Keeps the more telling of two reasons, the earlier among equals.
    fn or(&mut self, other: Self) {
        let rank = |missing: &Self| match missing {
            Self::NotAllowed(_) => 2,
            Self::Died(_) => 1,
            Self::NoSocket(_) => 0,
        };
        if rank(&other) > rank(self) {
            *self = other;
        }
    }
}

/// A data directory named on the command line names its daemon; the shared sockets may be another's.
fn local(globals: &Globals, loaded: &Loaded) -> Vec<Target> {
    let file = DaemonFile::read(&loaded.paths.data_dir);
    let mut targets = file.map_or_else(Vec::new, |file| file.targets());
    if globals.args.data_dir.is_none() {
        let user = Address::Unix(loaded.paths.socket.clone());
        if targets.iter().all(|target| target.address != user) {
            targets.push(Target { address: user, origin: Origin::UserSocket });
        }
        let system = Address::Unix(SYSTEM_SOCKET.into());
        if targets.iter().all(|target| target.address != system) {
            targets.push(Target { address: system, origin: Origin::SystemSocket });
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_with(json: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("daemon.json"), json).unwrap();
        dir
    }

    #[test]
    fn the_unix_socket_of_a_daemon_file_comes_first() {
        let dir = data_with(
            r#"{"pid":7,"version":"1","startedAt":"x","listeners":[
                {"kind":"tcp","address":"tcp:127.0.0.1:9"},{"kind":"unix","address":"unix:/s"}]}"#,
        );
        let targets = DaemonFile::read(dir.path()).unwrap().targets();
        let addresses: Vec<String> = targets.iter().map(|target| target.address.to_string()).collect();
        assert_eq!(addresses, ["unix:/s", "tcp:127.0.0.1:9"]);
    }

    #[test]
    fn a_daemon_file_that_is_no_json_is_none() {
        assert!(DaemonFile::read(data_with("{").path()).is_none());
        assert!(DaemonFile::read(Path::new("/nonexistent")).is_none());
    }

    #[test]
    fn a_data_directory_is_held_while_its_lock_is() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_held(dir.path()));
        let lock = File::create(dir.path().join("LOCK")).unwrap();
        assert!(!is_held(dir.path()));
        lock.lock().unwrap();
        assert!(is_held(dir.path()));
    }

    #[test]
    fn the_most_telling_reason_is_kept() {
        let mut missing = Missing::NoSocket("/a".into());
        missing.or(Missing::Died("/b".into()));
        missing.or(Missing::Died("/c".into()));
        assert!(matches!(&missing, Missing::Died(path) if path == Path::new("/b")));
        missing.or(Missing::NotAllowed("/d".into()));
        missing.or(Missing::Died("/e".into()));
        assert!(matches!(missing, Missing::NotAllowed(_)));
    }
}
