//! From chunks to blocks: text, reasoning, tool calls, the reason of the end, usage, errors.

use serde::Serialize;
use serde_json::value::RawValue;

use super::calls::Calls;
use super::think::ThinkSplitter;
use super::wire::{self, Chunk, Delta};
use crate::event::FailureCode;
use crate::provider::blocks::Writer;
use crate::provider::failure::Blame;
use crate::provider::json::{repaired, unescape};
use crate::provider::sse::Event;
use crate::provider::stream::{Flow, Parser, cut_short, read_event};
use crate::provider::{BlockKind, CallError, Completion, Finish, Retry};

/// Bytes of `reasoning_details` that are kept for replay.
const DETAILS_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of an answer's start that are looked at for a tool call in disguise.
const HEAD_BYTES: usize = 64;

/// What of an answer must come back as it was: the adapter's `replayState`.
#[derive(Debug, Default, Serialize)]
struct Replay<'a> {
    kind: &'static str,
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a RawValue>,
}

/// Reads one answer.
pub(in crate::provider) struct ChatParser<'e> {
    blame: Blame<'e>,
    think: Option<ThinkSplitter>,
    tools_offered: bool,
    /// The block of text or reasoning that is open.
    prose: Option<(BlockKind, u32)>,
    calls: Calls,
    finish: Option<Finish>,
    /// An empty finish reason came; it counts when `[DONE]` follows.
    weak_finish: bool,
    /// The text is a refusal.
    refused: bool,
    usage: String,
    reasoning_name: Option<&'static str>,
    details: String,
    head: String,
    scratch: String,
}

impl<'e> ChatParser<'e> {
    pub(in crate::provider) fn new(blame: Blame<'e>, think_tags: bool, tools_offered: bool) -> Self {
        Self {
            blame,
            think: think_tags.then(ThinkSplitter::new),
            tools_offered,
            prose: None,
            calls: Calls::default(),
            finish: None,
            weak_finish: false,
            refused: false,
            usage: String::new(),
            reasoning_name: None,
            details: String::new(),
            head: String::new(),
            scratch: String::new(),
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, data: &str, out: &mut Writer<'_>) -> Result<(), CallError> {
        if let Some(error) = chunk.error {
            return Err(self.blame.in_stream(error.get()));
        }
        if chunk.object.is_some_and(|object| object.as_str() == "error") {
            return Err(self.blame.in_stream(data));
        }
        if let Some(usage) = chunk.usage {
            self.usage.clear();
            self.usage.push_str(usage.get());
        }
        let Some(choice) = chunk.choices.and_then(|choices| choices.first) else { return Ok(()) };
        if let Some(delta) = choice.delta {
            self.delta(delta, out)?;
        }
        match choice.finish_reason {
            Some(reason) => self.finish_reason(reason.as_str()),
            None => Ok(()),
        }
    }

    fn delta(&mut self, delta: Delta<'_>, out: &mut Writer<'_>) -> Result<(), CallError> {
        let reasoning = [("reasoning_content", delta.reasoning_content), ("reasoning", delta.reasoning)];
        for (name, raw) in reasoning {
            let Some(raw) = raw.filter(|raw| raw.get() != "\"\"") else { continue };
            if *self.reasoning_name.get_or_insert(name) == name {
                let block = self.prose(BlockKind::Reasoning, out);
                self.write(block, raw, out)?;
            }
        }
        if let Some(details) = delta.reasoning_details {
            self.details(details.get());
        }
        if let Some(raw) = delta.content.filter(|raw| raw.get() != "\"\"") {
            self.content(raw, out)?;
        }
        if let Some(raw) = delta.refusal.filter(|raw| raw.get() != "\"\"") {
            self.refused = true;
            self.content(raw, out)?;
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.end_prose(out);
            self.calls.push(&call, out).map_err(|what| self.blame.malformed(what))?;
        }
        Ok(())
    }

    fn content(&mut self, raw: &RawValue, out: &mut Writer<'_>) -> Result<(), CallError> {
        if self.think.is_none() && self.head.len() >= HEAD_BYTES {
            let block = self.prose(BlockKind::Text, out);
            return self.write(block, raw, out);
        }
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        if !unescape(raw.get(), &mut text) {
            return Err(self.blame.malformed("the text of a delta is no text"));
        }
        if self.head.len() < HEAD_BYTES {
            self.head.push_str(&text);
        }
        if let Some(mut think) = self.think.take() {
            think.push(&text, &mut |kind, part| self.say(kind, part, out));
            self.think = Some(think);
        } else {
            self.say(BlockKind::Text, &text, out);
        }
        self.scratch = text;
        Ok(())
    }

    fn say(&mut self, kind: BlockKind, text: &str, out: &mut Writer<'_>) {
        if kind == BlockKind::Reasoning {
            self.reasoning_name.get_or_insert("think-tags");
        }
        let block = self.prose(kind, out);
        out.push(block, text);
    }

    fn write(&self, block: u32, raw: &RawValue, out: &mut Writer<'_>) -> Result<(), CallError> {
        if out.append(block, |text| unescape(raw.get(), text)) {
            return Ok(());
        }
        Err(self.blame.malformed("the text of a delta is no text"))
    }

    /// The open block of this kind; another one that is open ends.
    fn prose(&mut self, kind: BlockKind, out: &mut Writer<'_>) -> u32 {
        match self.prose {
            Some((open, block)) if open == kind => block,
            _other => {
                self.end_prose(out);
                let block = out.start(kind);
                self.prose = Some((kind, block));
                block
            }
        }
    }

    fn end_prose(&mut self, out: &mut Writer<'_>) {
        if let Some((_, block)) = self.prose.take() {
            out.end(block);
        }
    }

    /// Keeps the items of a list of details, to be sent back as one list.
    fn details(&mut self, raw: &str) {
        let items = raw.trim().strip_prefix('[').and_then(|raw| raw.strip_suffix(']')).map_or("", str::trim);
        if items.is_empty() || self.details.len() > DETAILS_BYTES_MAX {
            return;
        }
        self.details.push(if self.details.is_empty() { '[' } else { ',' });
        self.details.push_str(items);
    }

    fn finish_reason(&mut self, reason: &str) -> Result<(), CallError> {
        let finish = match reason {
            "" => {
                self.weak_finish = true;
                return Ok(());
            }
            "length" | "max_tokens" | "model_length" => Finish::Length,
            "content_filter" => Finish::ContentFilter,
            "stop" | "tool_calls" => Finish::Stop,
            "insufficient_system_resource" => {
                let what = "the model's server has too little room and broke the answer off";
                return Err(self.blame.fail(FailureCode::Server, Retry::Backoff, what));
            }
            other => {
                tracing::info!(
                    provider = self.blame.provider,
                    reason = other,
                    "unknown finish reason, taken as stop"
                );
                Finish::Stop
            }
        };
        self.finish = Some(finish);
        Ok(())
    }

    /// Some servers let a call slip into the text. It is shown as what it is, text; nothing runs.
    fn tell_of_leaked_call(&self) {
        const SIGNS: [&str; 6] =
            ["<tool_call>", "<|tool", "<｜tool", "<function", "{\"name\"", "[TOOL_CALLS]"];
        let head = self.head.trim_start().trim_start_matches("```json").trim_start();
        if self.tools_offered && self.calls.is_empty() && SIGNS.iter().any(|sign| head.starts_with(sign)) {
            tracing::warn!(
                provider = self.blame.provider,
                "the model's text looks like a tool call; it is not run"
            );
        }
    }

    fn replay_state(&mut self) -> Option<Box<RawValue>> {
        if !self.details.is_empty() {
            self.details.push(']');
        }
        let fits = self.details.len() <= DETAILS_BYTES_MAX;
        let details = Some(self.details.as_str()).filter(|_| fits);
        let details = details.and_then(|details| serde_json::from_str::<&RawValue>(details).ok());
        if self.reasoning_name.is_none() && details.is_none() {
            return None;
        }
        let replay = Replay { kind: "chat", version: 1, reasoning: self.reasoning_name, details };
        serde_json::value::to_raw_value(&replay).ok()
    }

    fn end_all(&mut self, out: &mut Writer<'_>) {
        if let Some(mut think) = self.think.take() {
            think.finish(&mut |kind, part| self.say(kind, part, out));
        }
        self.end_prose(out);
    }
}

impl Parser for ChatParser<'_> {
    fn event(&mut self, event: Event<'_>, out: &mut Writer<'_>) -> Result<Flow, CallError> {
        if event.data == b"[DONE]" {
            if self.weak_finish && self.finish.is_none() {
                self.finish = Some(Finish::Stop);
            }
            return Ok(Flow::Done);
        }
        if event.is_error {
            return Err(self.blame.in_stream(&repaired(event.data)));
        }
        read_event::<Chunk<'_>, _>(&event, self.blame, |chunk, data| self.chunk(chunk, data, out))?;
        Ok(Flow::More)
    }

    fn finished(&self) -> bool {
        self.finish.is_some()
    }

    fn close(mut self, out: &mut Writer<'_>) -> Result<Completion, CallError> {
        let Some(finish) = self.finish else { return Err(self.blame.truncated()) };
        self.end_all(out);
        self.calls.finish(out).map_err(|what| self.blame.malformed(what))?;
        if finish == Finish::Stop && !out.began() {
            let what = "the model ended its answer without saying anything";
            return Err(self.blame.fail(FailureCode::EmptyResponse, Retry::Backoff, what));
        }
        self.tell_of_leaked_call();
        let finish = if self.refused && finish == Finish::Stop { Finish::ContentFilter } else { finish };
        let usage = if self.usage.is_empty() { None } else { wire::usage(&self.usage) };
        Ok(Completion { finish, usage, replay_state: self.replay_state() })
    }

    fn cut(mut self, out: &mut Writer<'_>) -> Completion {
        self.end_all(out);
        self.calls.end(out);
        cut_short()
    }
}
