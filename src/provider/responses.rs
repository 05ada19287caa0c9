//! OpenAI's Responses wire, `{base}/responses`: items instead of messages, and thoughts that go back sealed.

mod items;
mod parse;
mod request;
mod wire;

#[cfg(test)]
mod quirks;
#[cfg(test)]
mod tests;

use futures_util::future::BoxFuture;
use reqwest::header::AUTHORIZATION;

pub(super) use self::parse::ResponsesParser;
use super::http::{Access, Endpoint};
use super::stream::read_answer;
use super::{CallError, ChunkSink, Completion, ModelRequest, Provider};
use crate::config::ProviderConfig;

/// The path below a provider's base.
const PATH: &str = "responses";

/// A provider that speaks this wire.
pub(super) struct Responses {
    endpoint: Endpoint,
}

impl Responses {
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
        let body = self.endpoint.post((AUTHORIZATION, "Bearer "), &[], body).await?;
        read_answer(body, sink, ResponsesParser::new(blame)).await
    }
}

impl Provider for Responses {
    fn call<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a mut dyn ChunkSink,
    ) -> BoxFuture<'a, Result<Completion, CallError>> {
        Box::pin(self.answer(request, sink))
    }
}
