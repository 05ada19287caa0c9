//! TLS to a daemon: whom to trust, by a CA or by a pinned public key, and what a failed handshake means to a person.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::auth::ALPN;
use crate::auth::certificate::{Certificate, Pin};

/// Whom to trust at a `tls:` address, and who we are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// PEM file of the CAs whose certificates are trusted.
    pub ca: Option<PathBuf>,
    /// The public key that is trusted: that of the daemon's certificate, whatever name it has, or that of its CA.
    /// With a CA too, both must hold.
    pub pin: Option<Pin>,
    /// PEM files of our own certificate and its key, where the daemon asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why there is no TLS with a daemon. Each has its own remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsProblem {
    /// Nothing says whom to trust.
    #[error("nothing says which certificate to trust")]
    NoTrust,
    /// A file can't be used.
    #[error("cannot use {}: {reason}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The certificate is for other names.
    #[error("its certificate is for {}, not for {asked}", .names.join(", "))]
    WrongName {
        /// What we called it.
        asked: String,
        /// What it is called.
        names: Vec<String>,
    },
    /// The certificate's time is over, or has not come.
    #[error("its certificate is not good now: {detail}")]
    Expired {
        /// From when to when it is good.
        detail: String,
    },
    /// The certificate is of a CA that is not trusted.
    #[error("its certificate is not signed by the CA that is trusted")]
    UnknownCa,
    /// The public key is another than the pinned one.
    #[error("its public key is {found}, which is not the pinned one")]
    OtherKey {
        /// What it has.
        found: String,
    },
    /// What answers does not speak TLS.
    #[error("what answers there does not speak TLS")]
    NotTls,
    /// It speaks TLS and another protocol.
    #[error("what answers there speaks TLS, but not the protocol dshd/1 (ALPN)")]
    NoProtocol,
    /// It ended the connection in the midst of the handshake.
    #[error("it ended the connection during the TLS handshake")]
    Ended,
    /// Anything else.
    #[error("TLS failed: {0}")]
    Other(String),
}

/// Speaks TLS with `host` on a stream.
pub(super) async fn secure(
    stream: TcpStream,
    host: &str,
    trust: &Trust,
) -> Result<TlsStream<TcpStream>, TlsProblem> {
    let config = config(trust)?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| TlsProblem::Other(format!("{host} is no host's name")))?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    let stream = connected.map_err(|error| problem(&error, host))?;
    match stream.get_ref().1.alpn_protocol() {
        Some(ALPN) => Ok(stream),
        Some(_) | None => Err(TlsProblem::NoProtocol),
    }
}

fn config(trust: &Trust) -> Result<Arc<ClientConfig>, TlsProblem> {
    let other = |error: &dyn std::fmt::Display| TlsProblem::Other(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(trust, Arc::clone(&provider))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| other(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &trust.identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = certificates(cert)?;
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| TlsProblem::File { path: key.clone(), reason: error.to_string() })?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| other(&error))?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let failed = |reason: String| TlsProblem::File { path: path.to_path_buf(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(failed("it holds no certificate".to_owned())),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Trusts a certificate of the CA, or one whose key, or whose CA's key, is the pinned one.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    of_ca: Option<Arc<WebPkiServerVerifier>>,
    pin: Option<Pin>,
}

/// The key is not the pinned one; what it is.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OtherKey(String);

impl Verifier {
    fn new(trust: &Trust, provider: Arc<CryptoProvider>) -> Result<Self, TlsProblem> {
        if trust.ca.is_none() && trust.pin.is_none() {
            return Err(TlsProblem::NoTrust);
        }
        let of_file = |path: &PathBuf| {
            let failed = |reason: String| TlsProblem::File { path: path.clone(), reason };
            of_cas(certificates(path)?, &provider).map_err(|error| failed(error.to_string()))
        };
        let of_ca = trust.ca.as_ref().map(of_file).transpose()?;
        Ok(Self { of_ca, pin: trust.pin, provider })
    }
}

/// The ordinary verification, by these CAs.
fn of_cas(
    cas: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        roots.add(ca)?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let by = |verifier: &WebPkiServerVerifier| {
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        if let Some(pin) = self.pin {
            let own = Pin::of(end_entity);
            if own != Some(pin) {
                let Some(ca) = intermediates.iter().find(|ca| Pin::of(ca) == Some(pin)) else {
                    let found = own.map_or_else(|| "unreadable".to_owned(), |own| own.to_string());
                    let other = OtherError(Arc::new(OtherKey(found)));
                    return Err(CertificateError::Other(other).into());
                };
                by(&*of_cas(vec![ca.clone().into_owned()], &self.provider)?)?;
            }
        }
        match &self.of_ca {
            Some(of_ca) => by(of_ca),
            // The key is the pinned one, and the handshake's signature shows that it is theirs.
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What a failed handshake means.
#[expect(clippy::wildcard_enum_match_arm, reason = "of a library's many cases a few have a remedy")]
fn problem(error: &io::Error, host: &str) -> TlsProblem {
    let Some(reason) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        let ended = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        let is_end = ended.contains(&error.kind());
        return if is_end { TlsProblem::Ended } else { TlsProblem::Other(error.to_string()) };
    };
    match reason {
        rustls::Error::InvalidMessage(_) => TlsProblem::NotTls,
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => TlsProblem::NoProtocol,
        rustls::Error::InvalidCertificate(error) => certificate_problem(error, host),
        _ => TlsProblem::Other(reason.to_string()),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "of a library's many cases a few have a remedy")]
fn certificate_problem(error: &CertificateError, host: &str) -> TlsProblem {
    match error {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => TlsProblem::Expired { detail: error.to_string() },
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsProblem::UnknownCa,
        CertificateError::NotValidForName => {
            TlsProblem::WrongName { asked: host.to_owned(), names: vec!["another name".to_owned()] }
        }
        CertificateError::NotValidForNameContext { presented, .. } => TlsProblem::WrongName {
            asked: host.to_owned(),
            names: presented.iter().map(|name| plain(name)).collect(),
        },
        CertificateError::Other(OtherError(other)) => match other.downcast_ref::<OtherKey>() {
            Some(OtherKey(found)) => TlsProblem::OtherKey { found: found.clone() },
            None => TlsProblem::Other(error.to_string()),
        },
        _ => TlsProblem::Other(error.to_string()),
    }
}

/// `DnsName("a")` and `IpAddress(127.0.0.1)` without their wrapping.
fn plain(presented: &str) -> String {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    let inner = inner.unwrap_or(presented).trim_matches('"');
    inner.parse::<IpAddr>().map_or_else(|_| inner.to_owned(), |address| address.to_string())
}

/// The pin of the first certificate of a PEM file.
///
/// # Errors
/// [`TlsProblem::File`].
pub fn first_certificate(path: &Path) -> Result<Certificate, TlsProblem> {
    let read = certificates(path)?.first().and_then(|der| Certificate::read(der));
    read.ok_or_else(|| TlsProblem::File {
        path: path.to_path_buf(),
        reason: "it is no certificate".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_as_people_write_them() {
        assert_eq!(plain("DnsName(\"a.example\")"), "a.example");
        assert_eq!(plain("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(plain("IpAddress(0::1)"), "::1");
        assert_eq!(plain("x"), "x");
    }

    #[test]
    fn nobody_is_trusted_when_nothing_says_whom() {
        assert_eq!(config(&Trust::default()).unwrap_err(), TlsProblem::NoTrust);
        let trust = Trust { ca: Some("/there/is/nothing".into()), ..Trust::default() };
        assert!(matches!(config(&trust), Err(TlsProblem::File { .. })));
    }
}
