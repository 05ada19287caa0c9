//! The data directory, its lock, and the sockets.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::super::discover::{self, DaemonFile};
use super::super::human;
use super::Check;
use crate::config::Loaded;
use crate::process::lock::LockFile;

/// So many times the reserve is little.
const LITTLE: u64 = 4;

/// The directory itself, and the file system that it is on.
pub(super) fn data(loaded: &Loaded, fix: bool) -> Vec<Check> {
    const NAME: &str = "data";
    let path = &loaded.paths.data_dir;
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return vec![Check::ok(NAME, format!("{shown} is not there yet; the daemon makes it"))];
        }
        Err(error) => {
            return vec![Check::fail(NAME, format!("{shown}: {error}"), "choose another --data-dir")];
        }
    };
    if !metadata.is_dir() {
        return vec![Check::fail(NAME, format!("{shown} is no directory"), "choose another --data-dir")];
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        let text = format!("{shown} belongs to user {}, and this is user {own}", metadata.uid());
        return vec![Check::fail(
            NAME,
            text,
            format!("run it as that user, or: sudo chown -R {own} {shown}"),
        )];
    }
    vec![private(NAME, path, 0o700, fix), space(path, loaded.config.store.reserve_bytes.0)]
}

/// Whether only its owner can look into it; mended when asked.
pub(super) fn private(name: &'static str, path: &Path, mode: u32, fix: bool) -> Check {
    let shown = path.display();
    let is = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(error) => return Check::fail(name, format!("{shown}: {error}"), "look who may read it"),
    };
    let is_loose = is & 0o077 != 0;
    if !is_loose {
        return Check::ok(name, shown.to_string());
    }
    if !fix {
        let text = format!("others can look into {shown} (mode {is:04o})");
        return Check::warn(name, text, format!("chmod {mode:o} {shown}, or dshd doctor --fix"));
    }
    match fs::set_permissions(path, fs::Permissions::from_mode(mode)) {
        Ok(()) => Check::ok(name, format!("{shown}: mode was {is:04o}, is {mode:04o} now")),
        Err(error) => {
            let text = format!("{shown}: the mode {is:04o} can't be changed: {error}");
            Check::fail(name, text, format!("sudo chmod {mode:o} {shown}"))
        }
    }
}

fn space(path: &Path, reserve: u64) -> Check {
    const NAME: &str = "space";
    let found = match statvfs(path) {
        Ok(found) => found,
        Err(error) => return Check::warn(NAME, format!("cannot be told: {error}"), "df"),
    };
    if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let text = format!("the file system of {} can only be read", path.display());
        return Check::fail(NAME, text, "mount it for writing, or choose another --data-dir");
    }
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let text = format!("{} free, store.reserve_bytes is {}", human::size(free), human::size(reserve));
    if free < reserve {
        return Check::fail(
            NAME,
            format!("no turn begins: {text}"),
            "make room, or choose another --data-dir",
        );
    }
    if free < reserve.saturating_mul(LITTLE) {
        return Check::warn(NAME, text, "make room, or set sessions.retain.max_bytes");
    }
    Check::ok(NAME, text)
}

/// Who holds the data directory.
pub(super) fn lock(loaded: &Loaded) -> Check {
    const NAME: &str = "lock";
    let data = &loaded.paths.data_dir;
    let file = DaemonFile::read(data);
    match (discover::is_held(data), file) {
        (true, Some(file)) => Check::ok(NAME, format!("held by the daemon, pid {}", file.pid)),
        (true, None) => Check::ok(NAME, "held; a daemon starts or ends there"),
        (false, None) => Check::ok(NAME, "free"),
        (false, Some(file)) => {
            let text = format!("free, but daemon.json names pid {}: that daemon was killed", file.pid);
            Check::warn(NAME, text, "dshd serve writes it anew; nothing is lost")
        }
    }
}

/// Every Unix socket that this configuration names.
pub(super) fn sockets(loaded: &Loaded, fix: bool) -> Vec<Check> {
    let mut paths: Vec<&PathBuf> =
        loaded.config.listen.iter().filter_map(|listen| listen.unix.as_ref()).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().map(|path| socket(path, fix)).collect()
}

fn socket(path: &Path, fix: bool) -> Check {
    const NAME: &str = "socket";
    let shown = path.display();
    if let Some(check) = path.parent().and_then(open_to_all) {
        return check;
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => {
            return Check::fail(
                NAME,
                format!("{shown} is no socket"),
                "move it away, or choose another path",
            );
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Check::ok(NAME, format!("{shown} is free"));
        }
        Err(error) => {
            return Check::fail(NAME, format!("{shown}: {error}"), "look who may use its directory");
        }
    }
    match UnixStream::connect(path) {
        Ok(_) => Check::ok(NAME, format!("{shown} is served")),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused && fix => match remove_stale(path) {
            Ok(()) => Check::ok(NAME, format!("{shown}: nobody listened there; removed")),
            Err(error) => {
                Check::fail(NAME, format!("{shown} can't be removed: {error}"), format!("rm {shown}"))
            }
        },
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let text = format!("{shown} is stale: nobody listens there");
            Check::warn(NAME, text, "dshd serve takes it over, or: dshd doctor --fix")
        }
        Err(error) => {
            Check::fail(NAME, format!("{shown}: {error}"), "join the group of the socket, or ask its owner")
        }
    }
}

fn open_to_all(directory: &Path) -> Option<Check> {
    const STICKY: u32 = 0o1000;
    let mode = fs::metadata(directory).ok()?.permissions().mode();
    (mode & 0o002 != 0 && mode & STICKY == 0).then(|| {
        let shown = directory.display();
        let text = format!("every user may write to {shown}, so any could replace the socket");
        Check::fail("socket", text, format!("chmod o-w {shown}"))
    })
}

/// Under the lock that decides whose the path is; what is served meanwhile stays.
fn remove_stale(path: &Path) -> io::Result<()> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let _lock = LockFile::acquire(Path::new(&lock)).map_err(|error| io::Error::other(error.to_string()))?;
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) | Err(_) => Err(io::Error::other("somebody listens there now")),
    }
}
