//! What the events of a stream hold, and what of an answer is kept for replay. Every field may be missing.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::provider::json::Text;
use crate::provider::stream::Wire;

/// One event's data, whichever it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    pub(super) index: Option<u32>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Option<ContentBlock<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<MessageStart<'a>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl Wire for StreamEvent<'_> {
    type Event<'e> = StreamEvent<'e>;

    const NAME: &'static str = "an event";
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) partial_json: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) signature: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContentBlock<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) signature: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) data: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageStart<'a> {
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

/// Counts so far; each event may give any of them anew.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the names of the wire")]
pub(super) struct Counts {
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) cache_read_input_tokens: Option<u64>,
    pub(super) cache_creation_input_tokens: Option<u64>,
}

impl Counts {
    /// The latest word on each count.
    pub(super) fn updated(self, later: Self) -> Self {
        Self {
            input_tokens: later.input_tokens.or(self.input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
            cache_read_input_tokens: later.cache_read_input_tokens.or(self.cache_read_input_tokens),
            cache_creation_input_tokens: later
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
        }
    }
}

/// The adapter's `replayState`: the blocks as they came, with what a message does not hold.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Replay<'a> {
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    pub(super) version: u32,
    #[serde(borrow)]
    pub(super) blocks: Vec<ReplayBlock<'a>>,
}

/// A block of thoughts of which only the signature came.
pub(super) const OMITTED_THINKING: &str = "omitted_thinking";

/// A block's kind, and what must go back with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct ReplayBlock<'a> {
    /// `text`, `thinking`, `tool_use`; or `redacted_thinking` and [`OMITTED_THINKING`], which are in no message.
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Cow<'a, str>>,
}

impl ReplayBlock<'_> {
    /// Whether no message holds the block.
    pub(super) fn is_hidden(&self) -> bool {
        self.kind == "redacted_thinking" || self.kind == OMITTED_THINKING
    }
}
