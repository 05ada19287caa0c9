//! What the events of a stream hold, and what of an answer is kept for replay. Every field may be missing or null.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::Usage;
use crate::provider::json::{Few, Text};
use crate::provider::stream::Wire;

/// One event's data, whichever it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    pub(super) output_index: Option<u32>,
    /// Of a text's part; of a thought's part, `summary_index`.
    pub(super) content_index: Option<u32>,
    pub(super) summary_index: Option<u32>,
    #[serde(borrow)]
    pub(super) item_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    /// The whole of a part, when it ends.
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl Wire for StreamEvent<'_> {
    type Event<'e> = StreamEvent<'e>;

    const NAME: &'static str = "an event";
}

/// An item of the output.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputItem<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) call_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    /// A text; an object from servers that are not OpenAI's.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    /// Whether a message is a comment or the answer.
    #[serde(borrow)]
    pub(super) phase: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) content: Option<Few<Part<'a>>>,
    #[serde(borrow)]
    pub(super) summary: Option<Few<Part<'a>>>,
    #[serde(borrow)]
    pub(super) encrypted_content: Option<Text<'a>>,
}

/// A part of an item.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
}

/// The response as the last event tells it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub(super) output: Option<Few<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) incomplete_details: Option<Incomplete<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Incomplete<'a> {
    #[serde(borrow)]
    pub(super) reason: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UsageCounts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

/// Reads usage into disjoint counts; `None` for what can't be read.
pub(super) fn usage(raw: &str) -> Option<Usage> {
    let counts: UsageCounts = serde_json::from_str::<Option<UsageCounts>>(raw).ok()??;
    let input = counts.input_tokens.unwrap_or_default();
    let output = counts.output_tokens.unwrap_or_default();
    let cached = counts.input_tokens_details.and_then(|details| details.cached_tokens);
    let cached = cached.unwrap_or_default().min(input);
    Some(Usage {
        input_tokens: input - cached,
        output_tokens: output,
        cache_read_tokens: cached,
        cache_write_tokens: 0,
        total_tokens: input.saturating_add(output),
    })
}

/// The adapter's `replayState`: the items as they came, with what a message does not hold.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Replay<'a> {
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    pub(super) version: u32,
    #[serde(borrow)]
    pub(super) items: Vec<ReplayItem<'a>>,
}

/// An item's kind, and what must go back with it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct ReplayItem<'a> {
    /// `message`, `refusal`, `reasoning`, `function_call`.
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    /// `reasoning`: no message holds a block of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) hidden: bool,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<Cow<'a, str>>,
    /// `reasoning`: the item, byte for byte.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) raw: Option<&'a RawValue>,
}
