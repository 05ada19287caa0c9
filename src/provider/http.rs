//! One provider's HTTP: a client that is built on first use, one POST, and a body that is read against deadlines.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::Blame;
use super::{CallError, Retry};
use crate::config::{ProviderConfig, Secret};
use crate::event::FailureCode;

/// Idle connections are dropped before middle boxes forget them.
const POOL_IDLE: Duration = Duration::from_secs(50);
/// A silent HTTP/2 connection is asked for life after this, and given up after as long again.
const HTTP2_PING: Duration = Duration::from_secs(20);
/// What an HTTP/2 server may send unasked on one stream, and on all.
const HTTP2_STREAM_BYTES: u32 = 1024 * 1024;
const HTTP2_CONNECTION_BYTES: u32 = 8 * 1024 * 1024;
/// Bytes of an error's body that are read, and how long that may take.
const ERROR_BYTES_MAX: usize = 64 * 1024;
const ERROR_TIME: Duration = Duration::from_secs(5);
/// How long a stream may stay open after the model has finished.
const AFTER_FINISH: Duration = Duration::from_secs(5);

/// How long the end of a body may take after the stream's last event; then the connection is given up.
const END_WAIT: Duration = Duration::from_millis(10);

/// How a key is there.
#[derive(Clone, Debug)]
pub(super) enum Key {
    /// It is.
    Present(Secret),
    /// None is set; the text says what to do.
    Missing(String),
    /// One is set that can't be used; the text says why and what to do.
    Refused(String),
    /// None is needed.
    Needless,
}

/// A provider's address, key and patience.
pub(super) struct Endpoint {
    name: String,
    url: Result<Url, String>,
    key: Key,
    config: ProviderConfig,
    client: OnceLock<Client>,
}

impl Endpoint {
    /// An endpoint for one path below the provider's base.
    pub(super) fn new(name: &str, config: &ProviderConfig, path: &str, key: Key) -> Self {
        let url = match &config.base_url {
            None => Err(format!("provider {name} has no address; set providers.{name}.base_url")),
            Some(base) => Url::parse(&format!("{}/{path}", base.trim_end_matches('/')))
                .map_err(|error| format!("providers.{name}.base_url is no address: {error}")),
        };
        let config = ProviderConfig { models: std::collections::BTreeMap::new(), ..config.clone() };
        Self { name: name.to_owned(), url, key, config, client: OnceLock::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn blame(&self) -> Blame<'_> {
        Blame { provider: &self.name, key: self.key() }
    }

    fn key(&self) -> Option<&Secret> {
        match &self.key {
            Key::Present(key) => Some(key),
            Key::Missing(_) | Key::Refused(_) | Key::Needless => None,
        }
    }

    /// Posts a JSON body and waits for a response that streams.
    ///
    /// # Errors
    /// Whatever keeps the stream from beginning.
    pub(super) async fn post(
        &self,
        key_header: (HeaderName, &str),
        headers: &[(&'static str, &'static str)],
        body: Vec<u8>,
    ) -> Result<Body<'_>, CallError> {
        let blame = self.blame();
        let refuse = |code, what: &str| blame.fail(code, Retry::Never, what);
        let url = self.url.as_ref().map_err(|what| refuse(FailureCode::InvalidRequest, what))?;
        let mut request = self.client(url)?.post(url.clone()).body(body);
        request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match &self.key {
            Key::Missing(remedy) | Key::Refused(remedy) => {
                return Err(refuse(FailureCode::MissingCredential, remedy));
            }
            Key::Needless => {}
            Key::Present(key) => {
                let value = HeaderValue::try_from(format!("{}{}", key_header.1, key.expose()));
                let mut value = value.map_err(|_| {
                    refuse(FailureCode::MissingCredential, "the key holds characters that no key has")
                })?;
                value.set_sensitive(true);
                request = request.header(key_header.0, value);
            }
        }
        let asked = Instant::now();
        let header_timeout = self.config.header_timeout;
        let response = match timeout(header_timeout, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(blame.transport(error)),
            Err(_) => return Err(blame.timeout("the model's server did not answer", header_timeout)),
        };
        self.check(response, asked).await
    }

    async fn check(&self, response: Response, asked: Instant) -> Result<Body<'_>, CallError> {
        let blame = self.blame();
        let status = response.status();
        let is_json = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        if status.is_success() && !is_json {
            let first_token = asked + self.config.first_token_timeout;
            return Ok(Body { response, blame, config: &self.config, first_token });
        }
        let headers: HeaderMap = response.headers().clone();
        let body = read_error(response).await;
        if status.is_success() {
            return Err(if memchr::memmem::find(&body, b"\"error\"").is_some() {
                blame.in_stream(&String::from_utf8_lossy(&body))
            } else {
                blame.malformed("the model's server answered with a document instead of a stream")
            });
        }
        Err(blame.http(status.as_u16(), &headers, &body))
    }

    fn client(&self, url: &Url) -> Result<&Client, CallError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = self.build(url).map_err(|error| self.blame().transport(error))?;
        Ok(self.client.get_or_init(|| client))
    }

    fn build(&self, url: &Url) -> Result<Client, reqwest::Error> {
        // An error says that one is installed already, which is all that is needed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("dshd/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.config.connect_timeout)
            .pool_idle_timeout(POOL_IDLE)
            .http2_initial_stream_window_size(HTTP2_STREAM_BYTES)
            .http2_initial_connection_window_size(HTTP2_CONNECTION_BYTES)
            .http2_keep_alive_interval(HTTP2_PING)
            .http2_keep_alive_timeout(HTTP2_PING);
        if self.config.http1_only {
            builder = builder.http1_only();
        }
        if is_loopback(url) {
            builder = builder.no_proxy();
        }
        if url.scheme() == "http" && is_loopback(url) {
            // No TLS will be spoken: the system's certificates need not be read.
            builder = builder.tls_certs_only([]);
        }
        builder.build()
    }
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

/// What a server says of a failure, as far as it says it soon.
async fn read_error(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let deadline = Instant::now() + ERROR_TIME;
    while let Ok(Ok(Some(part))) = timeout_at(deadline, response.chunk()).await {
        body.extend_from_slice(&part);
        if body.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    body
}

/// How far an answer is, which decides how long to wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing has been said.
    Waiting,
    /// The model speaks.
    Speaking,
    /// The model has finished; only figures may follow.
    Finished,
}

/// A response that streams. Dropping it drops the connection's stream.
pub(super) struct Body<'e> {
    response: Response,
    blame: Blame<'e>,
    config: &'e ProviderConfig,
    first_token: Instant,
}

impl<'e> Body<'e> {
    pub(super) fn blame(&self) -> Blame<'e> {
        self.blame
    }

    /// What has arrived already, if anything has; `Some(Ok(None))` at the end.
    pub(super) fn arrived(&mut self) -> Option<Result<Option<Bytes>, CallError>> {
        let read = self.response.chunk().now_or_never()?;
        Some(read.map_err(|error| self.blame.transport(error)))
    }

    /// Waits a moment for the end of the body, after which the connection can be used again.
    pub(super) async fn end(&mut self) {
        let deadline = Instant::now() + END_WAIT;
        while let Ok(Ok(Some(_))) = timeout_at(deadline, self.response.chunk()).await {}
    }

    /// Waits for more; `None` at the end.
    ///
    /// # Errors
    /// A broken connection, or silence for too long.
    pub(super) async fn read(&mut self, progress: Progress) -> Result<Option<Bytes>, CallError> {
        let (blame, now, first_token) = (self.blame, Instant::now(), self.first_token);
        let idle_timeout = self.config.idle_timeout;
        let idle = now + idle_timeout;
        let deadline = match progress {
            Progress::Waiting => idle.min(first_token),
            Progress::Speaking => idle,
            Progress::Finished => now + AFTER_FINISH.min(idle_timeout),
        };
        match timeout_at(deadline, self.response.chunk()).await {
            Ok(read) => read.map_err(|error| blame.transport(error)),
            Err(_) if progress == Progress::Waiting && first_token <= idle => {
                Err(blame.timeout("the model said nothing", self.config.first_token_timeout))
            }
            Err(_) => Err(blame.timeout("the model fell silent: nothing came", idle_timeout)),
        }
    }
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
}
