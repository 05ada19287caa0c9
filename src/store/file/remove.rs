//! Removing a session: its directory gets a name that no session has, under its lease; then it goes.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::blobs::sync_directory;
use super::{Inner, Lease, failed, not_found};
use crate::event::SessionId;
use crate::store::StoreError;

/// How the name of a directory ends that is being removed.
const GONE: &str = ".gone";

impl Inner {
    /// Removes all of a session. It is there whole, or not at all; what a crash leaves of its directory goes when the index
    /// comes by ([`sweep`]).
    pub(super) fn remove(&self, id: &SessionId) -> Result<(), StoreError> {
        self.refuse_failed()?;
        let directory = self.directory(id);
        let fail = |error: io::Error| failed(&directory, &error);
        let log = directory.join("log.jsonl");
        not_found(&log, fs::metadata(&log))?;
        // The session's own actor holds it when it is loaded.
        let lease = match self.maps.lease_of(id) {
            Some(held) => held,
            None => Arc::new(Lease::take(&directory)?),
        };
        let mut name = directory.clone().into_os_string();
        name.push(format!(".{}{GONE}", uuid::Uuid::new_v4()));
        let gone = Path::new(&name);
        not_found(&log, fs::rename(&directory, gone))?;
        self.maps.forget(id);
        self.index.forget(id);
        let shelf = directory.parent().unwrap_or(&self.sessions);
        sync_directory(shelf).map_err(fail)?;
        sweep(gone);
        drop(lease);
        Ok(())
    }

    /// Bytes of a session's log and blobs.
    pub(super) fn bytes(&self, id: &SessionId) -> u64 {
        let directory = self.directory(id);
        let log = fs::metadata(directory.join("log.jsonl")).map_or(0, |metadata| metadata.len());
        log + bytes_below(&directory.join("blobs"))
    }
}

/// Removes a directory whose session is gone; leaves every other.
pub(super) fn sweep(directory: &Path) {
    let name = directory.file_name().and_then(|name| name.to_str());
    if !name.is_some_and(|name| name.ends_with(GONE)) {
        return;
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, directory = %directory.display(), "files of a removed session are left");
        }
        Ok(()) | Err(_) => {}
    }
}

fn bytes_below(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|metadata| metadata.len()).sum()
}
