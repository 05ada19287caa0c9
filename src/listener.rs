//! Where peers come in: Unix sockets, TCP, stdio; hands out streams with who is at the other end.
//!
//! Owns the bound sockets, the accept loops and the connection permits. The daemon binds every listener before it serves
//! any, then runs each in its scope; `connection` gets what comes out.

mod accept;
mod admission;
mod io;
mod stdio;
mod tcp;
mod unix;

use std::path::PathBuf;

pub use self::accept::{Accepted, Refusals};
pub use self::admission::{Admission, Permit, Refusal};
pub use self::io::Io;
pub use self::stdio::Stdio;

use crate::auth::peer::PeerInfo;
use crate::config::{Config, Listen};
use crate::process::lock::LockError;
use crate::shutdown::Scope;

/// Connections that the kernel holds for us until we accept them.
const BACKLOG: i32 = 1024;

/// A bound socket.
#[derive(Debug)]
pub struct Listener(Socket);

#[derive(Debug)]
enum Socket {
    Unix(unix::UnixSocket),
    Tcp(tcp::TcpSocket),
}

/// Why an address could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An entry of `[[listen]]` has none of the keys, or both.
    #[error("an entry of [[listen]] needs exactly one of the keys unix and tcp")]
    NoAddress,
    /// Clients could not name the socket.
    #[error(
        "the socket's path is {length} bytes long and the system takes at most {max}: {}; choose a shorter one with \
         [[listen]] unix = \"/run/user/UID/dshd/dshd.sock\", or set XDG_RUNTIME_DIR",
        .path.display()
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its bytes.
        length: usize,
        /// The bytes that the system takes.
        max: usize,
    },
    /// Any local user could put a socket of theirs in our socket's place.
    #[error(
        "every user may write to {}, so any could replace the socket; choose a directory of your own, or chmod o-w it",
        .directory.display()
    )]
    DirectoryOpen {
        /// The socket's directory.
        directory: PathBuf,
    },
    /// Something lives behind the socket.
    #[error("another daemon serves {}; stop it with dshd stop, or choose another path", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path is a file of another kind.
    #[error("{} exists and is no socket; move it away or choose another path", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The lock beside the socket is not to be had.
    #[error("the socket {} is taken", .path.display())]
    Locked {
        /// The socket.
        path: PathBuf,
        /// Who holds it.
        #[source]
        source: LockError,
    },
    /// The text is no `HOST:PORT`.
    #[error("expected [[listen]] tcp = \"127.0.0.1:7433\" (an IP address and a port), got \"{text}\"")]
    BadAddress {
        /// What stands there.
        text: String,
    },
    /// The address is reachable from other machines.
    #[error(
        "{address} is not a loopback address, and this version has no TLS; serve\n  [[listen]]\n  tcp = \
         \"127.0.0.1:{}\"\nand reach it through ssh -L {}:127.0.0.1:{}",
        .address.port(), .address.port(), .address.port()
    )]
    NotLoopback {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// Tools are not confined yet, and the configuration does not accept that.
    #[error(
        "tools run without a sandbox, so whoever holds a token of {address} may run any command as you; to accept \
         that, add\n  [tools]\n  allow_unsandboxed_remote = true"
    )]
    Unsandboxed {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// The system refused.
    #[error("cannot serve {address}")]
    Bind {
        /// The address.
        address: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// What the kernel may hold of a connection that is not sent yet (`limits.socket_bytes`).
fn unsent_bytes(config: &Config) -> u32 {
    u32::try_from(config.limits.socket_bytes.0).unwrap_or(u32::MAX)
}

impl ListenError {
    /// The exit code that tells it (sysexits): 69 cannot bind, 75 already running, 78 configuration.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoAddress
            | Self::PathTooLong { .. }
            | Self::DirectoryOpen { .. }
            | Self::NotASocket { .. }
            | Self::BadAddress { .. }
            | Self::NotLoopback { .. }
            | Self::Unsandboxed { .. } => 78,
            Self::InUse { .. } | Self::Locked { source: LockError::Held { .. }, .. } => 75,
            Self::Locked { source: LockError::Io { .. }, .. } | Self::Bind { .. } => 69,
        }
    }
}

impl Listener {
    /// Binds one address of the configuration. Runs inside the tokio runtime; blocks for a few system calls.
    ///
    /// # Errors
    /// Why not, with the next step.
    pub fn bind(listen: &Listen, config: &Config) -> Result<Self, ListenError> {
        match (&listen.unix, &listen.tcp) {
            (Some(path), None) => Ok(Self(Socket::Unix(unix::UnixSocket::bind(path, unsent_bytes(config))?))),
            (None, Some(address)) => Ok(Self(Socket::Tcp(tcp::TcpSocket::bind(address, config)?))),
            (None, None) | (Some(_), Some(_)) => Err(ListenError::NoAddress),
        }
    }

    /// `unix` or `tcp`.
    pub fn kind(&self) -> &'static str {
        match &self.0 {
            Socket::Unix(_) => "unix",
            Socket::Tcp(_) => "tcp",
        }
    }

    /// The address that clients connect to, with the real port: `unix:/path`, `tcp:127.0.0.1:40211`.
    pub fn address(&self) -> String {
        match &self.0 {
            Socket::Unix(socket) => socket.address(),
            Socket::Tcp(socket) => socket.address(),
        }
    }

    /// Lets peers in until the scope drains; nothing else ends it. The socket is closed, and a Unix socket's path
    /// removed, when this returns. `on_connection` is called in the order of arrival and must not block.
    pub async fn run<F>(self, admission: Admission, refusals: Refusals, scope: Scope, on_connection: F)
    where
        F: FnMut(Accepted),
    {
        let drain = scope.draining().clone();
        tokio::select! {
            biased;
            () = drain.cancelled() => {}
            () = accept::accept_all(&self, &admission, refusals, &scope, on_connection) => {}
        }
        tracing::debug!(address = self.address(), "listener closed");
    }

    /// Waits for one connection. Cancel safe. An error is one of the listening socket or of the process.
    async fn accept(&self) -> std::io::Result<(Io, PeerInfo)> {
        match &self.0 {
            Socket::Unix(socket) => socket.accept().await,
            Socket::Tcp(socket) => socket.accept().await,
        }
    }
}
