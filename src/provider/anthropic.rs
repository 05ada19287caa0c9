//! The Messages wire, `{base}/v1/messages`: Anthropic's, and what DeepSeek's official runtime speaks.

mod parse;
mod request;
mod wire;

#[cfg(test)]
mod tests;

use futures_util::future::BoxFuture;
use reqwest::header::HeaderName;

pub(super) use self::parse::MessagesParser;
use super::http::{Access, Endpoint};
use super::stream::read_answer;
use super::{CallError, ChunkSink, Completion, ModelRequest, Provider};
use crate::config::ProviderConfig;

/// The path below a provider's base.
const PATH: &str = "v1/messages";
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
const HEADERS: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

/// A provider that speaks this wire.
pub(super) struct Anthropic {
    endpoint: Endpoint,
}

impl Anthropic {
    pub(super) fn new(name: &str, config: &ProviderConfig, access: Access) -> Self {
        Self { endpoint: Endpoint::new(name, config, PATH, access) }
    }

    async fn answer(
        &self,
        request: &ModelRequest,
        sink: &mut dyn ChunkSink,
    ) -> Result<Completion, CallError> {
        let blame = self.endpoint.blame();
        let body = request::body(request, self.endpoint.name())
            .map_err(|error| blame.malformed(&format!("the request can't be written: {error}")))?;
        let body = self.endpoint.post((KEY_HEADER, ""), HEADERS, body).await?;
        read_answer(body, sink, MessagesParser::new(blame)).await
    }
}

impl Provider for Anthropic {
    fn call<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a mut dyn ChunkSink,
    ) -> BoxFuture<'a, Result<Completion, CallError>> {
        Box::pin(self.answer(request, sink))
    }
}
