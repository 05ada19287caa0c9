//! The file that a call changes: its directory, held open and reached without symbolic links, and what is there now.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::failure::FileError;
use crate::config::ByteSize;
use crate::tool::kind;
use crate::tool::observed::{self, Stamp};

/// A name in an open directory.
#[derive(Debug)]
pub(in crate::tool) struct Target {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
    /// The file that is there, if one is.
    pub(in crate::tool) old: Option<Old>,
}

/// A text file as it is.
#[derive(Debug)]
pub(in crate::tool) struct Old {
    pub(super) file: File,
    pub(super) stat: Stat,
    /// All of it, with a byte order mark if it has one.
    pub(in crate::tool) text: String,
    pub(in crate::tool) stamp: Stamp,
}

impl Target {
    /// Opens what a path without symbolic links names; none when its directory is not there.
    pub(in crate::tool) fn open(real: &Path, bytes_max: ByteSize) -> Result<Option<Self>, FileError> {
        let (parent, name) = split(real)?;
        let directory = match directory(parent, Missing::Refuse) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let old = Old::load(&directory, name, bytes_max)?;
        Ok(Some(Self { directory, name: name.to_owned(), old }))
    }

    /// Makes the directories that a new file needs.
    pub(super) fn make(real: &Path) -> Result<Self, FileError> {
        let (parent, name) = split(real)?;
        Ok(Self { directory: directory(parent, Missing::Make)?, name: name.to_owned(), old: None })
    }
}

impl Old {
    /// Reads a text file; none when there is no such name.
    fn load(directory: &OwnedFd, name: &OsStr, bytes_max: ByteSize) -> Result<Option<Self>, FileError> {
        let found = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        require_regular(&found)?;
        // Replacing would succeed where writing is not allowed.
        rustix::fs::accessat(directory, name, Access::WRITE_OK, AtFlags::EACCESS)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        require_regular(&stat)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let max = bytes_max.bytes() as u64;
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(max)).unwrap_or(0));
        (&file).take(max + 1).read_to_end(&mut bytes)?;
        let size = size.max(bytes.len() as u64);
        if size > max {
            return Err(FileError::Large { size, max: bytes_max });
        }
        if let Some(kind) = kind::binary(&bytes[..bytes.len().min(kind::SAMPLE_BYTES)]) {
            return Err(FileError::NotText(kind));
        }
        let stamp = Stamp::of(&stat).with(Some(observed::digest(&bytes)));
        let text = String::from_utf8(bytes)
            .map_err(|_| FileError::NotText("text in another encoding than UTF-8"))?;
        Ok(Some(Self { file, stat, text, stamp }))
    }

    /// Tells of the file's other names: they still lead to it when another has taken its place.
    pub(in crate::tool) fn note_other_names(&self, text: &mut String) {
        use std::fmt::Write as _;
        let count = self.stat.st_nlink.saturating_sub(1);
        if count > 0 {
            let names = if count == 1 { "1 other name".to_owned() } else { format!("{count} other names") };
            // Writing to a string can't fail.
            let _ = write!(text, "\n({names} of the file (hard links) still lead to the old content.)");
        }
    }
}

fn require_regular(stat: &Stat) -> Result<(), FileError> {
    match kind::irregular(FileType::from_raw_mode(stat.st_mode)) {
        Some(kind) => Err(FileError::NotRegularFile(kind)),
        None => Ok(()),
    }
}

fn split(real: &Path) -> Result<(&Path, &OsStr), FileError> {
    match (real.parent(), real.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        (None, _) | (_, None) => Err(FileError::NotRegularFile("a directory")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Make,
    Refuse,
}

/// Opens a directory step by step, so that no symbolic link that appears meanwhile leads elsewhere.
fn directory(path: &Path, missing: Missing) -> Result<OwnedFd, Errno> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut current = rustix::fs::openat(CWD, "/", step, Mode::empty())?;
    for component in path.components() {
        let Component::Normal(name) = component else { continue };
        current = match rustix::fs::openat(&current, name, step, Mode::empty()) {
            Err(Errno::NOENT) if missing == Missing::Make => {
                match rustix::fs::mkdirat(&current, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                    Ok(()) => sync(&current)?,
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                rustix::fs::openat(&current, name, step, Mode::empty())?
            }
            opened => opened?,
        };
    }
    readable(&current)
}

/// A directory that was opened as a place only, opened so that it can be synced.
fn readable(place: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(place, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn sync(place: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fsync(readable(place)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of the path becomes a link after the path was found to stay in the workspace.
    #[test]
    fn a_link_that_appears_after_the_path_was_followed_leads_nowhere() {
        let scene = tempfile::tempdir().unwrap();
        let root = scene.path().canonicalize().unwrap();
        fs::create_dir(root.join("out")).unwrap();
        fs::write(root.join("out/f"), "theirs").unwrap();
        symlink("out", root.join("dir")).unwrap();
        symlink("out/f", root.join("file")).unwrap();
        for name in ["dir/f", "dir/new", "file"] {
            let opened = Target::open(&root.join(name), ByteSize(100));
            assert!(opened.is_err(), "{name}: {opened:?}");
        }
        assert!(Target::make(&root.join("dir/sub/new")).is_err());
        assert!(!root.join("out/sub").exists());
    }
}
