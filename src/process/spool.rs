//! The spool: files for output that is too long for memory, below `<data>/spool`.
//!
//! Each process has a directory of its own there, named for its marks and locked for life, so that several may share the
//! data. One whose lock is free was left by a process that crashed: at start it is removed, and what that process had
//! started is ended. Files are 0600 in 0700. All together they are bounded: the oldest make room for new ones. A session's
//! files go with it.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lock::{LockError, LockFile};
use super::{family, mark};
use crate::event::SessionId;

const LOCK: &str = "LOCK";

/// A file of output, as the model is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spooled {
    /// Where it is.
    pub path: PathBuf,
    /// Whether all output is in it; else its start.
    pub is_whole: bool,
}

/// The spool of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    /// Of one file.
    bytes_max: u64,
    /// Of all files.
    total_bytes_max: u64,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    home: Option<Home>,
    /// Oldest first.
    files: VecDeque<Kept>,
    made: u64,
}

#[derive(Debug)]
struct Kept {
    session: SessionId,
    path: PathBuf,
    /// Its size; while it is written, the size that it may get.
    bytes: u64,
}

/// A file that is written. Dropped, it is whole.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    spool: Spool,
}

#[derive(Debug)]
struct Home {
    path: PathBuf,
    _lock: LockFile,
}

impl Spool {
    /// A spool below a data directory, with at most so many bytes in one file and in all. Nothing is made yet.
    pub fn new(data_dir: &Path, bytes_max: u64, total_bytes_max: u64) -> Self {
        let root = data_dir.join("spool");
        Self(Arc::new(Inner { root, bytes_max, total_bytes_max, shelf: Mutex::default() }))
    }

    /// Removes, and ends, what processes that crashed have left. Blocks on the disk.
    pub fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.0.root) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            // Held: its process lives.
            let Ok(_lock) = LockFile::acquire(&path.join(LOCK)) else { continue };
            let process = path.file_name().and_then(|name| u64::from_str_radix(name.to_str()?, 16).ok());
            if let Some(process) = process {
                family::end_left_by(process);
            }
            remove(&path, std::fs::remove_dir_all(&path));
        }
    }

    /// Moves into this process's directory, if that was not done yet, so that what it starts can be found after a crash.
    pub async fn claim(&self) {
        if self.lock().home.is_some() {
            return;
        }
        let spool = self.clone();
        let claimed = tokio::task::spawn_blocking(move || spool.lock().move_in(&spool.0.root)).await;
        match claimed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "there is no spool"),
            Err(error) => tracing::error!(%error, "there is no spool"),
        }
    }

    /// A new file for a session's output, open for writing. Blocks on the disk.
    ///
    /// # Errors
    /// When it can't be made.
    pub(super) fn create(&self, session: &SessionId) -> io::Result<(Place, File)> {
        let mut shelf = self.lock();
        shelf.move_in(&self.0.root)?;
        shelf.make_room(self.0.total_bytes_max.saturating_sub(self.0.bytes_max));
        shelf.made += 1;
        let name = format!("{}.out", shelf.made);
        let Some(home) = &shelf.home else { return Err(io::Error::other("the spool has no home")) };
        let path = home.path.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        shelf.files.push_back(Kept { session: session.clone(), path: path.clone(), bytes: self.0.bytes_max });
        Ok((Place { path, spool: self.clone() }, file))
    }

    /// Keeps output that is in memory and too long for the model. Blocks on the disk.
    ///
    /// # Errors
    /// When the file can't be made or written.
    pub fn keep(&self, session: &SessionId, output: &[u8]) -> io::Result<Spooled> {
        let (place, mut file) = self.create(session)?;
        let most = usize::try_from(self.0.bytes_max).unwrap_or(usize::MAX).min(output.len());
        file.write_all(&output[..most])?;
        Ok(Spooled { path: place.path.clone(), is_whole: most == output.len() })
    }

    /// Whether a file is one of a session's.
    pub fn has(&self, session: &SessionId, path: &Path) -> bool {
        self.lock().files.iter().any(|kept| kept.session == *session && kept.path == path)
    }

    /// Removes a session's files. Blocks on the disk.
    pub fn forget(&self, session: &SessionId) {
        self.lock().files.retain(|kept| {
            if kept.session == *session {
                remove(&kept.path, std::fs::remove_file(&kept.path));
            }
            kept.session != *session
        });
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn move_in(&mut self, root: &Path) -> io::Result<()> {
        if self.home.is_some() {
            return Ok(());
        }
        let path = root.join(format!("{:05x}", mark::this_process()));
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let lock = LockFile::acquire(&path.join(LOCK)).map_err(|error| match error {
            LockError::Io { source, .. } => source,
            held @ LockError::Held { .. } => io::Error::other(held),
        })?;
        self.home = Some(Home { path, _lock: lock });
        Ok(())
    }

    /// Removes the oldest files until at most so many bytes are left.
    fn make_room(&mut self, bytes_max: u64) {
        let mut bytes: u64 = self.files.iter().map(|kept| kept.bytes).sum();
        while bytes > bytes_max
            && let Some(oldest) = self.files.pop_front()
        {
            bytes -= oldest.bytes;
            remove(&oldest.path, std::fs::remove_file(&oldest.path));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // One that was removed meanwhile is not counted any more.
        if let Ok(entry) = std::fs::metadata(&self.path)
            && let Some(kept) = self.spool.lock().files.iter_mut().find(|kept| kept.path == self.path)
        {
            kept.bytes = entry.len();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let shelf = self.shelf.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = &shelf.home {
            remove(&home.path, std::fs::remove_dir_all(&home.path));
        }
    }
}

fn remove(path: &Path, removed: io::Result<()>) {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a file of the spool could not be removed");
        }
        Ok(()) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn session(name: &str) -> SessionId {
        SessionId::new(name).unwrap()
    }

    #[test]
    fn files_are_private_bounded_and_go_with_their_session() {
        let data = tempfile::tempdir().unwrap();
        let spool = Spool::new(data.path(), 4, 1024);
        let kept = spool.keep(&session("a"), b"123456").unwrap();
        assert_eq!(std::fs::read(&kept.path).unwrap(), b"1234");
        assert!(!kept.is_whole);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&kept.path), mode(kept.path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(mode(&data.path().join("spool")), 0o700);
        let other = spool.keep(&session("b"), b"1").unwrap();
        assert!(other.is_whole);
        spool.forget(&session("a"));
        assert!(!kept.path.exists() && other.path.exists());
        drop(spool);
        assert_eq!(std::fs::read_dir(data.path().join("spool")).unwrap().count(), 0);
    }

    #[test]
    fn the_oldest_files_make_room() {
        let data = tempfile::tempdir().unwrap();
        let spool = Spool::new(data.path(), 10, 25);
        // Each takes what it has, and a new one may get 10.
        let kept: Vec<_> = (0..4).map(|_| spool.keep(&session("a"), b"123456").unwrap().path).collect();
        assert_eq!(kept.iter().map(|path| path.exists()).collect::<Vec<_>>(), [false, true, true, true]);
    }

    #[test]
    fn what_a_crash_left_is_swept_and_what_a_living_process_uses_is_not() {
        let data = tempfile::tempdir().unwrap();
        let living = Spool::new(data.path(), 10, 100);
        let used = living.keep(&session("a"), b"1").unwrap().path;
        let left = data.path().join("spool/0000ff");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("1.out"), "x").unwrap();
        Spool::new(data.path(), 10, 100).sweep();
        assert!(used.exists() && !left.exists());
    }
}
