//! TLS 1.3 at a TCP address: the certificate, read again when asked, and the handshake with one peer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::auth::ALPN;
use crate::auth::certificate::Certificate;
use crate::config::{ListenTls, tls_files};

/// The type of a TLS record that begins a handshake.
const HANDSHAKE: u8 = 0x16;
/// A certificate that ends within this is warned of.
pub const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Why a certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("cannot read the {what} {}: {reason}", .path.display())]
    File {
        /// `certificate`, `key` or `client CA`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// They do not fit together, or are none.
    #[error("the certificate {} and the key {} cannot be used: {reason}", .cert.display(), .key.display())]
    Unusable {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Why a peer got no further than the handshake.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// It speaks something else. It got no byte.
    #[error("it does not speak TLS")]
    NotTls,
    /// It named no protocol.
    #[error("it did not ask for the protocol dshd/1 (ALPN)")]
    NoProtocol,
    /// TLS says why, or the stream ended.
    #[error("{0}")]
    Failed(#[from] io::Error),
}

/// The certificate of an address. Whoever holds it may have it read again.
#[derive(Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files; those that are not named are in `<data>/tls`.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(tls: &ListenTls, data_dir: &Path) -> Result<Self, TlsError> {
        let (cert, key) = tls_files(data_dir);
        let cert = tls.cert.clone().unwrap_or(cert);
        let key = tls.key.clone().unwrap_or(key);
        let client_ca = tls.client_ca.clone();
        let config = RwLock::new(read(&cert, &key, client_ca.as_deref())?);
        Ok(Self { cert, key, client_ca, config })
    }

    /// Reads the files again, for the connections that come from here on.
    ///
    /// # Errors
    /// [`TlsError`]; the certificate stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = read(&self.cert, &self.key, self.client_ca.as_deref())?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// When its certificate ends, as its file says now.
    ///
    /// # Errors
    /// [`TlsError::File`].
    pub fn ends_at(&self) -> Result<Option<Timestamp>, TlsError> {
        let chain = certificates("certificate", &self.cert)?;
        Ok(chain.first().and_then(|leaf| Certificate::read(leaf)).map(|certificate| certificate.not_after))
    }

    /// The handshake with one peer. It ends with the peer's patience alone: whoever calls this sets its time.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<Box<TlsStream<TcpStream>>, HandshakeError> {
        // Who speaks something else is not told that TLS is spoken here.
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 || first[0] != HANDSHAKE {
            return Err(HandshakeError::NotTls);
        }
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        match stream.get_ref().1.alpn_protocol() {
            Some(ALPN) => Ok(Box::new(stream)),
            Some(_) | None => Err(HandshakeError::NoProtocol),
        }
    }
}

fn read(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates("certificate", cert)?;
    if let Some(leaf) = chain.first() {
        warn_of_end(cert, leaf);
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::File {
        what: "key",
        path: key.to_path_buf(),
        reason: error.to_string(),
    })?;
    let unusable = |error: &dyn std::fmt::Display| TlsError::Unusable {
        cert: cert.to_path_buf(),
        key: key.to_path_buf(),
        reason: error.to_string(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unusable(&error))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("client CA", path)? {
                roots.add(certificate).map_err(|error| unusable(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(&error))?)
        }
    };
    let mut config = builder.with_single_cert(chain, secret).map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Connections are long; nothing is kept of one for the next.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: String| TlsError::File { what, path: path.to_path_buf(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(failed("it holds no certificate".to_owned())),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn warn_of_end(path: &Path, der: &[u8]) {
    let Some(certificate) = Certificate::read(der) else { return };
    let (path, end) = (path.display(), certificate.not_after);
    let left = end.duration_since(Timestamp::now());
    if left.is_negative() {
        tracing::error!(%path, %end, "the certificate has expired, so that no client accepts it; dshd tls renew");
    } else if left < WARN_BEFORE {
        tracing::warn!(%path, %end, "the certificate expires soon; dshd tls renew, then reload");
    }
}
