//! What may stand before a model's server: a TLS front with an authority of its own, and a proxy that notes who asks.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A TLS server that hands all it gets to another port.
pub(super) struct TlsFront {
    pub(super) port: u16,
    /// The authority's certificate.
    pub(super) ca_pem: String,
    _task: JoinSet<()>,
}

impl TlsFront {
    /// One with a certificate for `host`, before a port of this machine.
    pub(super) async fn start(host: &str, to: u16) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], secret)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    // A client that does not trust the certificate goes away here.
                    let Ok(mut tls) = acceptor.accept(stream).await else { return };
                    let mut inner = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await.unwrap();
                    let _ = copy_bidirectional(&mut tls, &mut inner).await;
                });
            }
        });
        Self { port, ca_pem: issuer.pem(), _task: task }
    }
}

/// A proxy that leads wherever it is asked to one port of this machine.
pub(super) struct Proxy {
    pub(super) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Proxy {
    pub(super) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(lead(stream, to, Arc::clone(&noted)));
            }
        });
        Self { port, asked, _task: task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The first line of each request so far.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn lead(mut stream: TcpStream, to: u16, noted: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let first = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    let is_tunnel = first.starts_with("CONNECT ");
    noted.lock().unwrap().push(first);
    let mut inner = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await.unwrap();
    let begun = if is_tunnel {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await
    } else {
        inner.write_all(&head).await
    };
    if begun.is_ok() {
        let _ = copy_bidirectional(&mut stream, &mut inner).await;
    }
}
