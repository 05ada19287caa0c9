//! Unix sockets: who owns a path, what is stale, and how a socket is private from birth.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::net::UnixListener;

use super::{BACKLOG, Io, ListenError};
use crate::auth::peer::{PeerInfo, PeerKind};
use crate::process::lock::LockFile;

/// Bytes of a path that `sockaddr_un` takes, without its final zero.
const PATH_BYTES_MAX: usize = 107;

/// A bound Unix socket. The order of its parts is that of the end: the path goes while the lock is still ours.
#[derive(Debug)]
pub(super) struct UnixSocket {
    listener: UnixListener,
    unsent_bytes: u32,
    path: PathBuf,
    /// None when another made the socket, who removes it too.
    _place: Option<(Place, LockFile)>,
}

/// The socket's name in the file system; removed at the end if it still is the socket that we made.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl UnixSocket {
    pub(super) fn bind(path: &Path, unsent_bytes: u32) -> Result<Self, ListenError> {
        let path = std::path::absolute(path).map_err(|source| failed(path, source))?;
        let length = path.as_os_str().as_bytes().len();
        if length > PATH_BYTES_MAX {
            return Err(ListenError::PathTooLong { path, length, max: PATH_BYTES_MAX });
        }
        prepare_directory(&path)?;
        let lock = LockFile::acquire(&lock_path(&path))
            .map_err(|source| ListenError::Locked { path: path.clone(), source })?;
        remove_stale(&path)?;
        let socket = bind_private(&path).map_err(|source| failed(&path, source))?;
        let place = Place::of(&path).map_err(|source| failed(&path, source))?;
        let listener = UnixListener::from_std(socket).map_err(|source| failed(&path, source))?;
        Ok(Self { listener, unsent_bytes, path, _place: Some((place, lock)) })
    }

    /// Serves a socket that another has bound and listens on; whoever that was owns its path.
    pub(super) fn adopt(
        socket: Socket,
        path: Option<PathBuf>,
        unsent_bytes: u32,
    ) -> Result<Self, ListenError> {
        let path = path.unwrap_or_default();
        let listener = UnixListener::from_std(socket.into()).map_err(|source| failed(&path, source))?;
        Ok(Self { listener, unsent_bytes, path, _place: None })
    }

    pub(super) fn address(&self) -> String {
        address(&self.path)
    }

    pub(super) async fn accept(&self) -> io::Result<(Io, PeerInfo)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let bounded = SockRef::from(&stream).set_send_buffer_size(self.unsent_bytes as usize);
            match bounded.and_then(|()| stream.peer_cred()) {
                Ok(peer) => {
                    let kind = PeerKind::Unix { uid: peer.uid(), pid: peer.pid() };
                    return Ok((Io::Unix(stream), PeerInfo::new(kind)));
                }
                Err(error) => {
                    tracing::warn!(%error, "closed a connection that can't be bounded or whose user is unknown");
                }
            }
        }
    }
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }

    fn is(&self, metadata: &Metadata) -> bool {
        metadata.dev() == self.device && metadata.ino() == self.inode
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let removed = match fs::symlink_metadata(&self.path) {
            Ok(metadata) if self.is(&metadata) => fs::remove_file(&self.path),
            Ok(_) => {
                tracing::warn!(path = %self.path.display(), "the socket's path is another's now; left alone");
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "could not remove the socket");
        }
    }
}

fn address(path: &Path) -> String {
    format!("unix:{}", path.display())
}

fn failed(path: &Path, source: io::Error) -> ListenError {
    ListenError::Bind { address: address(path), source }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Makes the directory 0700 when it is missing. One that everybody may write to is refused, but for sticky ones
/// (`/tmp`), where others can't replace what is ours.
fn prepare_directory(path: &Path) -> Result<(), ListenError> {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o002;
    let Some(directory) = path.parent() else {
        return Err(ListenError::NotASocket { path: path.to_owned() });
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .and_then(|()| fs::metadata(directory))
        .map_err(|source| failed(path, source))
        .and_then(|metadata| {
            let mode = metadata.permissions().mode();
            if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
                return Err(ListenError::DirectoryOpen { directory: directory.to_owned() });
            }
            Ok(())
        })
}

/// Removes a socket that nobody listens on. Called under the lock, so nobody else decides about this path meanwhile.
///
/// Only a refused connection proves a socket stale. A connection that is taken, that waits or that fails in another way
/// may be a daemon that is busy or stopped.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(ListenError::NotASocket { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(path, source)),
    }
    match try_connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "removed a socket that nobody listened on");
            fs::remove_file(path).map_err(|source| failed(path, source))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(failed(path, error)),
        Ok(()) | Err(_) => Err(ListenError::InUse { path: path.to_owned() }),
    }
}

/// Connects without waiting: a full backlog is `WouldBlock`.
fn try_connect(path: &Path) -> io::Result<()> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

/// Binds a socket that is 0600 at the moment when its name appears: Linux takes the name's mode from the socket's own,
/// so no umask, which all threads share, has to be changed. The mode is checked, for systems that do otherwise.
fn bind_private(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    if fs::symlink_metadata(path)?.permissions().mode() & 0o777 != 0o600 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    }
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::process::lock::LockError;

    const UNSENT: u32 = 64 * 1024;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// A peer that stopped reading once had 200 KiB of the kernel's before its lag was seen.
    #[tokio::test]
    async fn the_kernel_holds_little_for_a_peer_that_does_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = UnixSocket::bind(&path, UNSENT).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        let (io, _) = socket.accept().await.unwrap();
        let Io::Unix(stream) = io else { panic!("expected Unix") };
        // The kernel doubles what it was asked for, for its own needs.
        assert_eq!(SockRef::from(&stream).send_buffer_size().unwrap(), 2 * UNSENT as usize);
        let mut taken = 0;
        while let Ok(bytes) = stream.try_write(&[0; 1024]) {
            taken += bytes;
        }
        assert!(taken <= 2 * UNSENT as usize, "{taken}");
    }

    #[tokio::test]
    async fn a_socket_is_private_in_a_private_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/dshd/dshd.sock");
        let socket = UnixSocket::bind(&path, UNSENT).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(socket.address(), format!("unix:{}", path.display()));
    }

    #[tokio::test]
    async fn a_socket_is_private_from_the_moment_its_name_appears() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        assert_eq!(mode(&path), 0o600, "bind itself must set the mode");
    }

    #[tokio::test]
    async fn a_second_owner_of_a_path_is_refused_and_the_first_stays_reachable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _first = UnixSocket::bind(&path, UNSENT).unwrap();
        let error = UnixSocket::bind(&path, UNSENT).unwrap_err();
        assert!(matches!(
            &error,
            ListenError::Locked { source: LockError::Held { pid: Some(pid), .. }, .. } if *pid == std::process::id()
        ));
        assert_eq!(error.exit_code(), 75);
        UnixStream::connect(&path).unwrap();
    }

    #[tokio::test]
    async fn a_socket_that_nobody_listens_on_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let _socket = UnixSocket::bind(&path, UNSENT).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    /// A stopped daemon does not answer and its backlog fills up. It was taken for dead and its socket unlinked.
    #[tokio::test]
    async fn a_silent_listener_with_a_full_backlog_is_alive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let silent = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        silent.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        silent.listen(0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        assert_eq!(try_connect(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let error = UnixSocket::bind(&path, UNSENT).unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }), "{error}");
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_file_in_the_sockets_place_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        fs::write(&path, "precious").unwrap();
        let error = UnixSocket::bind(&path, UNSENT).unwrap_err();
        assert!(matches!(error, ListenError::NotASocket { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_path_of_107_bytes_works_and_one_of_108_is_refused_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let of_length = |length: usize| {
            let room = length - directory.path().as_os_str().len() - 1;
            directory.path().join("s".repeat(room))
        };
        let longest = of_length(PATH_BYTES_MAX);
        let _socket = UnixSocket::bind(&longest, UNSENT).unwrap();
        UnixStream::connect(&longest).unwrap();
        let error = UnixSocket::bind(&of_length(PATH_BYTES_MAX + 1), UNSENT).unwrap_err();
        assert!(matches!(error, ListenError::PathTooLong { length: 108, max: 107, .. }), "{error}");
        assert!(error.to_string().contains("XDG_RUNTIME_DIR"));
        assert_eq!(error.exit_code(), 78);
    }

    #[tokio::test]
    async fn the_path_is_removed_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        drop(UnixSocket::bind(&path, UNSENT).unwrap());
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_path_that_became_anothers_is_left_alone_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = UnixSocket::bind(&path, UNSENT).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(socket);
        UnixStream::connect(&path).unwrap();
    }

    #[tokio::test]
    async fn a_directory_that_everybody_may_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = UnixSocket::bind(&directory.path().join("s"), UNSENT).unwrap_err();
        assert!(matches!(error, ListenError::DirectoryOpen { .. }), "{error}");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        UnixSocket::bind(&directory.path().join("s"), UNSENT).unwrap();
    }

    #[tokio::test]
    async fn a_peer_is_known_by_its_user_and_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = UnixSocket::bind(&path, UNSENT).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        let (_, peer) = socket.accept().await.unwrap();
        let pid = i32::try_from(std::process::id()).ok();
        assert_eq!(peer.kind, PeerKind::Unix { uid: crate::auth::peer::own_uid(), pid });
    }
}
