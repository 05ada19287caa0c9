//! The OpenAI-compatible wire, `{base}/chat/completions`: DeepSeek's own, and what most servers speak.

mod calls;
mod parse;
mod request;
mod think;
mod wire;

#[cfg(test)]
mod quirks;
#[cfg(test)]
mod tests;

use futures_util::future::BoxFuture;
use reqwest::header::AUTHORIZATION;

pub(super) use self::parse::ChatParser;
use super::http::{Access, Endpoint};
use super::stream::read_answer;
use super::{CallError, ChunkSink, Completion, ModelRequest, Provider};
use crate::config::ProviderConfig;

/// The path below a provider's base.
const PATH: &str = "chat/completions";

/// A provider that speaks this wire.
pub(super) struct Chat {
    endpoint: Endpoint,
    think_tags: bool,
}

impl Chat {
    pub(super) fn new(name: &str, config: &ProviderConfig, access: Access) -> Self {
        Self { endpoint: Endpoint::new(name, config, PATH, access), think_tags: config.think_tags }
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
        let parser = ChatParser::new(blame, self.think_tags, !request.tools.is_empty());
        read_answer(body, sink, parser).await
    }
}

impl Provider for Chat {
    fn call<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a mut dyn ChunkSink,
    ) -> BoxFuture<'a, Result<Completion, CallError>> {
        Box::pin(self.answer(request, sink))
    }
}
