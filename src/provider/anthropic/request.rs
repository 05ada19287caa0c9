//! The request's bytes. Tool results and prompts that follow each other are one message; thoughts go back with their
//! signatures to the provider that signed them, and to no other.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::wire::{Replay, ReplayBlock};
use crate::event::{Block, Message, Role};
use crate::provider::images::{Base64, Said};
use crate::provider::{Images, ModelRequest};

/// Output limit when nothing says one; this wire has no default of its own.
const MAX_TOKENS: u64 = 32_000;
/// Tokens of thought for each effort; a budget is below the output limit and at least 1024.
const BUDGETS: [(&str, u64); 3] = [("low", 4_096), ("medium", 10_240), ("max", 32_768)];
const BUDGET: u64 = 16_384;
const BUDGET_MIN: u64 = 1_024;
/// Messages whose end is marked for the cache; with tools and instructions these are the four that the wire allows.
const MARKED_MESSAGES: usize = 2;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Entry<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Thinking {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u64>,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct Entry<'a> {
    role: &'static str,
    content: Vec<Part<'a>>,
}

/// A block, and whether the provider may cache all that goes before.
#[derive(Serialize)]
struct Part<'a> {
    #[serde(flatten)]
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    r#type: &'static str,
}

const EPHEMERAL: CacheControl = CacheControl { r#type: "ephemeral" };

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Thinking {
        thinking: &'a str,
        signature: Cow<'a, str>,
    },
    RedactedThinking {
        data: Cow<'a, str>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: Cow<'a, RawValue>,
    },
    Image {
        source: ImageSource<'a>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: ResultContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
struct ImageSource<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: Base64<'a>,
}

/// A result is a text, and parts where there are pictures.
#[derive(Serialize)]
#[serde(untagged)]
enum ResultContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Content<'a>>),
}

impl<'a> From<Content<'a>> for Part<'a> {
    fn from(content: Content<'a>) -> Self {
        Self { content, cache_control: None }
    }
}

/// Writes the request.
///
/// # Errors
/// None in practice: all of it is text.
pub(super) fn body(request: &ModelRequest, provider: &str) -> Result<Vec<u8>, serde_json::Error> {
    let abilities = &request.abilities;
    let effort = request.reasoning_effort.as_deref();
    let is_off = matches!(effort, Some("none" | "off" | "disabled"));
    let max_tokens = request.max_tokens.or(abilities.max_output).unwrap_or(MAX_TOKENS);
    let tools = request.tools.iter().filter(|_| abilities.tools).map(|tool| Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.parameters,
        cache_control: None,
    });
    let mut tools: Vec<_> = tools.collect();
    let mut system = Vec::new();
    let mut messages: Vec<Entry<'_>> = Vec::new();
    for message in &request.messages {
        let (role, parts) = match message.role {
            Role::System => {
                system.extend(said(message, &request.images).map(Part::from));
                continue;
            }
            Role::User => ("user", said(message, &request.images).map(Part::from).collect()),
            Role::Tool => ("user", vec![result(message, &request.images)]),
            Role::Assistant => ("assistant", answer(message, provider, &request.model)?),
        };
        match messages.last_mut() {
            Some(last) if last.role == role => last.content.extend(parts),
            _other if parts.is_empty() => {}
            _other => messages.push(Entry { role, content: parts }),
        }
    }
    mark(&mut tools, &mut system, &mut messages);
    let is_off = is_off || (!abilities.adaptive_thinking && lacks_thoughts(&messages));
    serde_json::to_vec(&Body {
        model: &request.model,
        max_tokens,
        system,
        tools,
        messages,
        stream: true,
        thinking: abilities
            .thinking
            .then(|| thinking(effort, is_off, abilities.adaptive_thinking, max_tokens)),
        output_config: effort
            .filter(|_| abilities.reasoning_effort && !is_off)
            .map(|effort| OutputConfig { effort }),
    })
}

/// Marks where a prefix ends that will come again: after the tools, the instructions, and the last two messages that are
/// not the model's. The provider looks for the longest one that it knows only a few blocks before a mark, so the mark of the
/// last request is kept.
fn mark(tools: &mut [Tool<'_>], system: &mut [Part<'_>], messages: &mut [Entry<'_>]) {
    if let Some(tool) = tools.last_mut() {
        tool.cache_control = Some(EPHEMERAL);
    }
    if let Some(part) = system.last_mut() {
        part.cache_control = Some(EPHEMERAL);
    }
    let asked = messages.iter_mut().rev().filter(|entry| entry.role == "user");
    for part in asked.filter_map(|entry| entry.content.last_mut()).take(MARKED_MESSAGES) {
        part.cache_control = Some(EPHEMERAL);
    }
}

/// Whether the model is in the midst of calls that began without a signed thought, as another model's do: thinking can't
/// be switched on before it is asked anew.
fn lacks_thoughts(messages: &[Entry<'_>]) -> bool {
    let is_result = |part: &Part<'_>| matches!(part.content, Content::ToolResult { .. });
    let is_thought =
        |part: &Part<'_>| matches!(part.content, Content::Thinking { .. } | Content::RedactedThinking { .. });
    let asked = |entry: &Entry<'_>| entry.role == "user" && !entry.content.iter().any(is_result);
    let start = messages.iter().rposition(asked).map_or(0, |at| at + 1);
    let first = messages[start..].iter().find(|entry| entry.role == "assistant");
    first.is_some_and(|entry| !entry.content.first().is_some_and(is_thought))
}

fn thinking(effort: Option<&str>, is_off: bool, is_adaptive: bool, max_tokens: u64) -> Thinking {
    // A budget below the least one is no budget.
    if is_off || max_tokens <= BUDGET_MIN {
        return Thinking { r#type: "disabled", budget_tokens: None };
    }
    if is_adaptive {
        return Thinking { r#type: "adaptive", budget_tokens: None };
    }
    let wanted = BUDGETS.iter().find(|(name, _)| Some(*name) == effort).map_or(BUDGET, |(_, budget)| *budget);
    Thinking { r#type: "enabled", budget_tokens: Some(wanted.min(max_tokens - 1).max(BUDGET_MIN)) }
}

/// Texts and pictures.
fn said<'a>(message: &'a Message, images: &'a Images) -> impl Iterator<Item = Content<'a>> {
    images.said(message).filter_map(|said| match said {
        Said::Text(text) => words(text),
        Said::Missing(text) => words(text),
        Said::Picture(picture) => Some(Content::Image {
            source: ImageSource { r#type: "base64", media_type: picture.media_type, data: picture.base64() },
        }),
    })
}

/// A text block. One that is nothing but white space is refused on this wire.
fn words<'a>(text: impl Into<Cow<'a, str>>) -> Option<Content<'a>> {
    let text = text.into();
    (!text.trim().is_empty()).then_some(Content::Text { text })
}

fn result<'a>(message: &'a Message, images: &'a Images) -> Part<'a> {
    let content = if images.pictures(message).next().is_some() {
        ResultContent::Parts(said(message, images).collect())
    } else {
        let text = images.words(message);
        ResultContent::Text(if text.is_empty() { Cow::Borrowed("(no output)") } else { text })
    };
    let tool_use_id = call_id(message.tool_call_id.as_deref().unwrap_or_default());
    Content::ToolResult { tool_use_id, content, is_error: message.is_error == Some(true) }.into()
}

/// An answer's blocks in the order in which they came.
fn answer<'a>(message: &'a Message, provider: &str, model: &str) -> Result<Vec<Part<'a>>, serde_json::Error> {
    let source = &message.source;
    let ours = source.provider.as_deref() == Some(provider) && source.model.as_deref() == Some(model);
    let state = source.replay_state.as_deref().filter(|_| ours);
    let replay: Replay<'a> =
        state.and_then(|state| serde_json::from_str(state.get()).ok()).unwrap_or_default();
    let is_ours = replay.kind == "anthropic" && matches(&replay.blocks, &message.content);
    let mut kept = if is_ours { replay.blocks } else { Vec::new() }.into_iter();
    let mut parts = Vec::new();
    for block in &message.content {
        let state = next_shown(&mut kept, &mut parts);
        match block {
            Block::Text { text } => parts.extend(words(text).map(Part::from)),
            Block::Reasoning { text } => {
                // Unsigned thoughts of others are refused; they are left out.
                if let Some(state) = state {
                    let signature = state.signature.unwrap_or_default();
                    parts.push(Content::Thinking { thinking: text, signature }.into());
                }
            }
            Block::ToolCall { id, name, arguments } => {
                parts.push(Content::ToolUse { id: call_id(id), name, input: input(arguments)? }.into());
            }
            // No model answers with a picture.
            Block::Image { .. } => {}
        }
    }
    next_shown(&mut kept, &mut parts);
    Ok(parts)
}

/// The next block that a message holds; those before it that none holds go back as they came.
fn next_shown<'a>(
    kept: &mut std::vec::IntoIter<ReplayBlock<'a>>,
    parts: &mut Vec<Part<'a>>,
) -> Option<ReplayBlock<'a>> {
    for block in kept.by_ref() {
        if !block.is_hidden() {
            return Some(block);
        }
        let content = match block.data {
            Some(data) => Content::RedactedThinking { data },
            None => Content::Thinking { thinking: "", signature: block.signature.unwrap_or_default() },
        };
        parts.push(content.into());
    }
    None
}

/// Whether what was kept is of this content. Blocks that said nothing are in no message.
fn matches(kept: &[ReplayBlock<'_>], content: &[Block]) -> bool {
    let kinds = content.iter().map(|block| match block {
        Block::Text { .. } => "text",
        Block::Reasoning { .. } => "thinking",
        Block::ToolCall { .. } => "tool_use",
        Block::Image { .. } => "image",
    });
    kept.iter().filter(|block| !block.is_hidden()).map(|block| &*block.kind).eq(kinds)
}

/// Arguments go back as the object that they are, byte for byte. What is no object is wrapped, so that the model sees it.
fn input(arguments: &str) -> Result<Cow<'_, RawValue>, serde_json::Error> {
    #[derive(Serialize)]
    struct Invalid<'a> {
        invalid_arguments: &'a str,
    }
    match serde_json::from_str::<&RawValue>(arguments) {
        Ok(raw) if raw.get().starts_with('{') => Ok(Cow::Borrowed(raw)),
        _other if arguments.trim().is_empty() => Ok(Cow::Owned(RawValue::from_string("{}".to_owned())?)),
        _other => serde_json::value::to_raw_value(&Invalid { invalid_arguments: arguments }).map(Cow::Owned),
    }
}

/// Ids of other wires may hold characters that this one refuses.
fn call_id(id: &str) -> Cow<'_, str> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.chars().all(is_fine) {
        return Cow::Borrowed(id);
    }
    let replaced: String = id.chars().map(|c| if is_fine(c) { c } else { '_' }).collect();
    Cow::Owned(if replaced.is_empty() { "_".to_owned() } else { replaced })
}
