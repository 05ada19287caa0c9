//! From events to blocks: each content block of the wire is one of ours, except redacted thoughts, which are only kept
//! for replay.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::wire::{ContentBlock, Counts, Delta, OMITTED_THINKING, Replay, ReplayBlock, StreamEvent};
use crate::event::{FailureCode, Usage};
use crate::provider::blocks::Writer;
use crate::provider::failure::Blame;
use crate::provider::json::{SurrogateFilter, Text, unescape};
use crate::provider::sse::Event;
use crate::provider::stream::{Flow, Parser, cut_short, read_event};
use crate::provider::{BlockKind, CallError, Completion, Finish, Retry};

/// Content blocks of one answer.
const BLOCKS_MAX: usize = 1024;

/// A content block that came.
struct Open {
    index: u32,
    /// Ours; none for what no message holds.
    block: Option<u32>,
    kind: &'static str,
    signature: String,
    data: String,
    /// `tool_use`: what the start gave as input, played when no piece of it follows.
    input: String,
    filter: SurrogateFilter,
    wrote: bool,
    ended: bool,
}

/// Reads one answer.
pub(in crate::provider) struct MessagesParser<'e> {
    blame: Blame<'e>,
    blocks: Vec<Open>,
    counts: Option<Counts>,
    finish: Option<Finish>,
    scratch: String,
}

impl<'e> MessagesParser<'e> {
    pub(in crate::provider) fn new(blame: Blame<'e>) -> Self {
        Self { blame, blocks: Vec::new(), counts: None, finish: None, scratch: String::new() }
    }

    fn take(&mut self, event: StreamEvent<'_>, data: &str, out: &mut Writer<'_>) -> Result<Flow, CallError> {
        let kind = event.kind.as_ref().map_or("", Text::as_str);
        match kind {
            "content_block_delta" => {
                let index = event.index.unwrap_or_default();
                event.delta.map_or(Ok(()), |delta| self.delta(index, &delta, out))?;
            }
            "content_block_start" => {
                let index = event.index.unwrap_or_default();
                event.content_block.map_or(Ok(()), |block| self.start(index, &block, out))?;
            }
            "content_block_stop" => self.stop(event.index.unwrap_or_default(), out),
            "message_start" => self.count(event.message.and_then(|message| message.usage)),
            "message_delta" => {
                self.count(event.usage);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.finish = Some(self.finish_of(reason.as_str()));
                }
            }
            "message_stop" => return Ok(Flow::Done),
            "error" => return Err(self.blame.in_stream(event.error.map_or(data, RawValue::get))),
            _other => {
                if let Some(error) = event.error {
                    return Err(self.blame.in_stream(error.get()));
                }
            }
        }
        Ok(Flow::More)
    }

    fn start(&mut self, index: u32, block: &ContentBlock<'_>, out: &mut Writer<'_>) -> Result<(), CallError> {
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(self.blame.malformed("the answer holds more than 1024 blocks"));
        }
        let (kind, ours) = match block.kind.as_ref().map_or("", Text::as_str) {
            "text" => ("text", Some(BlockKind::Text)),
            "thinking" => ("thinking", Some(BlockKind::Reasoning)),
            "tool_use" => ("tool_use", Some(BlockKind::ToolCall)),
            "redacted_thinking" => ("redacted_thinking", None),
            other => {
                tracing::info!(
                    provider = self.blame.provider,
                    kind = other,
                    "unknown content block, passed over"
                );
                ("", None)
            }
        };
        let own =
            |text: &Option<Text<'_>>| text.as_ref().map_or_else(String::new, |text| text.as_str().to_owned());
        let open = Open {
            index,
            block: ours.map(|kind| out.start(kind)),
            kind,
            signature: own(&block.signature),
            data: own(&block.data),
            input: block.input.map_or_else(String::new, |input| input.get().to_owned()),
            filter: SurrogateFilter::default(),
            wrote: false,
            ended: false,
        };
        if let (Some(BlockKind::ToolCall), Some(ours)) = (ours, open.block) {
            let name = own(&block.name);
            if name.is_empty() {
                return Err(self.blame.malformed("a tool call came without a name"));
            }
            let id = Some(own(&block.id)).filter(|id| !id.is_empty());
            let id = id.unwrap_or_else(|| format!("call_{}", uuid::Uuid::new_v4().simple()));
            out.name(ours, &id, &name);
        }
        self.blocks.push(open);
        for text in [block.text, block.thinking].into_iter().flatten() {
            self.write(self.blocks.len() - 1, text, out)?;
        }
        Ok(())
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>, out: &mut Writer<'_>) -> Result<(), CallError> {
        let Some(at) = self.blocks.iter().rposition(|open| open.index == index && !open.ended) else {
            return Err(self.blame.malformed("a delta came for a block that is not open"));
        };
        for text in [delta.text, delta.thinking, delta.partial_json].into_iter().flatten() {
            self.write(at, text, out)?;
        }
        if let Some(signature) = &delta.signature {
            self.blocks[at].signature.push_str(signature.as_str());
        }
        Ok(())
    }

    fn write(&mut self, at: usize, raw: &RawValue, out: &mut Writer<'_>) -> Result<(), CallError> {
        let open = &mut self.blocks[at];
        let Some(block) = open.block else { return Ok(()) };
        open.wrote |= raw.get() != "\"\"";
        let is_text = if open.kind == "tool_use" {
            let scratch = &mut self.scratch;
            scratch.clear();
            let is_text = unescape(raw.get(), scratch);
            out.append(block, |text| open.filter.push(scratch, text));
            is_text
        } else {
            out.append(block, |text| unescape(raw.get(), text))
        };
        if is_text { Ok(()) } else { Err(self.blame.malformed("the text of a delta is no text")) }
    }

    fn stop(&mut self, index: u32, out: &mut Writer<'_>) {
        let open = self.blocks.iter_mut().rfind(|open| open.index == index && !open.ended);
        if let Some(open) = open {
            end(open, out);
        }
    }

    fn end_all(&mut self, out: &mut Writer<'_>) {
        for open in self.blocks.iter_mut().filter(|open| !open.ended) {
            end(open, out);
        }
    }

    fn count(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        match serde_json::from_str(raw.get()) {
            Ok(later) => self.counts = Some(self.counts.unwrap_or_default().updated(later)),
            Err(error) => tracing::info!(provider = self.blame.provider, %error, "usage that can't be read"),
        }
    }

    fn finish_of(&self, reason: &str) -> Finish {
        match reason {
            "max_tokens" | "model_context_window_exceeded" => Finish::Length,
            "refusal" => Finish::ContentFilter,
            "pause_turn" => Finish::Pause,
            "end_turn" | "tool_use" | "stop_sequence" => Finish::Stop,
            other => {
                tracing::info!(
                    provider = self.blame.provider,
                    reason = other,
                    "unknown stop reason, taken as stop"
                );
                Finish::Stop
            }
        }
    }

    fn usage(&self) -> Option<Usage> {
        let counts = self.counts?;
        let input_tokens = counts.input_tokens.unwrap_or_default();
        let output_tokens = counts.output_tokens.unwrap_or_default();
        let cache_read_tokens = counts.cache_read_input_tokens.unwrap_or_default();
        let cache_write_tokens = counts.cache_creation_input_tokens.unwrap_or_default();
        let total_tokens = input_tokens
            .saturating_add(output_tokens)
            .saturating_add(cache_read_tokens)
            .saturating_add(cache_write_tokens);
        Some(Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, total_tokens })
    }

    /// What must go back, when a message does not hold it all.
    fn replay_state(&self) -> Option<Box<RawValue>> {
        if !self.blocks.iter().any(|open| matches!(open.kind, "thinking" | "redacted_thinking")) {
            return None;
        }
        let some = |text: &String| (!text.is_empty()).then(|| Cow::Owned(text.clone()));
        let blocks = self.blocks.iter().filter_map(|open| {
            let kind = match (open.kind, open.wrote) {
                ("thinking", false) if !open.signature.is_empty() => OMITTED_THINKING,
                ("" | "thinking" | "text", false) => return None,
                (kind, _) => kind,
            };
            let (signature, data) = (some(&open.signature), some(&open.data));
            Some(ReplayBlock { kind: Cow::Borrowed(kind), signature, data })
        });
        let replay = Replay { kind: Cow::Borrowed("anthropic"), version: 1, blocks: blocks.collect() };
        serde_json::value::to_raw_value(&replay).ok()
    }
}

fn end(open: &mut Open, out: &mut Writer<'_>) {
    open.ended = true;
    let Some(block) = open.block else { return };
    if open.kind == "tool_use" {
        let (wrote, filter, input) = (open.wrote, &mut open.filter, &open.input);
        out.append(block, |text| {
            if !wrote {
                filter.push(input, text);
            }
            filter.finish(text);
        });
    }
    out.end(block);
}

impl Parser for MessagesParser<'_> {
    fn event(&mut self, event: Event<'_>, out: &mut Writer<'_>) -> Result<Flow, CallError> {
        if event.data == b"[DONE]" {
            return Ok(Flow::Done);
        }
        let blame = self.blame;
        read_event::<StreamEvent<'_>, _>(&event, blame, |parsed, data| {
            if event.is_error {
                return Err(blame.in_stream(parsed.error.map_or(data, RawValue::get)));
            }
            self.take(parsed, data, out)
        })
    }

    fn finished(&self) -> bool {
        self.finish.is_some()
    }

    fn close(mut self, out: &mut Writer<'_>) -> Result<Completion, CallError> {
        let Some(finish) = self.finish else { return Err(self.blame.truncated()) };
        self.end_all(out);
        if finish == Finish::Stop && !out.began() {
            let what = "the model ended its answer without saying anything";
            return Err(self.blame.fail(FailureCode::EmptyResponse, Retry::Backoff, what));
        }
        Ok(Completion { finish, usage: self.usage(), replay_state: self.replay_state() })
    }

    fn cut(mut self, out: &mut Writer<'_>) -> Completion {
        self.end_all(out);
        cut_short()
    }
}
