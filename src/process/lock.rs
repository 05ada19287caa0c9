//! Lock files: one holder, its pid inside, freed by the kernel when the holder ends, however it ends.
//!
//! `<data>/LOCK` is held by `serve` for life; `<socket>.lock` decides who owns a socket's path.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The longest pid line that we read back.
const PID_LINE_BYTES_MAX: u64 = 32;

/// A lock that is held until it is dropped. The file stays: removing it would let two processes lock two files of
/// one name.
#[derive(Debug)]
pub struct LockFile {
    _file: File,
}

/// Why a lock was not got.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{} is held by {}", .path.display(), holder(*.pid))]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The holder, unless it had not yet written its pid.
        pid: Option<u32>,
    },
    /// The file could not be opened, locked or written.
    #[error("cannot lock {}", .path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl LockFile {
    /// Takes the lock without waiting and writes our pid into the file, which is made 0600 when it is missing.
    ///
    /// # Errors
    /// [`LockError::Held`] when another holder lives, [`LockError::Io`] when the system refuses.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: path.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(no_follow())
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = read_pid(&mut file);
                return Err(LockError::Held { path: path.to_owned(), pid });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        write_pid(&mut file).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// A link in the lock's place must not let its maker choose which file we write.
fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_LINE_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_second_holder_is_told_the_pid_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let _held = LockFile::acquire(&path).unwrap();
        let error = LockFile::acquire(&path).unwrap_err();
        assert!(
            matches!(error, LockError::Held { pid: Some(pid), .. } if pid == std::process::id()),
            "{error}"
        );
        assert!(error.to_string().contains(&format!("process {}", std::process::id())));
    }

    #[test]
    fn a_lock_is_free_again_after_its_holder_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        drop(LockFile::acquire(&path).unwrap());
        LockFile::acquire(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_in_the_locks_place_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let path = directory.path().join("LOCK");
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(matches!(LockFile::acquire(&path).unwrap_err(), LockError::Io { .. }));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }
}
