//! Putting a new content in a file's place: all of it or nothing, whatever fails, and only if the file is still the one
//! that was looked at.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, XattrFlags};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::failure::FileError;
use super::target::{Old, Target};
use crate::tool::observed::{self, Stamp};

/// Permissions, without the file's type.
const PERMISSIONS: u32 = 0o7777;
const SET_ID: u32 = 0o6000;
/// Names and values of extended attributes that are carried over, each.
const ATTRIBUTES_BYTES_MAX: usize = 64 * 1024;
/// Locks by which the sessions of this process take turns at a directory; one that hangs holds up few others.
const LOCKS: usize = 64;

static TURNS: [Mutex<()>; LOCKS] = [const { Mutex::new(()) }; LOCKS];

/// Replaces the file, or makes it. Returns the new file's stamp.
pub(in crate::tool) fn commit(
    target: &Target,
    content: &[u8],
    cancel: &CancellationToken,
) -> Result<Stamp, FileError> {
    let mut temporary = Temporary::create(&target.directory, target.old.is_some())?;
    temporary.file.write_all(content).map_err(FileError::Io)?;
    if let Some(old) = &target.old {
        keep_attributes(&temporary.file, old)?;
    }
    temporary.file.sync_all().map_err(FileError::Io)?;
    {
        let _turn = take_turn(&target.directory)?;
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        temporary.take_place(target)?;
    }
    rustix::fs::fsync(&target.directory).map_err(|errno| FileError::NotSynced(errno.into()))?;
    let stat = rustix::fs::fstat(&temporary.file)?;
    Ok(Stamp::of(&stat).with(Some(observed::digest(content))))
}

/// A file beside the target that is gone unless it took the target's place.
struct Temporary<'a> {
    directory: &'a OwnedFd,
    name: String,
    file: File,
    placed: bool,
}

impl<'a> Temporary<'a> {
    /// `private`: nobody else may read it until it has got the old file's mode.
    fn create(directory: &'a OwnedFd, private: bool) -> Result<Self, FileError> {
        let everyone = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        let mode = if private { Mode::RUSR | Mode::WUSR } else { everyone };
        let name = format!(".dshd-{}.tmp", uuid::Uuid::new_v4().simple());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(directory, name.as_str(), flags, mode)?);
        Ok(Self { directory, name, file, placed: false })
    }

    /// Looks at the target once more, then renames.
    fn take_place(&mut self, target: &Target) -> Result<(), FileError> {
        let (directory, name) = (self.directory, self.name.as_str());
        match &target.old {
            Some(old) => {
                let now = rustix::fs::statat(directory, &target.name, AtFlags::SYMLINK_NOFOLLOW);
                let same = now.is_ok_and(|now| is_file(&now) && Stamp::of(&now).same_marks(&old.stamp));
                if !same {
                    return Err(FileError::Changed);
                }
                rustix::fs::renameat(directory, name, directory, &target.name)?;
            }
            None => match rename_to_new(directory, name, target) {
                Err(Errno::EXIST) => return Err(FileError::NotObserved),
                renamed => renamed?,
            },
        }
        self.placed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed
            && let Err(errno) = rustix::fs::unlinkat(self.directory, self.name.as_str(), AtFlags::empty())
        {
            tracing::warn!(name = %self.name, error = %errno, "a temporary file could not be removed");
        }
    }
}

/// Never takes the place of a file that appeared meanwhile.
fn rename_to_new(directory: &OwnedFd, name: &str, target: &Target) -> Result<(), Errno> {
    match rustix::fs::renameat_with(directory, name, directory, &target.name, RenameFlags::NOREPLACE) {
        // Not every file system can do it in one.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match rustix::fs::statat(directory, &target.name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => rustix::fs::renameat(directory, name, directory, &target.name),
                Ok(_) => Err(Errno::EXIST),
                Err(errno) => Err(errno),
            }
        }
        renamed => renamed,
    }
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn take_turn(directory: &OwnedFd) -> Result<MutexGuard<'static, ()>, FileError> {
    let stat = rustix::fs::fstat(directory)?;
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino).hash(&mut hasher);
    let at = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
    Ok(TURNS[at].lock().unwrap_or_else(PoisonError::into_inner))
}

/// Gives the new file the old one's owner, mode and attributes, as far as we may.
fn keep_attributes(file: &File, old: &Old) -> Result<(), FileError> {
    let own = rustix::fs::fstat(file)?;
    let (uid, gid) = (old.stat.st_uid, old.stat.st_gid);
    let mut kept = (own.st_uid, own.st_gid) == (uid, gid);
    if !kept {
        kept = rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).is_ok()
            || (own.st_uid == uid && rustix::fs::fchown(file, None, Some(Gid::from_raw(gid))).is_ok());
    }
    let mode = old.stat.st_mode & PERMISSIONS;
    // Bits that lend the owner's rights must not lend ours.
    let mode = if kept { mode } else { mode & !SET_ID };
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
    if let Err(errno) = keep_extended_attributes(file, &old.file) {
        tracing::debug!(error = %errno, "extended attributes could not be kept");
    }
    Ok(())
}

fn keep_extended_attributes(file: &File, old: &File) -> Result<(), Errno> {
    let mut names = vec![0_u8; ATTRIBUTES_BYTES_MAX];
    let length = rustix::fs::flistxattr(old, &mut names[..])?;
    let mut value = Vec::new();
    for name in names[..length].split(|byte| *byte == 0) {
        // The rest is the system's own, and belongs to the file that it was given to.
        if name.starts_with(b"user.") || name == b"system.posix_acl_access" {
            value.resize(ATTRIBUTES_BYTES_MAX, 0);
            let length = rustix::fs::fgetxattr(old, name, &mut value[..])?;
            rustix::fs::fsetxattr(file, name, &value[..length], XattrFlags::empty())?;
        }
    }
    Ok(())
}
