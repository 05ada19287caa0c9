//! Where a model's answer goes while it arrives: to the text in flight for those who watch, to a draft for the log.

use std::ops::ControlFlow;

use tokio::time::Instant;

use super::text::LiveText;
use crate::event::Block;
use crate::metrics::METRICS;
use crate::provider::{BlockKind, ChunkSink, Enough};

/// The answer so far.
#[derive(Debug)]
pub(super) struct TurnSink<'a> {
    live: &'a LiveText,
    blocks: Vec<Draft>,
    bytes: usize,
    bytes_max: usize,
    /// When the model was called, until it says something.
    called: Option<Instant>,
}

#[derive(Debug)]
struct Draft {
    kind: BlockKind,
    text: String,
    id: String,
    name: String,
}

impl<'a> TurnSink<'a> {
    /// An empty answer of at most `bytes_max` bytes of text.
    pub(super) fn new(live: &'a LiveText, bytes_max: usize) -> Self {
        Self { live, blocks: Vec::new(), bytes: 0, bytes_max, called: Some(Instant::now()) }
    }

    /// Whether anything had arrived.
    pub(super) fn has_text(&self) -> bool {
        self.bytes > 0
    }

    /// The text that had arrived, for the record of a failed call.
    pub(super) fn text(&self) -> Option<String> {
        let mut joined = String::new();
        for draft in self.blocks.iter().filter(|draft| draft.kind == BlockKind::Text) {
            joined.push_str(&draft.text);
        }
        (!joined.is_empty()).then_some(joined)
    }

    /// All blocks that say something.
    pub(super) fn into_blocks(self) -> Vec<Block> {
        self.blocks.into_iter().filter_map(Draft::into_block).collect()
    }

    /// What may be kept of a call that was cut: text and thoughts, no calls.
    pub(super) fn into_prefix(self) -> Vec<Block> {
        let mut blocks = self.into_blocks();
        blocks.retain(|block| !matches!(block, Block::ToolCall { .. }));
        blocks
    }
}

impl Draft {
    fn into_block(self) -> Option<Block> {
        match self.kind {
            BlockKind::Text => (!self.text.is_empty()).then_some(Block::Text { text: self.text }),
            BlockKind::Reasoning => (!self.text.is_empty()).then_some(Block::Reasoning { text: self.text }),
            BlockKind::ToolCall => {
                Some(Block::ToolCall { id: self.id, name: self.name, arguments: self.text })
            }
        }
    }
}

impl ChunkSink for TurnSink<'_> {
    fn start(&mut self, kind: BlockKind) -> u32 {
        if let Some(called) = self.called.take() {
            METRICS.first_tokens.add(called.elapsed());
        }
        self.blocks.push(Draft { kind, text: String::new(), id: String::new(), name: String::new() });
        self.live.start(kind)
    }

    fn push(&mut self, index: u32, text: &str) -> ControlFlow<Enough> {
        let Some(draft) = self.blocks.get_mut(index as usize) else { return ControlFlow::Continue(()) };
        if self.bytes + text.len() > self.bytes_max {
            return ControlFlow::Break(Enough);
        }
        self.bytes += text.len();
        draft.text.push_str(text);
        self.live.push(index, text);
        ControlFlow::Continue(())
    }

    fn name(&mut self, index: u32, id: &str, name: &str) {
        if let Some(draft) = self.blocks.get_mut(index as usize) {
            id.clone_into(&mut draft.id);
            name.clone_into(&mut draft.name);
            self.bytes += id.len() + name.len();
            self.live.name(index, id, name);
        }
    }

    fn end(&mut self, index: u32) {
        self.live.end(index);
    }
}
