//! A sink for the adapters' tests: it keeps every call that it gets.

use std::ops::ControlFlow;

use super::{BlockKind, ChunkSink, Enough};
use crate::event::Block;

#[derive(Clone, Debug)]
struct Recorded {
    kind: BlockKind,
    text: String,
    id: String,
    name: String,
    ended: bool,
}

/// Keeps what an adapter writes.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    bytes_max: Option<usize>,
    /// Every push that was taken.
    pub(super) pushes: Vec<(u32, String)>,
    blocks: Vec<Recorded>,
    bytes: usize,
}

impl Recorder {
    /// One that wants no more than that.
    pub(super) fn of_at_most(bytes: usize) -> Self {
        Self { bytes_max: Some(bytes), ..Self::default() }
    }

    /// The blocks as a message would hold them; each must have been ended.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let block = |block: &Recorded| {
            assert!(block.ended, "a block was not ended: {block:?}");
            let text = block.text.clone();
            match block.kind {
                BlockKind::Text => Block::Text { text },
                BlockKind::Reasoning => Block::Reasoning { text },
                BlockKind::ToolCall => {
                    Block::ToolCall { id: block.id.clone(), name: block.name.clone(), arguments: text }
                }
            }
        };
        self.blocks.iter().map(block).collect()
    }

    /// All text that came, ended or not.
    pub(super) fn text(&self) -> String {
        self.blocks.iter().map(|block| block.text.as_str()).collect()
    }
}

impl ChunkSink for Recorder {
    fn start(&mut self, kind: BlockKind) -> u32 {
        let (text, id, name) = (String::new(), String::new(), String::new());
        self.blocks.push(Recorded { kind, text, id, name, ended: false });
        u32::try_from(self.blocks.len() - 1).unwrap()
    }

    fn push(&mut self, index: u32, text: &str) -> ControlFlow<Enough> {
        self.bytes += text.len();
        if self.bytes_max.is_some_and(|max| self.bytes > max) {
            return ControlFlow::Break(Enough);
        }
        let block = &mut self.blocks[index as usize];
        assert!(!block.ended, "a push after the end: {block:?}");
        block.text.push_str(text);
        self.pushes.push((index, text.to_owned()));
        ControlFlow::Continue(())
    }

    fn name(&mut self, index: u32, id: &str, name: &str) {
        assert!(!id.is_empty() && !name.is_empty());
        let block = &mut self.blocks[index as usize];
        id.clone_into(&mut block.id);
        name.clone_into(&mut block.name);
    }

    fn end(&mut self, index: u32) {
        let block = &mut self.blocks[index as usize];
        assert!(!block.ended);
        assert!(block.kind != BlockKind::ToolCall || !block.id.is_empty(), "a call without id: {block:?}");
        block.ended = true;
    }
}
