//! A leased log: the one writer of its file.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;

use super::scan::Map;
use super::sync::{Syncable, Syncer};
use crate::event::{Seq, SessionEvent};
use crate::store::record;
use crate::store::{Line, SessionLog, StoreError};

/// What is known of a log's lines, shared with its readers.
pub(super) type SharedMap = Arc<Mutex<Map>>;

/// The lease on a session's directory; dropping it ends the lease.
#[derive(Debug)]
pub(super) struct Lease(File);

impl Drop for Lease {
    fn drop(&mut self) {
        // Closing alone would leave it to a child that is being spawned and holds our descriptors until it executes.
        // What can't be unlocked is unlocked by the closing.
        let _ = self.0.unlock();
    }
}

impl Lease {
    /// Takes the lease, or says who has it. [`StoreError::NotFound`]: there is no such directory.
    pub(super) fn take(directory: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                return StoreError::NotFound;
            }
            StoreError::Failed(format!("{}: {error}", directory.display()))
        };
        let path = directory.join("lock");
        let mut file = open_private(&path, true).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { pid: holder(&mut file) }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let (ours, named) = (file.metadata().map_err(failed)?, std::fs::metadata(&path).map_err(failed)?);
        if (ours.dev(), ours.ino()) != (named.dev(), named.ino()) {
            // The session was removed between our opening and our locking, and is being made anew.
            return Err(StoreError::Locked { pid: 0 });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        write!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self(file))
    }
}

fn holder(file: &mut File) -> u32 {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    read.ok().and_then(|_| text.trim().parse().ok()).unwrap_or(0)
}

/// Opens a file of ours for reading and writing: 0600 whatever the umask says.
pub(super) fn open_private(path: &Path, create: bool) -> io::Result<File> {
    let file = OpenOptions::new().read(true).append(true).create(create).mode(0o600).open(path)?;
    Ok(file)
}

/// Makes a directory of ours, and what is missing above it: 0700 whatever the umask says.
pub(super) fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let metadata = std::fs::metadata(directory)?;
    if metadata.permissions().mode() & 0o777 != 0o700 {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Where a line begins and ends.
type Place = (u64, u64);

/// A log that is open for writing.
pub(super) struct FileLog {
    syncer: Arc<Syncer>,
    syncable: Arc<Syncable>,
    map: SharedMap,
    _lease: Arc<Lease>,
    path: PathBuf,
    next: Seq,
    end: u64,
    /// What the lines have called durable so far.
    marked: u64,
}

impl FileLog {
    pub(super) fn new(
        syncer: Arc<Syncer>,
        syncable: Arc<Syncable>,
        map: SharedMap,
        lease: Arc<Lease>,
        path: PathBuf,
    ) -> Self {
        let (next, end) = {
            let map = map.lock().unwrap_or_else(PoisonError::into_inner);
            (Seq::following(map.extent.last), map.end)
        };
        Self { syncer, syncable, map, _lease: lease, path, next, end, marked: 0 }
    }

    /// The lines' bytes, and where each begins and ends.
    fn encode(&mut self, lines: &[Line]) -> Result<(Vec<u8>, Vec<Place>), StoreError> {
        let mut bytes = Vec::with_capacity(lines.iter().map(|line| line.json.len() + 48).sum());
        let mut places = Vec::with_capacity(lines.len());
        for (due, line) in (self.next.0..).zip(lines) {
            if line.seq.0 != due {
                return Err(StoreError::OutOfOrder { offered: line.seq, expected: Seq(due) });
            }
            let durable = self.syncable.durable_events();
            let mark = (durable > self.marked).then(|| Seq(durable - 1));
            self.marked = self.marked.max(durable);
            let begin = self.end + bytes.len() as u64;
            record::seal(&line.json, mark, &mut bytes);
            places.push((begin, self.end + bytes.len() as u64));
        }
        Ok((bytes, places))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let disk = self.syncer.disk();
        let Err(error) = disk.write(&self.syncable.file, bytes) else { return Ok(()) };
        let reason = format!("{}: {error}", self.path.display());
        if let Err(error) = disk.truncate(&self.syncable.file, self.end) {
            self.syncer.fail(format!("{reason}; and what was half written can't be cut off: {error}"));
        }
        Err(StoreError::Failed(reason))
    }
}

impl SessionLog for FileLog {
    fn append(&mut self, lines: &[Line]) -> Result<(), StoreError> {
        if let Some(reason) = self.syncer.failure() {
            return Err(StoreError::Failed(reason));
        }
        let marked = self.marked;
        let (bytes, places) = self.encode(lines)?;
        if let Err(error) = self.write(&bytes) {
            self.marked = marked;
            return Err(error);
        }
        self.end += bytes.len() as u64;
        self.next = Seq(self.next.0 + lines.len() as u64);
        self.syncable.set_events(self.next.0);
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        for (line, (begin, end)) in lines.iter().zip(places) {
            map.note(line.seq, opens(&line.json), begin, end);
        }
        Ok(())
    }

    fn barrier(&self) -> BoxFuture<'static, Result<(), StoreError>> {
        self.syncer.barrier(&self.syncable)
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        if self.syncable.is_dirty() {
            self.syncer.enqueue(&self.syncable);
        }
    }
}

/// The life that an event opens, if it does.
fn opens(json: &[u8]) -> Option<crate::event::Epoch> {
    if !json.starts_with(b"{\"type\":\"session/opened\"") {
        return None;
    }
    SessionEvent::decode(json).ok()?.body.opened_epoch()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that is being spawned holds our descriptors for a moment; the lease must not live on in it.
    #[test]
    fn a_lease_that_is_dropped_is_free_though_a_child_holds_its_descriptor() {
        let home = tempfile::TempDir::new().unwrap();
        let lease = Lease::take(home.path()).unwrap();
        let inherited = lease.0.try_clone().unwrap();
        assert!(matches!(Lease::take(home.path()), Err(StoreError::Locked { .. })));
        drop(lease);
        assert!(Lease::take(home.path()).is_ok());
        drop(inherited);
    }

    #[test]
    fn there_is_no_lease_on_a_directory_that_is_gone() {
        let home = tempfile::TempDir::new().unwrap();
        assert!(matches!(Lease::take(&home.path().join("gone")), Err(StoreError::NotFound)));
    }
}
