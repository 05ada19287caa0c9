//! Sockets that the service manager has bound: told by name, checked for what they are, never unlinked.

use std::io;
use std::os::fd::OwnedFd;

use socket2::{Socket, Type};

use super::{ListenError, Listener, SocketKind, tcp, unix};
use crate::config::{Config, Listen, ListenTls};

/// A socket that was handed over, by its name (`FileDescriptorName=`).
#[derive(Debug)]
pub struct Inherited {
    name: String,
    socket: Socket,
}

/// What a name says of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// A Unix socket.
    Unix,
    /// TCP; with TLS or not.
    Tcp { tls: bool },
    /// Whatever it is.
    Anything,
}

impl Inherited {
    /// A socket of this name.
    pub fn new(name: &str, fd: OwnedFd) -> Self {
        Self { name: name.to_owned(), socket: fd.into() }
    }

    /// Its name, without the end of a unit's.
    pub(super) fn name(&self) -> &str {
        self.name.strip_suffix(".socket").unwrap_or(&self.name)
    }

    fn wrong(&self, reason: impl Into<String>) -> ListenError {
        ListenError::Inherited { name: self.name.clone(), reason: reason.into() }
    }

    /// Serves it with the settings of its entry in the configuration, if it has one.
    pub(super) fn adopt(self, entry: Option<&Listen>, config: &Config) -> Result<Listener, ListenError> {
        let means = match (means(self.name()), entry) {
            (Some(means), _) => means,
            (None, Some(_)) => Means::Anything,
            (None, None) => {
                return Err(self.wrong(
                    "no name that tells what it is; write FileDescriptorName=unix, tcp or tls, or configure it with \
                     [[listen]] fd",
                ));
            }
        };
        let system = |error: io::Error| self.wrong(error.to_string());
        let is_listening = self.socket.r#type().map_err(system)? == Type::STREAM
            && self.socket.is_listener().map_err(system)?;
        if !is_listening {
            return Err(self.wrong("it is no listening stream socket"));
        }
        let address = self.socket.local_addr().map_err(system)?;
        let tls = entry.and_then(|entry| entry.tls.clone());
        let mode_max = entry.and_then(|entry| entry.mode_max);
        let (kind, is_unix) = (means, address.is_unix());
        self.socket
            .set_nonblocking(true)
            .map_err(|error| ListenError::Inherited { name: self.name.clone(), reason: error.to_string() })?;
        let socket = match (kind, is_unix, address.as_socket()) {
            (Means::Unix | Means::Anything, true, _) if tls.is_some() => {
                return Err(self.wrong("`tls` is for a TCP socket, and this is a Unix socket"));
            }
            (Means::Unix | Means::Anything, true, _) => {
                let path = address.as_pathname().map(std::path::Path::to_path_buf);
                SocketKind::Unix(unix::UnixSocket::adopt(self.socket, path, super::unsent_bytes(config))?)
            }
            (Means::Tcp { .. } | Means::Anything, false, Some(address)) => {
                let by_name = (kind == Means::Tcp { tls: true }).then(ListenTls::default);
                let tls = tls.or(by_name);
                SocketKind::Tcp(Box::new(tcp::TcpSocket::adopt(self.socket, address, tls.as_ref(), config)?))
            }
            (_, true, _) => return Err(self.wrong("it is a Unix socket; its name says TCP")),
            (_, false, _) => return Err(self.wrong("it is no Unix socket; its name says so")),
        };
        Ok(Listener { socket, mode_max })
    }
}

fn means(name: &str) -> Option<Means> {
    match name {
        "unix" => Some(Means::Unix),
        "tcp" | "dshd-tcp" => Some(Means::Tcp { tls: false }),
        "tls" | "dshd-tls" => Some(Means::Tcp { tls: true }),
        // What a manager that passes no names is told to have passed.
        "dshd" | "unknown" => Some(Means::Anything),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let mut config = Config::default();
        config.tools.allow_unsandboxed_remote = true;
        config
    }

    fn unix(path: &std::path::Path) -> OwnedFd {
        std::os::unix::net::UnixListener::bind(path).unwrap().into()
    }

    fn tcp(address: &str) -> OwnedFd {
        std::net::TcpListener::bind(address).unwrap().into()
    }

    #[tokio::test]
    async fn a_unix_socket_is_served_and_its_path_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        for name in ["unix", "dshd", "dshd.socket", "unknown"] {
            let listener = Inherited::new(name, unix(&path)).adopt(None, &config()).unwrap();
            assert_eq!(listener.address(), format!("unix:{}", path.display()));
            drop(listener);
            assert!(path.exists(), "{name}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[tokio::test]
    async fn a_socket_that_is_not_what_its_name_says_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |name: &str, fd: OwnedFd| {
            let error = Inherited::new(name, fd).adopt(None, &config()).unwrap_err();
            assert_eq!(error.exit_code(), 78);
            error.to_string()
        };
        let path = directory.path().join("s");
        assert!(refused("tcp", unix(&path)).contains("its name says TCP"));
        assert!(refused("unix", tcp("127.0.0.1:0")).contains("it is no Unix socket"));
        assert!(refused("web", tcp("127.0.0.1:0")).contains("FileDescriptorName=unix"));
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(refused("unix", ours.into()).contains("no listening stream socket"));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(refused("tcp", udp.into()).contains("no listening stream socket"));
    }

    #[tokio::test]
    async fn one_that_other_machines_reach_needs_tls_as_any() {
        let error = Inherited::new("tcp", tcp("0.0.0.0:0")).adopt(None, &config()).unwrap_err();
        assert!(matches!(error, ListenError::NotLoopback { .. }), "{error}");
        let error = Inherited::new("tls", tcp("0.0.0.0:0")).adopt(None, &config()).unwrap_err();
        assert!(matches!(error, ListenError::Certificate { .. }), "{error}");
        let listener = Inherited::new("tcp", tcp("127.0.0.1:0")).adopt(None, &config()).unwrap();
        assert_eq!((listener.kind(), listener.is_remote()), ("tcp", false));
    }
}
