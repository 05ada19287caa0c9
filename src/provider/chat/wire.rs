//! What a chunk of the stream holds. Every field may be missing or null, unknown ones are passed over, and text stays
//! raw until its buffer is known.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::Usage;
use crate::provider::json::{Few, Text};
use crate::provider::stream::Wire;

/// One event's data.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Few<Choice<'a>>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// `error` in vLLM's own form.
    #[serde(borrow)]
    pub(super) object: Option<Text<'a>>,
}

impl Wire for Chunk<'_> {
    type Event<'e> = Chunk<'e>;

    const NAME: &'static str = "a chunk";
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    /// OpenAI's: why the model won't.
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    /// The name of DeepSeek, SGLang, llama.cpp, LM Studio, vLLM up to 0.16.
    #[serde(borrow)]
    pub(super) reasoning_content: Option<&'a RawValue>,
    /// The name of vLLM from 0.17, Ollama, `OpenRouter`.
    #[serde(borrow)]
    pub(super) reasoning: Option<&'a RawValue>,
    /// `OpenRouter`'s: what it wants back.
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Few<CallDelta<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta<'a> {
    pub(super) index: Option<u32>,
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) function: Option<FunctionDelta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    /// A text; an object from LiteLLM with Ollama.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UsageChunk {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    /// DeepSeek's count of cached tokens.
    prompt_cache_hit_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

/// Reads usage into disjoint counts; `None` for what can't be read.
pub(super) fn usage(raw: &str) -> Option<Usage> {
    let chunk: UsageChunk = serde_json::from_str(raw).ok()?;
    let prompt = chunk.prompt_tokens.unwrap_or_default();
    let details = chunk.prompt_tokens_details.and_then(|details| details.cached_tokens);
    let cached = chunk.prompt_cache_hit_tokens.or(details).unwrap_or_default().min(prompt);
    let output = chunk.completion_tokens.unwrap_or_default();
    Some(Usage {
        input_tokens: prompt - cached,
        output_tokens: output,
        cache_read_tokens: cached,
        cache_write_tokens: 0,
        total_tokens: prompt.saturating_add(output),
    })
}
