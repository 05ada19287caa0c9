//! Text in flight: what the running model call has written so far, as a value. The turn appends; subscribers slice.
//!
//! The text is kept JSON-escaped, so that a delta is a copy and nothing else. It never waits for a subscriber: one who
//! reads slowly gets fewer and longer deltas. Bounded by the turn (`limits.message_bytes`).

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::clock::now_ms;
use crate::provider::BlockKind;

/// The text in flight of one session, shared by its turn and its feed.
#[derive(Debug, Default)]
pub struct LiveText {
    live: Mutex<Slot>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Slot {
    attempt: Option<Attempt>,
    drawn: u64,
}

/// What one model call has written.
#[derive(Debug)]
pub struct Attempt {
    /// Unique in its session's life, so that a cursor knows whose offsets it holds.
    id: u64,
    turn: u32,
    step: u32,
    number: u32,
    blocks: Vec<BlockText>,
}

#[derive(Debug)]
struct BlockText {
    kind: BlockKind,
    escaped: String,
    /// A tool call's id and name, escaped.
    name: Option<(String, String)>,
    names: u32,
    open: bool,
}

/// How much of an attempt one subscriber has got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    attempt: u64,
    blocks: Vec<BlockProgress>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BlockProgress {
    started: bool,
    names: u32,
    offset: usize,
    ended: bool,
}

/// How an event becomes a line: what stands before and after its JSON.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Before.
    pub prefix: &'a [u8],
    /// After, newline included.
    pub suffix: &'a [u8],
}

impl LiveText {
    /// Begins the text of the step's `number`-th model call; what an earlier one left is dropped.
    pub fn begin(&self, turn: u32, step: u32, number: u32) {
        let mut slot = self.lock();
        slot.drawn += 1;
        slot.attempt = Some(Attempt { id: slot.drawn, turn, step, number, blocks: Vec::new() });
    }

    /// Opens the next block and returns its index.
    pub fn start(&self, kind: BlockKind) -> u32 {
        let mut slot = self.lock();
        let Some(attempt) = slot.attempt.as_mut() else { return 0 };
        attempt.blocks.push(BlockText { kind, escaped: String::new(), name: None, names: 0, open: true });
        let index = attempt.blocks.len() - 1;
        drop(slot);
        self.changed.notify_waiters();
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Adds text to a block.
    pub fn push(&self, index: u32, text: &str) {
        self.with_block(index, |block| escape_into(&mut block.escaped, text));
    }

    /// Names a tool call.
    pub fn name(&self, index: u32, id: &str, name: &str) {
        self.with_block(index, |block| {
            let (mut escaped_id, mut escaped_name) = (String::new(), String::new());
            escape_into(&mut escaped_id, id);
            escape_into(&mut escaped_name, name);
            block.name = Some((escaped_id, escaped_name));
            block.names += 1;
        });
    }

    /// Closes a block.
    pub fn end(&self, index: u32) {
        self.with_block(index, |block| block.open = false);
    }

    /// Drops what is in flight: it will have no message.
    pub fn discard(&self) {
        self.lock().attempt = None;
    }

    /// Takes what is in flight, to stand before its message. Blocks that are still open are closed.
    pub fn seal(&self) -> Option<Attempt> {
        let mut attempt = self.lock().attempt.take()?;
        for block in &mut attempt.blocks {
            block.open = false;
        }
        Some(attempt)
    }

    /// What `progress` lacks of the text in flight, as finished lines; moves it on. `None`: nothing.
    pub fn lines_since(&self, progress: &mut Progress, frame: Frame<'_>) -> Option<Vec<u8>> {
        self.lock().attempt.as_ref()?.lines_since(progress, frame)
    }

    /// Whether `progress` lacks anything of the text in flight.
    pub fn has_more(&self, progress: &Progress) -> bool {
        self.lock().attempt.as_ref().is_some_and(|attempt| attempt.has_more(progress))
    }

    /// Woken at each change.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    fn with_block(&self, index: u32, change: impl FnOnce(&mut BlockText)) {
        let mut slot = self.lock();
        let block = slot.attempt.as_mut().and_then(|attempt| attempt.blocks.get_mut(index as usize));
        let Some(block) = block else { return };
        change(block);
        drop(slot);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt {
    /// Bytes of memory, roughly.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.escaped.len()).sum()
    }

    /// Whether `progress` lacks anything of it.
    pub fn has_more(&self, progress: &Progress) -> bool {
        let known: &[BlockProgress] = if progress.attempt == self.id { &progress.blocks } else { &[] };
        known.len() < self.blocks.len()
            || self.blocks.iter().zip(known).any(|(block, have)| {
                have.offset < block.escaped.len() || have.names < block.names || have.ended == block.open
            })
    }

    /// What `progress` lacks, as finished lines; moves it on. `None`: nothing.
    pub fn lines_since(&self, progress: &mut Progress, frame: Frame<'_>) -> Option<Vec<u8>> {
        if !self.has_more(progress) {
            return None;
        }
        if progress.attempt != self.id {
            *progress = Progress { attempt: self.id, blocks: Vec::new() };
        }
        progress.blocks.resize(self.blocks.len(), BlockProgress::default());
        let text_bytes: usize = self
            .blocks
            .iter()
            .zip(&progress.blocks)
            .map(|(block, have)| block.escaped.len() - have.offset)
            .sum();
        let mut lines =
            Lines { out: Vec::with_capacity(text_bytes + 384), attempt: self, frame, time_ms: now_ms() };
        for (index, (block, have)) in self.blocks.iter().zip(&mut progress.blocks).enumerate() {
            lines.block(index, block, have);
        }
        Some(lines.out)
    }
}

struct Lines<'a> {
    out: Vec<u8>,
    attempt: &'a Attempt,
    frame: Frame<'a>,
    time_ms: u64,
}

impl Lines<'_> {
    fn block(&mut self, index: usize, block: &BlockText, have: &mut BlockProgress) {
        if !have.started {
            have.started = true;
            let kind = match block.kind {
                BlockKind::Text => "text",
                BlockKind::Reasoning => "reasoning",
                BlockKind::ToolCall => "tool-call",
            };
            self.line(|out| {
                let _ = write!(out, r#""type":"block-start","index":{index},"blockType":"{kind}""#);
            });
        }
        let renamed = have.names < block.names;
        if have.offset < block.escaped.len() || renamed {
            let text = &block.escaped[have.offset..];
            match block.kind {
                BlockKind::Text => self.text("text-delta", index, text),
                BlockKind::Reasoning => self.text("reasoning-delta", index, text),
                BlockKind::ToolCall => self.call(index, block.name.as_ref().filter(|_| renamed), text),
            }
            have.offset = block.escaped.len();
            have.names = block.names;
        }
        if !block.open && !have.ended {
            have.ended = true;
            self.line(|out| {
                let _ = write!(out, r#""type":"block-end","index":{index}"#);
            });
        }
    }

    fn text(&mut self, kind: &str, index: usize, escaped: &str) {
        self.line(|out| {
            let _ = write!(out, r#""type":"{kind}","index":{index},"text":""#);
            out.extend_from_slice(escaped.as_bytes());
            out.push(b'"');
        });
    }

    fn call(&mut self, index: usize, name: Option<&(String, String)>, escaped: &str) {
        self.line(|out| {
            let _ = write!(out, r#""type":"tool-call-delta","index":{index}"#);
            if let Some((id, name)) = name {
                let _ = write!(out, r#","id":"{id}","name":"{name}""#);
            }
            out.extend_from_slice(br#","arguments":""#);
            out.extend_from_slice(escaped.as_bytes());
            out.push(b'"');
        });
    }

    fn line(&mut self, chunk: impl FnOnce(&mut Vec<u8>)) {
        let Attempt { turn, step, number, .. } = *self.attempt;
        let time = self.time_ms;
        self.out.extend_from_slice(self.frame.prefix);
        // Writing to a Vec does not fail.
        let _ = write!(
            self.out,
            r#"{{"type":"assistant/chunk","transient":true,"time":{time},"data":{{"turn":{turn},"step":{step},"attempt":{number},"chunk":{{"#,
        );
        chunk(&mut self.out);
        self.out.extend_from_slice(b"}}}");
        self.out.extend_from_slice(self.frame.suffix);
    }
}

/// Appends `text` as the inside of a JSON string, U+2028 and U+2029 escaped too.
fn escape_into(out: &mut String, text: &str) {
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let escape: &str = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0C => "\\f",
            0xE2 if bytes[at..].starts_with(b"\xE2\x80\xA8") => "\\u2028",
            0xE2 if bytes[at..].starts_with(b"\xE2\x80\xA9") => "\\u2029",
            0x00..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[from..at]);
        if escape.is_empty() {
            use std::fmt::Write as _;
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escape);
        }
        from = at + if byte == 0xE2 { 3 } else { 1 };
    }
    out.push_str(&text[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame<'static> = Frame { prefix: b"", suffix: b"\n" };

    fn chunks(bytes: Option<Vec<u8>>) -> Vec<serde_json::Value> {
        let text = String::from_utf8(bytes.unwrap_or_default()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["data"]["chunk"].take())
            .collect()
    }

    #[test]
    fn who_comes_late_gets_the_text_so_far_as_one_delta() {
        let live = LiveText::default();
        live.begin(1, 1, 1);
        let index = live.start(BlockKind::Text);
        live.push(index, "a\"b");
        live.push(index, "\u{2028}\n");
        let mut progress = Progress::default();
        let got = chunks(live.lines_since(&mut progress, FRAME));
        assert_eq!(got[0], serde_json::json!({"type":"block-start","index":0,"blockType":"text"}));
        assert_eq!(got[1], serde_json::json!({"type":"text-delta","index":0,"text":"a\"b\u{2028}\n"}));
        assert_eq!(got.len(), 2);
        assert!(live.lines_since(&mut progress, FRAME).is_none());
        live.push(index, "c");
        live.end(index);
        let got = chunks(live.lines_since(&mut progress, FRAME));
        assert_eq!(got[0], serde_json::json!({"type":"text-delta","index":0,"text":"c"}));
        assert_eq!(got[1], serde_json::json!({"type":"block-end","index":0}));
    }

    #[test]
    fn a_new_attempt_starts_over() {
        let live = LiveText::default();
        let mut progress = Progress::default();
        for attempt in 1..3 {
            live.begin(1, 1, attempt);
            let index = live.start(BlockKind::Text);
            live.push(index, "x");
            assert_eq!(chunks(live.lines_since(&mut progress, FRAME)).len(), 2);
        }
    }

    #[test]
    fn a_tool_call_is_named_once() {
        let live = LiveText::default();
        let mut progress = Progress::default();
        live.begin(1, 1, 1);
        let index = live.start(BlockKind::ToolCall);
        live.name(index, "c1", "bash");
        live.push(index, "{\"a\"");
        let got = chunks(live.lines_since(&mut progress, FRAME));
        assert_eq!(
            got[1],
            serde_json::json!({"type":"tool-call-delta","index":0,"id":"c1","name":"bash","arguments":"{\"a\""})
        );
        live.push(index, ":1}");
        let got = chunks(live.lines_since(&mut progress, FRAME));
        assert_eq!(got[0], serde_json::json!({"type":"tool-call-delta","index":0,"arguments":":1}"}));
    }

    #[test]
    fn escapes_are_what_json_says() {
        let text: String =
            (0..0x30u8).map(char::from).chain("\u{7f}é\u{2027}\u{2028}\u{2029}\u{202a}🙂".chars()).collect();
        let mut escaped = String::new();
        escape_into(&mut escaped, &text);
        assert!(!escaped.contains('\u{2028}') && !escaped.contains('\u{2029}'));
        assert_eq!(serde_json::from_str::<String>(&format!("\"{escaped}\"")).unwrap(), text);
    }
}
