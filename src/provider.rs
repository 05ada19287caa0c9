//! Models: one trait, an adapter a wire. An adapter turns a request into bytes, and the answer's bytes into calls on a
//! [`ChunkSink`] that neither allocates nor waits.

mod anthropic;
mod blocks;
mod chat;
mod failure;
mod http;
mod images;
mod json;
pub mod registry;
mod responses;
pub mod retry;
mod scripted;
mod sse;
mod stream;

#[cfg(test)]
mod golden;
#[cfg(test)]
#[path = "../tests/it/model_server.rs"]
mod model_server;
#[cfg(test)]
mod test_picture;
#[cfg(test)]
mod test_sink;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

pub use self::images::Images;
#[doc(hidden)]
pub use self::sse::events_of as sse_events;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use crate::config::ModelConfig;
use crate::event::{Failure, Message, StepMark, ToolSpec, Usage};

/// What a model is asked. Stable parts first, so that prefix caches hit.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model's name, sent as is.
    pub model: String,
    /// What the model can do.
    pub abilities: ModelConfig,
    /// The conversation: a system message first when there is one, volatile facts last.
    pub messages: Vec<Arc<Message>>,
    /// The pictures that the messages name, as far as they go along.
    pub images: Images,
    /// The tools offered, in stable order.
    pub tools: Arc<[ToolSpec]>,
    /// Output limit in tokens.
    pub max_tokens: Option<u64>,
    /// How hard to think.
    pub reasoning_effort: Option<String>,
    /// Where in its session the request is; none: it belongs to no step. Never sent.
    pub place: Option<StepMark>,
}

/// What a block will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Plain text.
    Text,
    /// What the model thinks.
    Reasoning,
    /// A tool call; its text is the raw arguments.
    ToolCall,
}

/// The receiver wants no more (its bound is reached); the adapter drops the stream and returns [`Finish::Length`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enough;

/// Takes a model's answer while it arrives. Nothing here waits or fails.
pub trait ChunkSink: Send {
    /// Opens the next block and returns its index (0, 1, 2, …). Several may be open at once.
    fn start(&mut self, kind: BlockKind) -> u32;

    /// Adds text, whole characters only, to an open block.
    fn push(&mut self, index: u32, text: &str) -> ControlFlow<Enough>;

    /// Names a tool call. Adapters give each call a non-empty id before its `end`; the last word wins.
    fn name(&mut self, index: u32, id: &str, name: &str);

    /// Closes a block.
    fn end(&mut self, index: u32);
}

/// Why a model stopped, when it stopped by itself. Calls present decide what happens next, not this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It had said all, or wants tools run.
    Stop,
    /// The output limit was reached.
    Length,
    /// The provider's filter stopped it, or it refused.
    ContentFilter,
    /// It wants to be asked to go on from where it is.
    Pause,
}

/// A whole answer; its blocks went to the sink.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Why it ended.
    pub finish: Finish,
    /// What it cost, when told.
    pub usage: Option<Usage>,
    /// What must come back verbatim with the message in later requests; the adapter's own format.
    pub replay_state: Option<Box<RawValue>>,
}

/// Whether a failed call may be made again. The caller adds: only if nothing had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request would fail again.
    Never,
    /// After the usual back-off.
    Backoff,
    /// After what the provider asked for.
    After(Duration),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", failure.message)]
pub struct CallError {
    /// What clients are told.
    pub failure: Failure,
    /// Whether to call again.
    pub retry: Retry,
}

/// A provider of models.
pub trait Provider: Send + Sync {
    /// Makes one call. Dropping the future drops the response. What arrives goes to `sink` at once.
    fn call<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a mut dyn ChunkSink,
    ) -> BoxFuture<'a, Result<Completion, CallError>>;
}
