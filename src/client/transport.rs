//! Byte streams to a daemon: Unix socket, TCP, TLS, ssh. Each way to fail keeps its own name.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};

use super::address::Address;
use super::error::ConnectError;
use super::tls::{self, Trust};

/// A Unix socket's path has at most so many bytes on Linux; one more is the terminating zero.
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// A listening socket whose queue is full says so at once; it is asked again after this.
const BACKLOG_PAUSE: Duration = Duration::from_millis(20);

/// Both halves of a byte stream to a daemon; nothing was said on it yet.
pub struct Stream {
    /// What the daemon says.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What it is told.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// `ssh`, killed when dropped.
    pub(super) child: Option<Child>,
}

impl Stream {
    /// Opens a stream within `deadline`. `trust` is for TLS alone.
    ///
    /// # Errors
    /// [`ConnectError`], which tells apart what a person has to do about it.
    pub async fn open(address: &Address, trust: &Trust, deadline: Duration) -> Result<Self, ConnectError> {
        let opening = async {
            match address {
                Address::Unix(path) => unix(path).await,
                Address::Tcp(host_port) => tcp(host_port).await,
                Address::Tls(host_port) => tls(host_port, trust).await,
                Address::Ssh(host) => ssh(host),
            }
        };
        match tokio::time::timeout(deadline, opening).await {
            Ok(stream) => stream,
            Err(_) => Err(ConnectError::TimedOut { address: address.to_string(), waited: deadline }),
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("child", &self.child).finish_non_exhaustive()
    }
}

async fn unix(path: &Path) -> Result<Stream, ConnectError> {
    let bytes = path.as_os_str().len();
    if bytes > UNIX_PATH_BYTES_MAX {
        return Err(ConnectError::PathTooLong { path: path.into(), bytes, max: UNIX_PATH_BYTES_MAX });
    }
    let stream = loop {
        match UnixStream::connect(path).await {
            Ok(stream) => break stream,
            // Alive, but its queue of connections is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(BACKLOG_PAUSE).await;
            }
            Err(error) => return Err(unix_failed(path, error)),
        }
    };
    let (reader, writer) = stream.into_split();
    Ok(Stream { reader: Box::new(reader), writer: Box::new(writer), child: None })
}

fn unix_failed(path: &Path, error: io::Error) -> ConnectError {
    let path = path.to_owned();
    if error.kind() == io::ErrorKind::NotFound {
        ConnectError::NoSocket { path }
    } else if error.kind() == io::ErrorKind::ConnectionRefused {
        ConnectError::NobodyListens { path }
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        ConnectError::NotAllowed { path }
    } else {
        ConnectError::Io { address: format!("unix:{}", path.display()), source: error }
    }
}

async fn tcp(host_port: &str) -> Result<Stream, ConnectError> {
    let failed = |source| ConnectError::Io { address: format!("tcp:{host_port}"), source };
    let stream = TcpStream::connect(host_port).await.map_err(failed)?;
    // A frame is one write; waiting for more would only delay it.
    stream.set_nodelay(true).map_err(failed)?;
    let (reader, writer) = stream.into_split();
    Ok(Stream { reader: Box::new(reader), writer: Box::new(writer), child: None })
}

async fn tls(host_port: &str, trust: &Trust) -> Result<Stream, ConnectError> {
    let failed = |source| ConnectError::Io { address: format!("tls:{host_port}"), source };
    let stream = TcpStream::connect(host_port).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let host = host_port.rsplit_once(':').map_or(host_port, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let stream = tls::secure(stream, host, trust)
        .await
        .map_err(|problem| ConnectError::Tls { address: format!("tls:{host_port}"), problem })?;
    let (reader, writer) = tokio::io::split(stream);
    Ok(Stream { reader: Box::new(reader), writer: Box::new(writer), child: None })
}

fn ssh(host: &str) -> Result<Stream, ConnectError> {
    let mut child = Command::new("ssh")
        .args(["-T", "--", host, "dshd", "connect"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| ConnectError::Ssh { source })?;
    match (child.stdout.take(), child.stdin.take()) {
        (Some(stdout), Some(stdin)) => {
            Ok(Stream { reader: Box::new(stdout), writer: Box::new(stdin), child: Some(child) })
        }
        (_, _) => Err(ConnectError::Ssh { source: io::Error::other("it has no pipes") }),
    }
}
