//! The request's bytes: nothing is stored at the provider, so the whole conversation goes as items, each the same in every
//! later request; thoughts go back sealed, as they came, to the model that thought them.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::wire::{Replay, ReplayItem};
use crate::event::{Block, Message, Role, ToolSpec};
use crate::provider::images::{DataUrl, Said};
use crate::provider::{Images, ModelRequest};

/// What must be asked for, so that thoughts can go back although nothing is stored.
const SEALED_THOUGHTS: &str = "reasoning.encrypted_content";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: Cow<'a, str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    input: Vec<Entry<'a>>,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
}

#[derive(Serialize)]
struct Reasoning<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    function: &'a ToolSpec,
    strict: bool,
}

/// An item of the input.
enum Entry<'a> {
    Said(Item<'a>),
    Kept(&'a RawValue),
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Said(item) => item.serialize(serializer),
            Self::Kept(raw) => raw.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: Vec<Part<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<Cow<'a, str>>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Output<'a>,
    },
}

/// A result is a text, and parts where there are pictures.
#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: Cow<'a, str> },
    InputImage { image_url: DataUrl<'a> },
    OutputText { text: &'a str },
    Refusal { refusal: &'a str },
}

/// Writes the request.
///
/// # Errors
/// None in practice: all of it is text.
pub(super) fn body(request: &ModelRequest, provider: &str) -> Result<Vec<u8>, serde_json::Error> {
    let abilities = &request.abilities;
    let tool = |function| Tool { r#type: "function", function, strict: false };
    let tools: Vec<_> = request.tools.iter().filter(|_| abilities.tools).map(tool).collect();
    let mut instructions = Cow::Borrowed("");
    let mut input = Vec::new();
    for message in &request.messages {
        match message.role {
            Role::System => {
                for text in texts(message) {
                    join(&mut instructions, text);
                }
            }
            Role::User => {
                let content: Vec<_> = said(message, &request.images).collect();
                if !content.is_empty() {
                    input.push(Entry::Said(Item::Message { role: "user", content, phase: None }));
                }
            }
            Role::Tool => input.push(Entry::Said(result(message, &request.images))),
            Role::Assistant => answer(message, provider, &request.model, &mut input),
        }
    }
    serde_json::to_vec(&Body {
        model: &request.model,
        instructions,
        parallel_tool_calls: (abilities.parallel_tool_calls && !tools.is_empty()).then_some(true),
        tools,
        input,
        stream: true,
        store: false,
        max_output_tokens: request.max_tokens.or(abilities.max_output),
        reasoning: reasoning(request),
        include: if abilities.thinking { &[SEALED_THOUGHTS] } else { &[] },
    })
}

fn reasoning(request: &ModelRequest) -> Option<Reasoning<'_>> {
    let abilities = &request.abilities;
    let effort = request.reasoning_effort.as_deref().filter(|_| abilities.reasoning_effort);
    // Off has one name on this wire.
    let effort = effort.map(|effort| if matches!(effort, "off" | "disabled") { "none" } else { effort });
    let summary = (abilities.thinking && abilities.reasoning_summary).then_some("auto");
    (effort.is_some() || summary.is_some()).then_some(Reasoning { effort, summary })
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()).filter(|text| !text.is_empty()),
        Block::Reasoning { .. } | Block::ToolCall { .. } | Block::Image { .. } => None,
    })
}

/// Texts and pictures.
fn said<'a>(message: &'a Message, images: &'a Images) -> impl Iterator<Item = Part<'a>> {
    images.said(message).filter_map(|said| match said {
        Said::Text("") => None,
        Said::Text(text) => Some(Part::InputText { text: text.into() }),
        Said::Missing(text) => Some(Part::InputText { text: text.into() }),
        Said::Picture(picture) => Some(Part::InputImage { image_url: picture.data_url() }),
    })
}

fn join<'a>(joined: &mut Cow<'a, str>, text: &'a str) {
    if joined.is_empty() {
        *joined = Cow::Borrowed(text);
    } else {
        let joined = joined.to_mut();
        joined.push_str("\n\n");
        joined.push_str(text);
    }
}

fn result<'a>(message: &'a Message, images: &'a Images) -> Item<'a> {
    let output = if images.pictures(message).next().is_some() {
        Output::Parts(said(message, images).collect())
    } else {
        let text = images.words(message);
        Output::Text(if text.is_empty() { Cow::Borrowed("(no output)") } else { text })
    };
    Item::FunctionCallOutput { call_id: message.tool_call_id.as_deref().unwrap_or_default(), output }
}

/// An answer's items in the order in which they came.
fn answer<'a>(message: &'a Message, provider: &str, model: &str, input: &mut Vec<Entry<'a>>) {
    let source = &message.source;
    let ours = source.provider.as_deref() == Some(provider) && source.model.as_deref() == Some(model);
    let state = source.replay_state.as_deref().filter(|_| ours);
    let replay: Replay<'a> =
        state.and_then(|state| serde_json::from_str(state.get()).ok()).unwrap_or_default();
    let is_ours = replay.kind == "responses" && fits(&replay.items, &message.content);
    let mut kept = if is_ours { replay.items } else { Vec::new() }.into_iter();
    let first = input.len();
    for block in &message.content {
        let item = next_shown(&mut kept, input);
        match block {
            Block::Text { text } if text.is_empty() => {}
            Block::Text { text } => {
                let refused = item.as_ref().is_some_and(|item| item.kind == "refusal");
                let part = if refused { Part::Refusal { refusal: text } } else { Part::OutputText { text } };
                let phase = item.and_then(|item| item.phase);
                input.push(Entry::Said(Item::Message { role: "assistant", content: vec![part], phase }));
            }
            // No model draws.
            Block::Image { .. } => {}
            // Thoughts of others are of no use here: they are left out.
            Block::Reasoning { .. } => input.extend(item.and_then(|item| item.raw).map(Entry::Kept)),
            Block::ToolCall { id, name, arguments } => {
                input.push(Entry::Said(Item::FunctionCall { call_id: id, name, arguments }));
            }
        }
    }
    next_shown(&mut kept, input);
    // A thought that nothing follows, as of an answer that was cut, is refused.
    while input.len() > first && matches!(input.last(), Some(Entry::Kept(_))) {
        input.pop();
    }
}

/// The next item that a message holds a block of; those before it that none holds go back as they came.
fn next_shown<'a>(
    kept: &mut std::vec::IntoIter<ReplayItem<'a>>,
    input: &mut Vec<Entry<'a>>,
) -> Option<ReplayItem<'a>> {
    for item in kept.by_ref() {
        if !item.hidden {
            return Some(item);
        }
        input.extend(item.raw.map(Entry::Kept));
    }
    None
}

/// Whether what was kept is of this content.
fn fits(kept: &[ReplayItem<'_>], content: &[Block]) -> bool {
    let is_of = |(item, block): (&ReplayItem<'_>, &Block)| match block {
        Block::Text { .. } => item.kind == "message" || item.kind == "refusal",
        Block::Reasoning { .. } => item.kind == "reasoning",
        Block::ToolCall { .. } => item.kind == "function_call",
        Block::Image { .. } => false,
    };
    let shown: Vec<_> = kept.iter().filter(|item| !item.hidden).collect();
    shown.len() == content.len() && shown.into_iter().zip(content).all(is_of)
}
