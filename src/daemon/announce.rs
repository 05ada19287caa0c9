//! Telling the world that the daemon is ready: `daemon.json`, a line a listener on stderr, the service manager.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sd_notify::NotifyState;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::listener::Listener;
use crate::telemetry;

/// The file's name in the data directory.
const FILE: &str = "daemon.json";

/// What clients read to find the daemon.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Announcement {
    pid: u32,
    version: &'static str,
    started_at: String,
    listeners: Vec<Address>,
}

#[derive(Debug, Serialize)]
struct Address {
    kind: &'static str,
    address: String,
}

/// The file is there until this is dropped, unless somebody else's has taken its place.
#[derive(Debug)]
pub(super) struct Announced {
    path: PathBuf,
}

#[derive(Deserialize)]
struct Owner {
    pid: u32,
}

impl Announcement {
    /// For bound listeners, with their real ports.
    pub(super) fn of(listeners: &[Listener]) -> Self {
        let address = |listener: &Listener| Address { kind: listener.kind(), address: listener.address() };
        Self {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            started_at: format!("{:.3}", Timestamp::now()),
            listeners: listeners.iter().map(address).collect(),
        }
    }

    /// Writes the file, whole or not at all.
    pub(super) fn publish(&self, data_dir: &Path) -> io::Result<Announced> {
        let path = data_dir.join(FILE);
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        config::write_private(&path, &text)?;
        Ok(Announced { path })
    }

    /// Says `ready` on stderr, a line a listener, and to the service manager.
    pub(super) fn say_ready(&self) {
        for listener in &self.listeners {
            telemetry::say(&format!("ready {}", listener.address));
        }
        notify(NotifyState::Ready);
    }
}

/// Tells the service manager that the daemon stops.
pub(super) fn say_stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager can't be told");
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let owner = fs::read(&self.path).ok().and_then(|text| serde_json::from_slice::<Owner>(&text).ok());
        if owner.is_some_and(|owner| owner.pid == std::process::id())
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "daemon.json can't be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement() -> Announcement {
        let address = Address { kind: "tcp", address: "tcp:127.0.0.1:40211".to_owned() };
        Announcement { listeners: vec![address], ..Announcement::of(&[]) }
    }

    #[test]
    fn the_file_is_there_while_the_daemon_is() {
        let dir = tempfile::tempdir().unwrap();
        let announced = announcement().publish(dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["pid"], std::process::id());
        assert_eq!(value["listeners"][0]["address"], "tcp:127.0.0.1:40211");
        assert!(value["startedAt"].as_str().unwrap().parse::<Timestamp>().is_ok(), "{text}");
        drop(announced);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_file_of_another_process_stays() {
        let dir = tempfile::tempdir().unwrap();
        let announced = announcement().publish(dir.path()).unwrap();
        fs::write(dir.path().join(FILE), r#"{"pid":1}"#).unwrap();
        drop(announced);
        assert!(dir.path().join(FILE).exists());
    }
}
