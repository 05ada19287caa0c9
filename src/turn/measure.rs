//! How long a conversation is, in tokens: what the provider told of the last call, and an estimate of the rest.

use super::{Route, Turn};
use crate::event::{Block, Cost, Message, Usage};

/// Bytes of a token, where no provider counts.
const BYTES_PER_TOKEN: u64 = 4;
/// Tokens that stand around a message's text.
const TOKENS_PER_MESSAGE: u64 = 8;
/// Tokens of a picture.
const TOKENS_PER_IMAGE: u64 = 1600;
/// Share of the window that is kept for the answer when nobody says how long it may be: one part of so many.
const OUTPUT_SHARE: u64 = 16;

/// The size of a conversation when a provider last told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// So many messages…
    messages: usize,
    /// …were so many tokens.
    tokens: u64,
}

impl Measured {
    /// What a call tells of a conversation of so many messages, its answer counted.
    pub fn of(usage: Option<&Usage>, messages: usize) -> Option<Self> {
        let tokens = usage.map(|usage| usage.total_tokens).filter(|tokens| *tokens > 0)?;
        Some(Self { messages, tokens })
    }

    /// Whether it can be of a conversation of so many messages.
    pub(super) fn fits(self, messages: usize) -> bool {
        self.messages <= messages
    }
}

impl Turn {
    /// The size of what the next call sends, in tokens.
    pub(super) fn load(&self) -> u64 {
        let (known, tokens) = match self.measured {
            Some(measured) if measured.fits(self.conversation.len()) => (measured.messages, measured.tokens),
            Some(_) | None => (0, self.constant_tokens()),
        };
        tokens + self.conversation[known..].iter().map(|message| tokens_of(message)).sum::<u64>()
    }

    /// Tokens of what every call sends beside the conversation.
    fn constant_tokens(&self) -> u64 {
        let bytes = |spec: &crate::event::ToolSpec| {
            spec.name.len() + spec.description.len() + spec.parameters.get().len()
        };
        let specs: usize = self.offer.specs().iter().map(bytes).sum();
        specs as u64 / BYTES_PER_TOKEN
    }
}

/// An estimate of a message's size.
pub(super) fn tokens_of(message: &Message) -> u64 {
    let of_block = |block: &Block| match block {
        Block::Text { text } | Block::Reasoning { text } => text.len() as u64 / BYTES_PER_TOKEN,
        Block::ToolCall { id, name, arguments } => {
            (id.len() + name.len() + arguments.len()) as u64 / BYTES_PER_TOKEN
        }
        Block::Image { .. } => TOKENS_PER_IMAGE,
    };
    TOKENS_PER_MESSAGE + message.content.iter().map(of_block).sum::<u64>()
}

/// Tokens that a route has for the conversation: its window less its output.
pub(super) fn room_of(route: &Route) -> u64 {
    let window = route.abilities.context_window;
    let output = route.max_tokens.or(route.abilities.max_output).unwrap_or(window / OUTPUT_SHARE);
    window - output.min(window / 2)
}

/// What a call costs, where the model's prices are configured.
pub(super) fn cost_of(route: &Route, usage: &Usage) -> Option<Cost> {
    route.abilities.cost(usage).map(Cost::new)
}
