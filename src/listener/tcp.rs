//! TCP: beyond loopback only with TLS; options that find dead peers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

use super::tls::Tls;
use super::{BACKLOG, Io, ListenError};
use crate::auth::peer::{PeerInfo, PeerKind};
use crate::config::{Config, ListenTls, tls_needed};
use crate::process::sandbox;

/// Silence after which the kernel asks whether a peer lives, how often it asks again, and how many times.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// A bound TCP socket.
#[derive(Debug)]
pub(super) struct TcpSocket {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<Tls>>,
    user_timeout: Duration,
    unsent_bytes: u32,
}

impl TcpSocket {
    pub(super) fn bind(text: &str, tls: Option<&ListenTls>, config: &Config) -> Result<Self, ListenError> {
        let address = parse(text)?;
        let tls = allowed(address, tls, config)?;
        let bound = listen(address);
        Self::on(bound, address, tls, config)
    }

    /// Serves a socket that another has bound and listens on.
    pub(super) fn adopt(
        socket: Socket,
        address: SocketAddr,
        tls: Option<&ListenTls>,
        config: &Config,
    ) -> Result<Self, ListenError> {
        let tls = allowed(address, tls, config)?;
        Self::on(TcpListener::from_std(socket.into()), address, tls, config)
    }

    fn on(
        bound: io::Result<TcpListener>,
        address: SocketAddr,
        tls: Option<Arc<Tls>>,
        config: &Config,
    ) -> Result<Self, ListenError> {
        bound
            .and_then(|listener| {
                let address = listener.local_addr()?;
                // Twice: our own cut by progress comes first, and says why.
                let user_timeout = config.limits.write_progress * 2;
                Ok(Self { listener, address, tls, user_timeout, unsent_bytes: super::unsent_bytes(config) })
            })
            .map_err(|source| ListenError::Bind { address: format!("tcp:{address}"), source })
    }

    /// The certificate, where TLS is spoken.
    pub(super) fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// Whether other machines reach it.
    pub(super) fn is_remote(&self) -> bool {
        is_remote(self.address)
    }

    pub(super) fn address(&self) -> String {
        format!("{}:{}", if self.tls.is_some() { "tls" } else { "tcp" }, self.address)
    }

    pub(super) async fn accept(&self) -> io::Result<(Io, PeerInfo)> {
        loop {
            let (stream, address) = self.listener.accept().await?;
            match set_options(&stream, self.user_timeout, self.unsent_bytes) {
                Ok(()) => {
                    let peer = PeerInfo::new(PeerKind::Tcp { address });
                    return Ok((Io::Tcp(stream), if self.tls.is_some() { peer.by_tls() } else { peer }));
                }
                Err(error) => tracing::debug!(%error, peer = %address, "connection ended before it began"),
            }
        }
    }
}

fn is_remote(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// What an address needs before it is served; the certificate where TLS is spoken.
fn allowed(
    address: SocketAddr,
    tls: Option<&ListenTls>,
    config: &Config,
) -> Result<Option<Arc<Tls>>, ListenError> {
    let data_dir = config.data_dir.as_deref();
    if tls.is_none() && is_remote(address) {
        return Err(ListenError::NotLoopback { message: tls_needed(&address.to_string(), data_dir) });
    }
    if !config.tools.allow_unsandboxed_remote {
        sandbox::available(config).map_err(|why| ListenError::Unsandboxed { address, why })?;
    }
    let load = |tls| Tls::load(tls, data_dir.unwrap_or(Path::new(".")));
    let tls = tls.map(load).transpose().map_err(|source| ListenError::Certificate { address, source })?;
    Ok(tls.map(Arc::new))
}

/// `127.0.0.1:7433`, `[::1]:7433`, `localhost:7433`. No other names: resolving one could end anywhere.
fn parse(text: &str) -> Result<SocketAddr, ListenError> {
    let named = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    match named {
        Some(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        None => text.parse().map_err(|_| ListenError::BadAddress { text: text.to_owned() }),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// `SO_SNDBUF` stays with the kernel, which fits it to the way: on a long one much is sent and not acknowledged yet. What
/// is *not sent* is what a slow reader leaves behind, and that is bounded (tcp(7), `TCP_NOTSENT_LOWAT`).
fn set_options(stream: &TcpStream, user_timeout: Duration, unsent_bytes: u32) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(user_timeout))?;
    socket.set_tcp_notsent_lowat(unsent_bytes)?;
    socket.set_tcp_nodelay(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let mut config = Config::default();
        config.tools.allow_unsandboxed_remote = true;
        config
    }

    #[tokio::test]
    async fn the_address_tells_the_real_port() {
        for (text, start) in [
            ("127.0.0.1:0", "tcp:127.0.0.1:"),
            ("localhost:0", "tcp:127.0.0.1:"),
            ("127.1.2.3:0", "tcp:127.1.2.3:"),
        ] {
            let socket = TcpSocket::bind(text, None, &config()).unwrap();
            assert!(socket.address().starts_with(start), "{}", socket.address());
            assert_ne!(socket.address(), format!("{start}0"));
        }
    }

    #[tokio::test]
    async fn an_address_that_other_machines_reach_is_refused_with_what_to_write() {
        for text in ["0.0.0.0:7433", "[::]:7433", "192.0.2.1:7433", "[::ffff:0.0.0.0]:7433"] {
            let error = TcpSocket::bind(text, None, &config()).unwrap_err();
            assert!(matches!(error, ListenError::NotLoopback { .. }), "{error}");
            assert!(error.to_string().contains(&format!("tcp = \"{text}\"")), "{error}");
            assert_eq!(error.exit_code(), 78);
        }
    }

    #[tokio::test]
    async fn loopback_needs_consent_while_tools_are_not_confined() {
        let error = TcpSocket::bind("127.0.0.1:0", None, &Config::default()).unwrap_err();
        assert!(error.to_string().contains("allow_unsandboxed_remote = true"), "{error}");
        assert_eq!(error.exit_code(), 78);
    }

    #[tokio::test]
    async fn what_is_no_address_is_named() {
        for text in ["", "7433", "127.0.0.1", "example.org:80", "localhost:99999"] {
            let error = TcpSocket::bind(text, None, &config()).unwrap_err();
            assert!(matches!(&error, ListenError::BadAddress { text: got } if got == text), "{error}");
        }
    }

    #[tokio::test]
    async fn a_taken_port_cannot_be_bound() {
        let first = TcpSocket::bind("127.0.0.1:0", None, &config()).unwrap();
        let error = TcpSocket::bind(&first.address.to_string(), None, &config()).unwrap_err();
        assert!(matches!(error, ListenError::Bind { .. }), "{error}");
        assert_eq!(error.exit_code(), 69);
    }

    #[tokio::test]
    async fn a_connection_is_watched_for_dead_peers_and_writes_at_once() {
        let socket = TcpSocket::bind("127.0.0.1:0", None, &config()).unwrap();
        let _client = TcpStream::connect(socket.address).await.unwrap();
        let (io, _) = socket.accept().await.unwrap();
        let Io::Tcp(stream) = io else { panic!("expected TCP") };
        let options = SockRef::from(&stream);
        assert!(options.keepalive().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), Duration::from_mins(1));
        assert_eq!(options.tcp_keepalive_interval().unwrap(), Duration::from_secs(15));
        assert_eq!(options.tcp_keepalive_retries().unwrap(), 4);
        assert_eq!(options.tcp_user_timeout().unwrap(), Some(Duration::from_mins(1)));
        assert_eq!(options.tcp_notsent_lowat().unwrap(), 64 * 1024);
        assert!(options.tcp_nodelay().unwrap());
    }
}
