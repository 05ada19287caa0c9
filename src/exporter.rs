//! Health and metrics over HTTP, for this machine alone: `/healthz`, `/readyz`, `/metrics`. There by `metrics.listen`.
//!
//! Owns its socket and its few connections; reads what handlers share, and changes nothing. A browser gets nothing here:
//! whatever names an origin, or a host that is not this machine, is refused.

mod answer;
mod text;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use crate::config::Listen;
use crate::handler::shared::Shared;
use crate::shutdown::Scope;

/// Connections at once; others wait in the kernel.
const CONNECTIONS_MAX: usize = 8;
/// From the first byte to the last.
const CONNECTION_MAX: Duration = Duration::from_secs(5);
/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Connections that the kernel holds until they are taken.
const BACKLOG: i32 = 16;
/// Pause after a failed accept, such as for want of a descriptor.
const BACK_OFF: Duration = Duration::from_millis(200);

/// A bound socket.
#[derive(Debug)]
pub struct Exporter {
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Unix { listener: UnixListener, path: PathBuf },
    Tcp(TcpListener),
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Socket::Unix { path, .. } = &self.socket
            && let Err(error) = fs::remove_file(path)
        {
            tracing::debug!(%error, path = %path.display(), "the socket for metrics can't be removed");
        }
    }
}

impl Exporter {
    /// Binds the address, which the configuration's check has found to be of this machine. Runs inside the tokio runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(address: &Listen) -> io::Result<Self> {
        let socket = match (&address.unix, &address.tcp) {
            (Some(path), _) => {
                let listener = bind_unix(path)?;
                Socket::Unix { listener: UnixListener::from_std(listener)?, path: path.clone() }
            }
            (None, Some(address)) => Socket::Tcp(bind_tcp(address)?),
            (None, None) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address")),
        };
        Ok(Self { socket })
    }

    /// The address, with the real port.
    pub fn address(&self) -> String {
        match &self.socket {
            Socket::Unix { path, .. } => format!("unix:{}", path.display()),
            Socket::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "tcp".to_owned(), |it| format!("tcp:{it}"))
            }
        }
    }

    /// Serves until the scope drains.
    pub async fn run(self, shared: Arc<Shared>, scope: Scope) {
        tracing::info!(address = self.address(), "health and metrics are served");
        let drain = scope.draining().clone();
        drain.run_until_cancelled(self.accept_all(&shared, &scope)).await;
    }

    async fn accept_all(&self, shared: &Arc<Shared>, scope: &Scope) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            // It is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (shared, drain) = (Arc::clone(shared), scope.draining().clone());
            let accepted = match &self.socket {
                Socket::Unix { listener, .. } => listener.accept().await.map(|(io, _)| {
                    scope.spawn(async move {
                        drain.run_until_cancelled(serve(io, shared)).await;
                        drop(place);
                    });
                }),
                Socket::Tcp(listener) => listener.accept().await.map(|(io, _)| {
                    scope.spawn(async move {
                        drain.run_until_cancelled(serve(io, shared)).await;
                        drop(place);
                    });
                }),
            };
            if let Err(error) = accepted {
                tracing::debug!(%error, "cannot accept a connection for metrics now");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

/// A socket of a daemon that died is taken over; one that somebody serves is not.
fn bind_unix(path: &Path) -> io::Result<StdUnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket
        && StdUnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        fs::remove_file(path)?;
    }
    let listener = StdUnixListener::bind(path)?;
    // The group, too: a scraper is seldom the daemon's own user.
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn bind_tcp(address: &str) -> io::Result<TcpListener> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
    let (host, port) = Listen::split_tcp(address).map_err(invalid)?;
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    let ip: std::net::IpAddr = host.parse().map_err(|_| invalid(format!("{host} is no IP address")))?;
    if !ip.is_loopback() {
        return Err(invalid(format!("{ip} is not a loopback address")));
    }
    let socket = socket2::Socket::new(
        socket2::Domain::for_address((ip, port).into()),
        socket2::Type::STREAM.cloexec().nonblocking(),
        None,
    )?;
    socket.set_reuse_address(true)?;
    socket.bind(&std::net::SocketAddr::new(ip, port).into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Answers one request.
async fn serve<S>(io: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let response = answer::to(&request, &shared);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(io), service);
    match tokio::time::timeout(CONNECTION_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a request for metrics failed"),
        Err(_) => tracing::debug!("a request for metrics took too long"),
    }
}
