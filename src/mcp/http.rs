//! MCP over streamable HTTP: rmcp's client on our TLS and our bounds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Url};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::config::Secret;

/// Posts on their way to one server.
const POSTS_MAX: usize = 64;

/// A transport to an address. Nothing is sent yet.
///
/// # Errors
/// What is wrong with the address or the headers.
pub(super) fn transport(
    url: &str,
    headers: &[(String, Secret)],
    message_bytes: usize,
    connect_timeout: Duration,
) -> Result<StreamableHttpClientTransport<Client>, String> {
    let address = Url::parse(url).map_err(|error| format!("its `url` is no address: {error}"))?;
    let mut all = HashMap::new();
    for (name, value) in headers {
        let header =
            HeaderName::try_from(name.as_str()).map_err(|_| format!("\"{name}\" names no header"))?;
        let value = HeaderValue::try_from(value.expose());
        let mut value =
            value.map_err(|_| format!("the header {name} holds characters that no header has"))?;
        value.set_sensitive(true);
        all.insert(header, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(all)
        .max_concurrent_requests(POSTS_MAX)
        .max_sse_event_size(message_bytes)
        .max_json_response_size(message_bytes);
    let client = client(&address, connect_timeout).map_err(|error| format!("no HTTP: {error}"))?;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

fn client(url: &Url, connect_timeout: Duration) -> Result<Client, reqwest::Error> {
    // An error says that one is installed already, which is all that is needed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("dshd/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connect_timeout);
    let is_loopback = url.host_str().is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    });
    if is_loopback {
        builder = builder.no_proxy();
        if url.scheme() == "http" {
            // No TLS will be spoken: the system's certificates need not be read.
            builder = builder.tls_certs_only([]);
        }
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_can_not_be_called_says_why() {
        let wrong = |url, headers: &[(&str, &str)]| {
            let headers: Vec<_> =
                headers.iter().map(|(n, v)| ((*n).to_owned(), Secret::new(v).unwrap())).collect();
            transport(url, &headers, 1000, Duration::from_secs(1)).err()
        };
        assert!(wrong("http://", &[]).unwrap().contains("is no address"));
        assert!(wrong("http://127.0.0.1:1/", &[("a b", "c")]).unwrap().contains("names no header"));
        assert!(wrong("http://127.0.0.1:1/", &[("a", "c\nd")]).unwrap().contains("characters"));
        assert!(wrong("http://127.0.0.1:1/", &[("a", "b")]).is_none());
    }
}
