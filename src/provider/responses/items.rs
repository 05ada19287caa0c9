//! The items of one answer while they arrive, and what of them is kept for replay.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::wire::{OutputItem, Replay, ReplayItem};
use crate::provider::BlockKind;
use crate::provider::blocks::Writer;
use crate::provider::json::{SurrogateFilter, Text, repaired, unescape};

/// Items of one answer.
const ITEMS_MAX: usize = 1024;
/// Bytes of thoughts that are kept as they came.
const RAW_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Call,
    /// None that we asked for.
    Other,
}

/// An item that came.
#[derive(Debug)]
pub(super) struct Item {
    index: Option<u32>,
    id: String,
    kind: ItemKind,
    block: Option<u32>,
    call_id: String,
    name: String,
    filter: SurrogateFilter,
    /// The part that is being told, and the last one of which anything was written.
    part: u32,
    written: Option<u32>,
    refused: bool,
    ended: bool,
    phase: String,
    raw: String,
}

impl Item {
    fn wrote(&self) -> bool {
        self.written.is_some()
    }
}

/// Why an item can't be understood.
pub(super) type Wrong = &'static str;

const NO_TEXT: Wrong = "the text of a delta is no text";

/// All items of an answer, in their order.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: Vec<Item>,
    raw_bytes: usize,
}

impl Items {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn refused(&self) -> bool {
        self.items.iter().any(|item| item.refused)
    }

    /// The item that an event speaks of. Its index counts; the id only without one, since some gateways give each event
    /// another id. Who gives neither, or a wrong one, means the only open item of the kind.
    ///
    /// # Errors
    /// When several could be meant.
    pub(super) fn find(&self, index: Option<u32>, id: &str, kind: ItemKind) -> Result<Option<usize>, Wrong> {
        let told = match index {
            Some(_) => self.items.iter().rposition(|item| item.index == index),
            None if !id.is_empty() => self.items.iter().rposition(|item| item.id == id),
            None => None,
        };
        if let Some(at) = told.filter(|at| self.items[*at].kind == kind) {
            return Ok(Some(at));
        }
        if told.is_none() && (index.is_some() || !id.is_empty()) {
            return Ok(None);
        }
        let is_open = |item: &Item| item.kind == kind && !item.ended;
        let mut open = (0..self.items.len()).filter(|at| is_open(&self.items[*at]));
        match (open.next(), open.next()) {
            (only, None) => Ok(only),
            (_, Some(_)) => Err("a piece of the answer does not say which of several items it belongs to"),
        }
    }

    /// Opens an item.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn open(
        &mut self,
        index: Option<u32>,
        kind: ItemKind,
        told: &OutputItem<'_>,
        out: &mut Writer<'_>,
    ) -> Result<usize, Wrong> {
        if self.items.len() >= ITEMS_MAX {
            return Err("the answer holds more than 1024 items");
        }
        let block = (kind == ItemKind::Call).then(|| out.start(BlockKind::ToolCall));
        self.items.push(Item {
            index,
            id: told.id.as_ref().map_or_else(String::new, |id| id.as_str().to_owned()),
            kind,
            block,
            call_id: String::new(),
            name: String::new(),
            filter: SurrogateFilter::default(),
            part: 0,
            written: None,
            refused: false,
            ended: false,
            phase: String::new(),
            raw: String::new(),
        });
        let at = self.items.len() - 1;
        self.learn(at, told, out);
        Ok(at)
    }

    /// Takes what an item says of itself; the first word that is not empty counts.
    pub(super) fn learn(&mut self, at: usize, told: &OutputItem<'_>, out: &mut Writer<'_>) {
        let word =
            |text: &Option<Text<'_>>| text.as_ref().map_or(String::new(), |text| text.as_str().to_owned());
        let (call_id, name, phase) = (word(&told.call_id), word(&told.name), word(&told.phase));
        // The same id for two calls names neither: the second gets one of ours at the end.
        let is_taken =
            self.items.iter().enumerate().any(|(other, item)| other != at && item.call_id == call_id);
        let item = &mut self.items[at];
        if item.phase.is_empty() {
            item.phase = phase;
        }
        let known = (item.call_id.is_empty(), item.name.is_empty());
        if known.0 && !is_taken {
            item.call_id = call_id;
        }
        if known.1 {
            item.name = name;
        }
        let news = known != (item.call_id.is_empty(), item.name.is_empty());
        if let Some(block) = item.block
            && news
            && !item.call_id.is_empty()
            && !item.name.is_empty()
        {
            out.name(block, &item.call_id, &item.name);
        }
    }

    pub(super) fn kind(&self, at: usize) -> ItemKind {
        self.items[at].kind
    }

    pub(super) fn wrote(&self, at: usize) -> bool {
        self.items[at].wrote()
    }

    /// Turns to a part of a text; says whether anything of it has been written.
    pub(super) fn turn_to(&mut self, at: usize, part: u32) -> bool {
        let item = &mut self.items[at];
        item.part = part;
        item.written == Some(part)
    }

    pub(super) fn refuse(&mut self, at: usize) {
        self.items[at].refused = true;
    }

    /// Writes a piece of an item's current part.
    ///
    /// # Errors
    /// When it is no text.
    pub(super) fn write(&mut self, at: usize, raw: &RawValue, out: &mut Writer<'_>) -> Result<(), Wrong> {
        let item = &mut self.items[at];
        if raw.get() == "\"\"" || item.ended {
            return Ok(());
        }
        let kind = match item.kind {
            ItemKind::Message => BlockKind::Text,
            ItemKind::Reasoning => BlockKind::Reasoning,
            ItemKind::Call | ItemKind::Other => return Ok(()),
        };
        let block = *item.block.get_or_insert_with(|| out.start(kind));
        if kind == BlockKind::Reasoning && item.wrote() && item.written != Some(item.part) {
            out.push(block, "\n\n");
        }
        item.written = Some(item.part);
        if out.append(block, |text| unescape(raw.get(), text)) { Ok(()) } else { Err(NO_TEXT) }
    }

    /// Writes a piece of a call's arguments.
    pub(super) fn write_arguments(
        &mut self,
        at: usize,
        raw: &RawValue,
        scratch: &mut String,
        out: &mut Writer<'_>,
    ) {
        let item = &mut self.items[at];
        let Some(block) = item.block.filter(|_| item.kind == ItemKind::Call && !item.ended) else { return };
        scratch.clear();
        if !unescape(raw.get(), scratch) {
            scratch.push_str(raw.get());
        }
        if !scratch.is_empty() {
            item.written = Some(item.part);
        }
        out.append(block, |text| item.filter.push(scratch, text));
    }

    /// Keeps a thought as it came, if it can go back: sealed, or with its own text.
    pub(super) fn keep(&mut self, at: usize, told: &OutputItem<'_>, raw: &RawValue) {
        let sealed = told.encrypted_content.as_ref().is_some_and(|sealed| !sealed.as_str().is_empty());
        let has_text = told.content.as_ref().is_some_and(|content| content.first.is_some());
        let bytes = raw.get().len();
        if (sealed || has_text) && self.raw_bytes + bytes <= RAW_BYTES_MAX {
            self.raw_bytes += bytes;
            self.items[at].raw = repaired(raw.get().as_bytes());
        }
    }

    /// Ends an item that is whole.
    ///
    /// # Errors
    /// When it is a call without a name.
    pub(super) fn end_whole(&mut self, at: usize, out: &mut Writer<'_>) -> Result<(), Wrong> {
        let item = &self.items[at];
        if item.kind == ItemKind::Call && item.name.is_empty() {
            return Err("a tool call came without a name");
        }
        self.end(at, out);
        Ok(())
    }

    /// Ends an item as it is; a call without id gets one.
    fn end(&mut self, at: usize, out: &mut Writer<'_>) {
        let item = &mut self.items[at];
        if std::mem::replace(&mut item.ended, true) {
            return;
        }
        let Some(block) = item.block else { return };
        if item.kind == ItemKind::Call {
            out.append(block, |text| item.filter.finish(text));
            if item.call_id.is_empty() || item.name.is_empty() {
                if item.call_id.is_empty() {
                    item.call_id = format!("call_{}", uuid::Uuid::new_v4().simple());
                }
                let name = if item.name.is_empty() { "unknown" } else { &item.name };
                out.name(block, &item.call_id, name);
            }
        }
        out.end(block);
    }

    pub(super) fn end_all(&mut self, out: &mut Writer<'_>) {
        for at in 0..self.items.len() {
            self.end(at, out);
        }
    }

    /// Ends all items of an answer that is whole.
    ///
    /// # Errors
    /// When a call has no name.
    pub(super) fn finish(&mut self, out: &mut Writer<'_>) -> Result<(), Wrong> {
        (0..self.items.len()).try_for_each(|at| self.end_whole(at, out))
    }

    /// What must go back, when a message does not hold it all.
    pub(super) fn replay_state(&self) -> Option<Box<RawValue>> {
        let special = |item: &Item| !item.raw.is_empty() || !item.phase.is_empty() || item.refused;
        if !self.items.iter().any(special) {
            return None;
        }
        let items = self.items.iter().filter_map(|item| {
            let raw = Some(item.raw.as_str()).filter(|raw| !raw.is_empty());
            let (kind, hidden) = match (item.kind, item.wrote()) {
                (ItemKind::Call, _) => ("function_call", false),
                (ItemKind::Message, true) if item.refused => ("refusal", false),
                (ItemKind::Message, true) => ("message", false),
                (ItemKind::Reasoning, true) => ("reasoning", false),
                (ItemKind::Reasoning, false) if raw.is_some() => ("reasoning", true),
                (ItemKind::Message | ItemKind::Reasoning, false) | (ItemKind::Other, _) => return None,
            };
            let phase = Some(item.phase.as_str()).filter(|phase| !phase.is_empty()).map(Cow::Borrowed);
            let raw = raw.and_then(|raw| serde_json::from_str(raw).ok());
            Some(ReplayItem { kind: Cow::Borrowed(kind), hidden, phase, raw })
        });
        let replay = Replay { kind: Cow::Borrowed("responses"), version: 1, items: items.collect() };
        serde_json::value::to_raw_value(&replay).ok()
    }
}
