//! Where peers come in: Unix sockets, TCP, stdio; hands out streams with who is at the other end.
//!
//! Owns the bound sockets, the accept loops and the connection permits. The daemon binds every listener before it serves
//! any, then runs each in its scope; `connection` gets what comes out.

mod accept;
mod admission;
mod inherited;
mod io;
mod stdio;
mod strangers;
mod tcp;
mod tls;
mod unix;

use std::path::PathBuf;
use std::sync::Arc;

pub use self::accept::{Accepted, Refusals};
pub use self::admission::{Admission, Permit, Refusal, Terms};
pub use self::inherited::Inherited;
pub use self::io::Io;
pub use self::stdio::Stdio;
pub use self::tls::{Tls, TlsError, WARN_BEFORE};

use crate::auth::peer::PeerInfo;
use crate::config::{Config, Listen};
use crate::event::PermissionMode;
use crate::process::lock::LockError;
use crate::process::sandbox;
use crate::shutdown::Scope;

/// Connections that the kernel holds for us until we accept them.
const BACKLOG: i32 = 1024;

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: SocketKind,
    mode_max: Option<PermissionMode>,
}

#[derive(Debug)]
enum SocketKind {
    Unix(unix::UnixSocket),
    Tcp(Box<tcp::TcpSocket>),
}

/// Why an address could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An entry of `[[listen]]` has none of the keys, or several.
    #[error("an entry of [[listen]] needs exactly one of the keys unix, tcp and fd")]
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
    /// The address is reachable from other machines, and there is no TLS.
    #[error("{message}")]
    NotLoopback {
        /// What to do.
        message: String,
    },
    /// The certificate of an address can't be used.
    #[error("tls:{address} cannot be served; dshd tls init --name HOST makes a certificate")]
    Certificate {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: TlsError,
    },
    /// A socket of the service manager can't be served.
    #[error("the socket \"{name}\" that was handed over can't be served: {reason}")]
    Inherited {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The service manager has handed over no such socket.
    #[error(
        "[[listen]] fd = \"{name}\" names a socket of the service manager, and none of that name was handed over; its \
         unit needs FileDescriptorName={name}"
    )]
    NotInherited {
        /// The name.
        name: String,
    },
    /// Nothing confines commands here, and the configuration does not accept that.
    #[error(
        "no sandbox works here ({why}), so whoever holds a token of {address} may run any command as you; install \
         bubblewrap, or to accept that, add\n  [tools]\n  allow_unsandboxed_remote = true"
    )]
    Unsandboxed {
        /// The address.
        address: std::net::SocketAddr,
        /// Why nothing does.
        why: sandbox::Why,
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
            | Self::Certificate { .. }
            | Self::Inherited { .. }
            | Self::NotInherited { .. }
            | Self::Unsandboxed { .. } => 78,
            Self::InUse { .. } | Self::Locked { source: LockError::Held { .. }, .. } => 75,
            Self::Locked { source: LockError::Io { .. }, .. } | Self::Bind { .. } => 69,
        }
    }
}

impl Listener {
    /// Takes the sockets that were handed over, and binds the configured addresses; where sockets of a kind were handed
    /// over, none of that kind is bound. Runs inside the tokio runtime; blocks for a few system calls.
    ///
    /// # Errors
    /// Why not, with the next step.
    pub fn all(config: &Config, inherited: Vec<Inherited>) -> Result<Vec<Self>, ListenError> {
        let mut listeners = Vec::new();
        let names: Vec<String> = inherited.iter().map(|socket| socket.name().to_owned()).collect();
        for socket in inherited {
            let entry = config.listen.iter().find(|listen| listen.fd.as_deref() == Some(socket.name()));
            listeners.push(socket.adopt(entry, config)?);
        }
        let handed: Vec<bool> = listeners.iter().map(|listener| listener.kind() == "unix").collect();
        for listen in &config.listen {
            let is_handed = match &listen.fd {
                Some(name) if names.contains(name) => true,
                Some(name) => return Err(ListenError::NotInherited { name: name.clone() }),
                None => handed.contains(&listen.unix.is_some()),
            };
            if !is_handed {
                listeners.push(Self::bind(listen, config)?);
            }
        }
        Ok(listeners)
    }

    /// Binds one address of the configuration.
    ///
    /// # Errors
    /// Why not, with the next step.
    pub fn bind(listen: &Listen, config: &Config) -> Result<Self, ListenError> {
        let socket = match (&listen.unix, &listen.tcp) {
            (Some(path), None) => SocketKind::Unix(unix::UnixSocket::bind(path, unsent_bytes(config))?),
            (None, Some(address)) => {
                SocketKind::Tcp(Box::new(tcp::TcpSocket::bind(address, listen.tls.as_ref(), config)?))
            }
            (None, None) | (Some(_), Some(_)) => return Err(ListenError::NoAddress),
        };
        Ok(Self { socket, mode_max: listen.mode_max })
    }

    /// `unix`, `tcp` or `tls`.
    pub fn kind(&self) -> &'static str {
        match &self.socket {
            SocketKind::Unix(_) => "unix",
            SocketKind::Tcp(socket) if socket.tls().is_some() => "tls",
            SocketKind::Tcp(_) => "tcp",
        }
    }

    /// The address that clients connect to, with the real port: `unix:/path`, `tcp:127.0.0.1:40211`.
    pub fn address(&self) -> String {
        match &self.socket {
            SocketKind::Unix(socket) => socket.address(),
            SocketKind::Tcp(socket) => socket.address(),
        }
    }

    /// Whether other machines reach it.
    pub fn is_remote(&self) -> bool {
        match &self.socket {
            SocketKind::Unix(_) => false,
            SocketKind::Tcp(socket) => socket.is_remote(),
        }
    }

    /// Its certificate, where TLS is spoken, to have it read again.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        match &self.socket {
            SocketKind::Unix(_) => None,
            SocketKind::Tcp(socket) => socket.tls().map(Arc::clone),
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
        let (io, peer) = match &self.socket {
            SocketKind::Unix(socket) => socket.accept().await?,
            SocketKind::Tcp(socket) => socket.accept().await?,
        };
        Ok((io, peer.up_to(self.mode_max)))
    }
}
