//! The HTTP client of one provider: pools, proxies, certificates.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Client, Url};
use tokio::io::AsyncReadExt as _;

use crate::config::ProviderConfig;

/// Idle connections are dropped before middle boxes forget them.
const POOL_IDLE: Duration = Duration::from_secs(50);
/// A silent HTTP/2 connection is asked for life after this, and given up after as long again.
const HTTP2_PING: Duration = Duration::from_secs(20);
/// What an HTTP/2 server may send unasked on one stream, and on all.
const HTTP2_STREAM_BYTES: u32 = 1024 * 1024;
const HTTP2_CONNECTION_BYTES: u32 = 8 * 1024 * 1024;
/// Largest file of certificates.
const CA_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Why a file of certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaError {
    /// It can't be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It holds no certificate, or one that is none.
    #[error("it holds no PEM certificates")]
    Empty,
    /// It is larger than a file of certificates is.
    #[error("it is larger than 4 MiB")]
    TooLarge,
}

/// Reads the certificates that a provider trusts besides the system's.
///
/// # Errors
/// [`CaError`].
pub(super) async fn read_ca(path: &Path) -> Result<Vec<Certificate>, CaError> {
    let mut pem = Vec::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(CA_BYTES_MAX + 1).read_to_end(&mut pem).await?;
    if pem.len() as u64 > CA_BYTES_MAX {
        return Err(CaError::TooLarge);
    }
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|_| CaError::Empty)?;
    if certificates.is_empty() { Err(CaError::Empty) } else { Ok(certificates) }
}

/// Builds a client. Proxies are those of the environment; a loopback address is called without.
///
/// # Errors
/// What the library finds wrong.
pub(super) fn build(
    config: &ProviderConfig,
    url: &Url,
    trusted: Vec<Certificate>,
) -> Result<Client, reqwest::Error> {
    // An error says that one is installed already, which is all that is needed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("dshd/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(config.connect_timeout)
        .pool_idle_timeout(POOL_IDLE)
        .http2_initial_stream_window_size(HTTP2_STREAM_BYTES)
        .http2_initial_connection_window_size(HTTP2_CONNECTION_BYTES)
        .http2_keep_alive_interval(HTTP2_PING)
        .http2_keep_alive_timeout(HTTP2_PING);
    if config.http1_only {
        builder = builder.http1_only();
    }
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "http" && is_loopback(url) {
        // No TLS will be spoken: the system's certificates need not be read.
        builder = builder.tls_certs_only([]);
    } else if !trusted.is_empty() {
        builder = builder.tls_certs_merge(trusted);
    }
    builder.build()
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_told_from_all_else() {
        for (url, expected) in [
            ("http://127.0.0.1:11434/v1", true),
            ("http://127.9.9.9/", true),
            ("http://[::1]:8080/", true),
            ("http://localhost/v1", true),
            ("https://api.deepseek.com", false),
            ("http://10.0.0.1/", false),
            ("http://localhost.example.org/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn a_file_that_holds_no_certificates_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        assert!(matches!(read_ca(&path).await, Err(CaError::Unreadable(_))));
        std::fs::write(&path, "no certificate").unwrap();
        assert!(matches!(read_ca(&path).await, Err(CaError::Empty)));
    }
}
