//! What is given up when a conversation has grown too long. Pure: from the messages and their sizes to what is cut and
//! what is summarised.
//!
//! The instructions, the newest thing that a person said, the turn's own prompt and the latest exchange stay. A call
//! and its results are never parted: every boundary stands before a message that is no result.

use std::ops::Range;
use std::sync::Arc;

use crate::event::{Message, MessageId, Role, SourceKind};
use crate::turn::measure::tokens_of;

/// The latest messages stay as they are while they are below this share of the room: one part of so many.
const TAIL_SHARE: u64 = 5;
/// Cutting results is enough when the rest is below this, in percent of the room.
const ENOUGH_PERCENT: u64 = 70;
/// What is not worth a summary: one part of so many of the room.
const WORTH_SHARE: u64 = 10;
/// Nor what is hardly longer than a summary is, in tokens.
const WORTH_TOKENS: u64 = 128;
/// Results of the latest exchange are cut when it is above this share of the room, down to half of it.
const LATEST_SHARE: u64 = 2;
/// A result below this is not worth a cut.
const RESULT_BYTES_MIN: usize = 512;
/// So much of a result of the latest exchange always stays.
const LATEST_BYTES_MIN: usize = 256;
/// Bytes of a token, where an estimate becomes a length.
const BYTES_PER_TOKEN: u64 = 4;

/// What is to be given up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Results to be cut.
    pub(super) cuts: Vec<Cut>,
    /// Messages to be summarised.
    pub(super) summary: Option<Range<usize>>,
}

/// A result that is to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Which message.
    pub(super) at: usize,
    /// Bytes of its text that stay.
    pub(super) keep: usize,
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    /// The conversation.
    pub(super) messages: &'a [Arc<Message>],
    /// Its size in tokens, as well as it is known; with what the next call adds.
    pub(super) load: u64,
    /// Tokens that there is room for.
    pub(super) room: u64,
    /// The turn's prompt.
    pub(super) prompt: &'a MessageId,
    /// The conversation's size by our own estimate.
    estimate: u64,
}

impl<'a> Given<'a> {
    /// A conversation of `load` tokens for which there is `room`.
    pub(super) fn new(messages: &'a [Arc<Message>], load: u64, room: u64, prompt: &'a MessageId) -> Self {
        let estimate = messages.iter().map(|message| tokens_of(message)).sum::<u64>().max(1);
        Self { messages, load, room, prompt, estimate }
    }

    /// What to give up so that the conversation fits again.
    pub(super) fn plan(&self) -> Plan {
        let tail = self.tail();
        let cuts = self.cuts(tail);
        let saved: u64 = cuts.iter().map(|cut| self.saved(cut)).sum();
        let enough = self.room * ENOUGH_PERCENT / 100;
        let summary = (self.load.saturating_sub(saved) > enough).then(|| self.longest_run(tail)).flatten();
        Plan { cuts, summary }
    }

    /// The estimate of a message, corrected by what is known of the whole.
    pub(super) fn tokens(&self, message: &Message) -> u64 {
        self.scaled(tokens_of(message))
    }

    fn scaled(&self, tokens: u64) -> u64 {
        let known = u128::from(self.load.max(self.estimate));
        let scaled = u128::from(tokens) * known / u128::from(self.estimate);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Where the latest messages begin: the last exchange, and what else of the end is short.
    fn tail(&self) -> usize {
        let mut start = self.messages.len();
        let mut sum = 0;
        for (at, message) in self.messages.iter().enumerate().rev() {
            sum += tokens_of(message);
            if message.role == Role::Tool {
                continue;
            }
            let first = start == self.messages.len();
            if !first && self.scaled(sum) > self.room / TAIL_SHARE {
                break;
            }
            start = at;
        }
        start
    }

    fn cuts(&self, tail: usize) -> Vec<Cut> {
        let is_long = |at: &usize| {
            let message = &self.messages[*at];
            message.role == Role::Tool && text_bytes(message) > RESULT_BYTES_MIN
        };
        let old = (0..tail).filter(is_long).map(|at| Cut { at, keep: 0 });
        let latest: Vec<usize> = (tail..self.messages.len()).filter(is_long).collect();
        let size: u64 = self.messages[tail..].iter().map(|message| tokens_of(message)).sum();
        if self.scaled(size) <= self.room / LATEST_SHARE || latest.is_empty() {
            return old.collect();
        }
        // As many bytes as half of their share of the room is, by the same correction.
        let bytes = self.room / LATEST_SHARE / 2 * BYTES_PER_TOKEN * size / self.scaled(size).max(1);
        let each = usize::try_from(bytes / latest.len() as u64).unwrap_or(usize::MAX).max(LATEST_BYTES_MIN);
        let latest = latest.into_iter().filter(|at| text_bytes(&self.messages[*at]) > each);
        old.chain(latest.map(|at| Cut { at, keep: each })).collect()
    }

    fn saved(&self, cut: &Cut) -> u64 {
        let bytes = text_bytes(&self.messages[cut.at]).saturating_sub(cut.keep);
        self.scaled(bytes as u64 / BYTES_PER_TOKEN)
    }

    /// The longest run of messages that may go, if it is worth a summary.
    fn longest_run(&self, tail: usize) -> Option<Range<usize>> {
        let newest = self.messages.iter().rposition(|message| message.source.kind == SourceKind::User);
        let stays = |at: usize| {
            let message = &self.messages[at];
            at >= tail || message.role == Role::System || message.id == *self.prompt || Some(at) == newest
        };
        let mut longest: Option<(u64, Range<usize>)> = None;
        let mut start = 0;
        for at in 0..=tail {
            if at < tail && !stays(at) {
                continue;
            }
            let run = start..at;
            start = at + 1;
            let size: u64 = self.messages[run.clone()].iter().map(|message| tokens_of(message)).sum();
            if run.len() >= 2 && longest.as_ref().is_none_or(|(other, _)| size > *other) {
                longest = Some((size, run));
            }
        }
        let (size, run) = longest?;
        (size > WORTH_TOKENS && self.scaled(size) > self.room / WORTH_SHARE).then_some(run)
    }
}

/// Bytes of a message's text.
fn text_bytes(message: &Message) -> usize {
    let of_block = |block: &crate::event::Block| match block {
        crate::event::Block::Text { text } => text.len(),
        crate::event::Block::Reasoning { .. }
        | crate::event::Block::ToolCall { .. }
        | crate::event::Block::Image { .. } => 0,
    };
    message.content.iter().map(of_block).sum()
}

#[cfg(test)]
mod tests;
