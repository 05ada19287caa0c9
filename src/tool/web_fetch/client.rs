//! Fetching: names are resolved here, and only public addresses are connected to, hop by hop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::StreamExt as _;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, Url};
use tokio::sync::OnceCell;

use super::address::is_public;
use crate::config::Config;

/// Pages that a server may send us on to, one after the other.
const REDIRECTS_MAX: usize = 5;
/// The longest address, in bytes.
const URL_BYTES_MAX: usize = 4 * 1024;
const ACCEPTED: &str = "text/html, text/plain, application/json, text/*;q=0.9, */*;q=0.5";

/// Fetches pages. Its client is built on first use.
pub(super) struct Fetcher {
    client: OnceCell<Client>,
    bytes_max: usize,
    /// `tools.web_fetch_allow`: addresses that may be reached although they are not public.
    allowed: Vec<SocketAddr>,
}

/// What came.
#[derive(Debug)]
pub(super) struct Fetched {
    /// Where it came from at last.
    pub(super) url: String,
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
    /// Whether there was more of it.
    pub(super) truncated: bool,
}

/// Why nothing came.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{0}")]
    Url(String),
    #[error("it leads to {url}, and {reason}")]
    Redirect { url: String, reason: String },
    #[error("more than {REDIRECTS_MAX} redirects")]
    TooManyRedirects,
    #[error("{0}")]
    Transport(String),
}

impl FetchError {
    /// Whether the model's argument is what is wrong.
    pub(super) fn is_argument(&self) -> bool {
        matches!(self, Self::Url(_))
    }
}

impl Fetcher {
    pub(super) fn new(config: &Config) -> Self {
        let allowed = config.tools.web_fetch_allow.iter().filter_map(|address| address.parse().ok());
        Self {
            client: OnceCell::new(),
            bytes_max: config.tools.web_fetch_bytes.bytes(),
            allowed: allowed.collect(),
        }
    }

    pub(super) async fn fetch(&self, text: &str) -> Result<Fetched, FetchError> {
        if text.len() > URL_BYTES_MAX {
            return Err(FetchError::Url(format!("it has more than {URL_BYTES_MAX} bytes")));
        }
        let mut url = Url::parse(text).map_err(|error| FetchError::Url(format!("no URL: {error}")))?;
        self.check(&url).map_err(FetchError::Url)?;
        let client =
            self.client.get_or_try_init(async || build()).await.map_err(|error| transport(&error))?;
        for _ in 0..=REDIRECTS_MAX {
            let request = client.get(url.clone()).header(ACCEPT, ACCEPTED);
            let response = request.send().await.map_err(|error| transport(&error))?;
            match next(&url, &response) {
                Some(there) => {
                    self.check(&there)
                        .map_err(|reason| FetchError::Redirect { url: there.as_str().to_owned(), reason })?;
                    url = there;
                }
                None => return self.read(url, response).await,
            }
        }
        Err(FetchError::TooManyRedirects)
    }

    /// Whether a URL may be fetched. An address that stands in it is checked here, a name when it is resolved.
    fn check(&self, url: &Url) -> Result<(), String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("expected http or https, got {}", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL with a user or a password is not fetched".to_owned());
        }
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let Ok(address) = literal else { return Ok(()) };
        let port = url.port_or_known_default().unwrap_or_default();
        if is_public(address) || self.allowed.contains(&SocketAddr::new(address, port)) {
            return Ok(());
        }
        Err(not_public(address))
    }

    async fn read(&self, url: Url, response: Response) -> Result<Fetched, FetchError> {
        let status = response.status().as_u16();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let (mut body, mut truncated) = (Vec::new(), false);
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| transport(&error))?;
            let room = self.bytes_max - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                truncated = true;
                break;
            }
        }
        Ok(Fetched { url: url.into(), status, content_type, body, truncated })
    }
}

/// Where a response sends us on to.
fn next(url: &Url, response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    url.join(location).ok()
}

fn not_public(address: IpAddr) -> String {
    format!("{address} is no address of the public internet")
}

/// The client resolves names by [`PublicOnly`] alone and connects to what that gives. It uses no proxy: behind one, the
/// proxy would resolve the name, and nobody had checked to what.
fn build() -> Result<Client, reqwest::Error> {
    // An error says that one is installed already, which is all that is needed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(concat!("dshd/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .dns_resolver(Arc::new(PublicOnly))
        .build()
}

/// Resolves names of the public internet. A name that has any other address is refused as a whole.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> = found.collect();
            if let Some(other) = addresses.iter().find(|address| !is_public(address.ip())) {
                return Err(format!("{} is at {}", name.as_str(), not_public(other.ip())).into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// What went wrong, with its causes but without the URL, which the caller names.
fn transport(error: &reqwest::Error) -> FetchError {
    let mut text = String::new();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    FetchError::Transport(if text.is_empty() { error.to_string() } else { text })
}
