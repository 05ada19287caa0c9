//! The request's bytes: stable parts first, every message the same in each later request, raw strings as they came.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::think;
use crate::event::{Block, Message, Role, ToolSpec};
use crate::provider::images::{DataUrl, Picture, Said};
use crate::provider::{Images, ModelRequest};

/// Reasoning goes back under this name when it came under none.
const REASONING_NAME: &str = "reasoning_content";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Entry<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Thinking {
    r#type: &'static str,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: &'a ToolSpec,
}

/// A message. Its content is a text, `""` when there is none, or parts when there are pictures.
#[derive(Serialize)]
struct Entry<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// What this adapter kept of an answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Replay<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    reasoning: Cow<'a, str>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
}

/// Writes the request.
///
/// # Errors
/// None in practice: all of it is text.
pub(super) fn body(request: &ModelRequest, provider: &str) -> Result<Vec<u8>, serde_json::Error> {
    let abilities = &request.abilities;
    let effort = request.reasoning_effort.as_deref();
    let is_off = matches!(effort, Some("none" | "off" | "disabled"));
    let function = |spec| Tool { r#type: "function", function: spec };
    let tools: Vec<_> =
        if abilities.tools { request.tools.iter().map(function).collect() } else { Vec::new() };
    let max_tokens = request.max_tokens.or(abilities.max_output);
    serde_json::to_vec(&Body {
        model: &request.model,
        parallel_tool_calls: (abilities.parallel_tool_calls && !tools.is_empty()).then_some(true),
        tools,
        messages: entries(request, provider),
        stream: true,
        stream_options: abilities.stream_usage.then_some(StreamOptions { include_usage: true }),
        max_tokens: max_tokens.filter(|_| !abilities.max_completion_tokens),
        max_completion_tokens: max_tokens.filter(|_| abilities.max_completion_tokens),
        thinking: abilities
            .thinking
            .then_some(Thinking { r#type: if is_off { "disabled" } else { "enabled" } }),
        reasoning_effort: effort.filter(|_| abilities.reasoning_effort && !is_off),
    })
}

fn entries<'a>(request: &'a ModelRequest, provider: &str) -> Vec<Entry<'a>> {
    let mut entries = Vec::with_capacity(request.messages.len());
    // A result is a text on this wire. Its pictures follow as a prompt, once all results of the answer are there.
    let mut pictures = Vec::new();
    for message in &request.messages {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            let mut of_result = request.images.pictures(message).map(part).peekable();
            if of_result.peek().is_some() {
                pictures.push(Part::Text { text: format!("The images that {id} returned:").into() });
            }
            pictures.extend(of_result);
        } else if !pictures.is_empty() {
            entries.push(plain("user", Content::Parts(std::mem::take(&mut pictures))));
        }
        entries.extend(entry(message, &request.images, provider, request.abilities.thinking));
    }
    if !pictures.is_empty() {
        entries.push(plain("user", Content::Parts(pictures)));
    }
    entries
}

fn entry<'a>(message: &'a Message, images: &'a Images, provider: &str, thinking: bool) -> Option<Entry<'a>> {
    match message.role {
        Role::System => Some(plain("system", Content::Text(text(message)))),
        Role::User => Some(plain("user", prompt(message, images))),
        Role::Tool => {
            let content = images.words(message);
            let content = if content.is_empty() { Cow::Borrowed("(no output)") } else { content };
            let plain = plain("tool", Content::Text(content));
            Some(Entry { tool_call_id: message.tool_call_id.as_deref(), ..plain })
        }
        Role::Assistant => assistant(message, provider, thinking),
    }
}

fn plain<'a>(role: &'static str, content: Content<'a>) -> Entry<'a> {
    Entry {
        role,
        tool_call_id: None,
        content,
        reasoning_content: None,
        reasoning: None,
        reasoning_details: None,
        tool_calls: Vec::new(),
    }
}

/// A prompt is a text, and parts only where pictures go along: not every server knows parts.
fn prompt<'a>(message: &'a Message, images: &'a Images) -> Content<'a> {
    if images.pictures(message).next().is_none() {
        return Content::Text(images.words(message));
    }
    let parts = images.said(message).map(|said| match said {
        Said::Text(text) => Part::Text { text: text.into() },
        Said::Missing(text) => Part::Text { text: text.into() },
        Said::Picture(picture) => part(picture),
    });
    Content::Parts(parts.collect())
}

fn part(picture: Picture<'_>) -> Part<'_> {
    Part::ImageUrl { image_url: ImageUrl { url: picture.data_url() } }
}

/// An answer goes back as it came. Thoughts of another provider go only to a model that wants thoughts.
fn assistant<'a>(message: &'a Message, provider: &str, thinking: bool) -> Option<Entry<'a>> {
    let said = text(message);
    let tool_calls = message.content.iter().filter_map(|block| match block {
        Block::ToolCall { id, name, arguments } => {
            Some(ToolCall { id, r#type: "function", function: Function { name, arguments } })
        }
        Block::Text { .. } | Block::Reasoning { .. } | Block::Image { .. } => None,
    });
    let tool_calls: Vec<_> = tool_calls.collect();
    if said.is_empty() && tool_calls.is_empty() {
        return None;
    }
    let ours = message.source.provider.as_deref() == Some(provider);
    let state = message.source.replay_state.as_deref().filter(|_| ours);
    let replay: Replay<'_> =
        state.and_then(|state| serde_json::from_str(state.get()).ok()).unwrap_or_default();
    let replay = if replay.kind == "chat" { replay } else { Replay::default() };
    let reasoning = joined(message, |block| match block {
        Block::Reasoning { text } => Some(text),
        Block::Text { .. } | Block::ToolCall { .. } | Block::Image { .. } => None,
    });
    let thought = (&*replay.reasoning == "think-tags").then(|| think::joined(&reasoning, &said));
    let content = Content::Text(thought.map_or(said, Cow::Owned));
    let mut entry = Entry { tool_calls, reasoning_details: replay.details, ..plain("assistant", content) };
    match &*replay.reasoning {
        "think-tags" => {}
        "reasoning" => entry.reasoning = Some(reasoning),
        REASONING_NAME => entry.reasoning_content = Some(reasoning),
        _other => {
            // DeepSeek refuses a turn with calls whose reasoning is left out, even if there was none.
            let wanted = !reasoning.is_empty() || !entry.tool_calls.is_empty();
            entry.reasoning_content = (thinking && wanted).then_some(reasoning);
        }
    }
    Some(entry)
}

fn text(message: &Message) -> Cow<'_, str> {
    joined(message, |block| match block {
        Block::Text { text } => Some(text),
        Block::Reasoning { .. } | Block::ToolCall { .. } | Block::Image { .. } => None,
    })
}

fn joined<'a>(message: &'a Message, pick: impl Fn(&'a Block) -> Option<&'a String>) -> Cow<'a, str> {
    let mut texts = message.content.iter().filter_map(pick);
    let Some(first) = texts.next() else { return Cow::Borrowed("") };
    let mut joined = Cow::Borrowed(first.as_str());
    for text in texts {
        joined.to_mut().push_str(text);
    }
    joined
}
