//! The way from an adapter to its sink. What one network read brings for a block is pushed at once; order and bytes stay.

use super::{BlockKind, ChunkSink};

/// Text that waits at most before it is pushed, although more is there to read.
const PENDING_BYTES_MAX: usize = 4 * 1024;

/// Writes blocks into a sink.
pub(super) struct Writer<'s> {
    sink: &'s mut dyn ChunkSink,
    index: u32,
    pending: String,
    began: bool,
    enough: bool,
}

impl<'s> Writer<'s> {
    pub(super) fn new(sink: &'s mut dyn ChunkSink) -> Self {
        Self { sink, index: 0, pending: String::new(), began: false, enough: false }
    }

    /// Whether the model has said anything.
    pub(super) fn began(&self) -> bool {
        self.began
    }

    /// Whether text waits to be pushed.
    pub(super) fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the sink wants no more.
    pub(super) fn enough(&self) -> bool {
        self.enough
    }

    pub(super) fn start(&mut self, kind: BlockKind) -> u32 {
        self.flush();
        self.began = true;
        self.sink.start(kind)
    }

    /// Lets `write` append to a block's text.
    pub(super) fn append<T>(&mut self, index: u32, write: impl FnOnce(&mut String) -> T) -> T {
        if index != self.index {
            self.flush();
            self.index = index;
        }
        let written = write(&mut self.pending);
        if self.pending.len() >= PENDING_BYTES_MAX {
            self.flush();
        }
        written
    }

    pub(super) fn push(&mut self, index: u32, text: &str) {
        self.append(index, |pending| pending.push_str(text));
    }

    pub(super) fn name(&mut self, index: u32, id: &str, name: &str) {
        self.flush();
        self.sink.name(index, id, name);
    }

    pub(super) fn end(&mut self, index: u32) {
        self.flush();
        self.sink.end(index);
    }

    /// Pushes what waits.
    pub(super) fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if !self.enough {
            self.enough = self.sink.push(self.index, &self.pending).is_break();
        }
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::test_sink::Recorder;

    #[test]
    fn deltas_of_one_read_are_one_push_and_blocks_keep_their_order() {
        let mut sink = Recorder::default();
        let mut out = Writer::new(&mut sink);
        let first = out.start(BlockKind::Text);
        out.push(first, "a");
        out.push(first, "b");
        let second = out.start(BlockKind::ToolCall);
        out.push(second, "c");
        out.push(first, "d");
        out.flush();
        assert_eq!(sink.pushes, [(0, "ab".to_owned()), (1, "c".to_owned()), (0, "d".to_owned())]);
    }

    #[test]
    fn a_sink_that_has_enough_gets_no_more() {
        let mut sink = Recorder::of_at_most(1);
        let mut out = Writer::new(&mut sink);
        let block = out.start(BlockKind::Text);
        out.push(block, "ab");
        out.flush();
        assert!(out.enough());
        out.push(block, "c");
        out.flush();
        assert!(sink.pushes.is_empty());
    }
}
