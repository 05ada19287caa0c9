//! One provider's HTTP: a client that is built on first use, one POST, and a body that is read against deadlines.

mod body;
mod client;
mod gate;

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};

pub(super) use self::body::{Body, Progress};
pub(super) use self::gate::Gate;
use self::gate::Permit;
use super::failure::Blame;
use super::{CallError, Retry};
use crate::config::{ProviderConfig, Secret};
use crate::event::FailureCode;

/// Bytes of an error's body that are read, and how long that may take.
const ERROR_BYTES_MAX: usize = 64 * 1024;
const ERROR_TIME: Duration = Duration::from_secs(5);
/// A header's value that is shorter tells nothing, and is not looked for in messages.
const SECRET_BYTES_MIN: usize = 8;

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

/// What a provider's calls are let in by.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) key: Key,
    pub(super) gate: Gate,
}

#[cfg(test)]
impl From<Key> for Access {
    fn from(key: Key) -> Self {
        Self { key, gate: Gate::default() }
    }
}

/// A provider's address, key and patience.
pub(super) struct Endpoint {
    name: String,
    url: Result<Url, String>,
    access: Access,
    /// What no message may hold: the key, and the values of configured headers.
    secrets: Vec<Secret>,
    config: ProviderConfig,
    client: OnceCell<Client>,
}

impl Endpoint {
    /// An endpoint for one path below the provider's base.
    pub(super) fn new(name: &str, config: &ProviderConfig, path: &str, access: Access) -> Self {
        let url = match &config.base_url {
            None => Err(format!("provider {name} has no address; set providers.{name}.base_url")),
            Some(base) => Url::parse(&format!("{}/{path}", base.trim_end_matches('/')))
                .map_err(|error| format!("providers.{name}.base_url is no address: {error}")),
        };
        let config = ProviderConfig { models: std::collections::BTreeMap::new(), ..config.clone() };
        let key = match &access.key {
            Key::Present(key) => Some(key.clone()),
            Key::Missing(_) | Key::Refused(_) | Key::Needless => None,
        };
        let values = config.headers.values().filter(|value| value.len() >= SECRET_BYTES_MIN);
        let secrets = key.into_iter().chain(values.filter_map(|value| Secret::new(value))).collect();
        Self { name: name.to_owned(), url, access, secrets, config, client: OnceCell::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn blame(&self) -> Blame<'_> {
        Blame { provider: &self.name, secrets: &self.secrets }
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
        let headers = self.headers(key_header, headers)?;
        let permit = self.permit().await?;
        let request = self.client(url).await?.post(url.clone()).headers(headers).body(body);
        let asked = Instant::now();
        let header_timeout = self.config.header_timeout;
        let response = match timeout(header_timeout, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(blame.transport(error)),
            Err(_) => return Err(blame.timeout("the model's server did not answer", header_timeout)),
        };
        self.check(response, asked, permit).await
    }

    /// The headers of a request: the wire's, the key's, and those configured, which win.
    fn headers(
        &self,
        (key_name, key_prefix): (HeaderName, &str),
        wire: &[(&'static str, &'static str)],
    ) -> Result<HeaderMap, CallError> {
        let refuse = |code, what: &str| self.blame().fail(code, Retry::Never, what);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        for (name, value) in wire {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        match &self.access.key {
            Key::Missing(remedy) | Key::Refused(remedy) => {
                return Err(refuse(FailureCode::MissingCredential, remedy));
            }
            Key::Needless => {}
            Key::Present(key) => {
                let value = HeaderValue::try_from(format!("{key_prefix}{}", key.expose()));
                let mut value = value.map_err(|_| {
                    refuse(FailureCode::MissingCredential, "the key holds characters that no key has")
                })?;
                value.set_sensitive(true);
                headers.insert(key_name, value);
            }
        }
        for (name, value) in &self.config.headers {
            let wrong = |_: &dyn std::error::Error| {
                let what = format!("providers.{}.headers.{name} is no header", self.name);
                refuse(FailureCode::InvalidRequest, &what)
            };
            let name = HeaderName::try_from(name).map_err(|error| wrong(&error))?;
            let mut value = HeaderValue::try_from(value).map_err(|error| wrong(&error))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    async fn permit(&self) -> Result<Permit, CallError> {
        let patience = self.config.queue_timeout;
        self.access.gate.enter(&self.name, patience).await.map_err(|_| {
            let what = format!(
                "other calls kept the provider busy for {}; help: raise providers.{}.concurrency or queue_timeout",
                crate::config::duration::format(patience),
                self.name
            );
            self.blame().fail(FailureCode::Timeout, Retry::Never, &what)
        })
    }

    async fn check(&self, response: Response, asked: Instant, permit: Permit) -> Result<Body<'_>, CallError> {
        let blame = self.blame();
        let status = response.status();
        let is_json = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        if status.is_success() && !is_json {
            let first_token = asked + self.config.first_token_timeout;
            return Ok(Body { response, blame, config: &self.config, first_token, _permit: permit });
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

    async fn client(&self, url: &Url) -> Result<&Client, CallError> {
        let build = || async {
            let trusted = match &self.config.ca_file {
                None => Vec::new(),
                Some(path) => client::read_ca(path).await.map_err(|error| {
                    let what = format!("providers.{}.ca_file, {}: {error}", self.name, path.display());
                    self.blame().fail(FailureCode::InvalidRequest, Retry::Never, &what)
                })?,
            };
            client::build(&self.config, url, trusted).map_err(|error| self.blame().transport(error))
        };
        self.client.get_or_try_init(build).await
    }
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
