//! A stretch of a conversation as plain text, for the model that summarises it.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::event::{Block, Message, Role, SourceKind};

/// The most that one piece is given, in bytes; halved until all of it fits.
const PIECE_BYTES_MAX: usize = 8 * 1024;
/// The least.
const PIECE_BYTES_MIN: usize = 128;

/// The messages in at most `bytes_max` bytes: first each piece is cut shorter, then the middle is left out.
pub(super) fn transcript(messages: &[Arc<Message>], bytes_max: usize) -> String {
    let mut piece = PIECE_BYTES_MAX;
    loop {
        let text = write(messages, piece);
        if text.len() <= bytes_max {
            return text;
        }
        if piece <= PIECE_BYTES_MIN {
            return without_middle(&text, bytes_max);
        }
        piece /= 2;
    }
}

fn write(messages: &[Arc<Message>], piece: usize) -> String {
    let mut out = String::new();
    for message in messages {
        for block in &message.content {
            let (who, text) = match block {
                Block::Text { text } => (speaker(message), text.as_str()),
                Block::Image { attachment } => (speaker(message), attachment.media_type.as_str()),
                Block::ToolCall { name, arguments, .. } => {
                    // Writing to a text can't fail.
                    let _ = write!(out, "[call of {name}] ");
                    push_cut(&mut out, arguments, piece / 2);
                    continue;
                }
                Block::Reasoning { .. } => continue,
            };
            let _ = write!(out, "[{who}] ");
            // What was said and what was summarised before weighs more than what tools gave back.
            let room = if message.role == Role::Tool { piece / 4 } else { piece };
            push_cut(&mut out, text, room);
        }
    }
    out
}

fn speaker(message: &Message) -> &'static str {
    match (message.role, message.source.kind) {
        (Role::Assistant, _) => "agent",
        (Role::Tool, _) => "result",
        (Role::System, _) => "instructions",
        (Role::User, SourceKind::User) => "user",
        (Role::User, SourceKind::Compaction) => "earlier summary",
        (
            Role::User,
            SourceKind::SystemPrompt
            | SourceKind::RuntimeContext
            | SourceKind::WorkingDirectory
            | SourceKind::AgentInstructions
            | SourceKind::Model
            | SourceKind::Tool
            | SourceKind::RepeatToolReminder
            | SourceKind::ToolJobs
            | SourceKind::SubagentSettled,
        ) => "context",
    }
}

/// Adds a text and a line's end; of a long one the start and, shorter, the end.
fn push_cut(out: &mut String, text: &str, bytes_max: usize) {
    if text.len() <= bytes_max {
        out.push_str(text);
    } else {
        out.push_str(&text[..text.floor_char_boundary(bytes_max * 3 / 4)]);
        out.push_str(" […] ");
        out.push_str(&text[text.ceil_char_boundary(text.len() - bytes_max / 4)..]);
    }
    out.push('\n');
}

fn without_middle(text: &str, bytes_max: usize) -> String {
    let mut out = String::with_capacity(bytes_max);
    push_cut(&mut out, text, bytes_max.saturating_sub(16));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Source;

    fn message(role: Role, kind: SourceKind, blocks: Vec<Block>) -> Arc<Message> {
        Arc::new(Message::new(role, Source::of(kind), blocks))
    }

    #[test]
    fn it_says_who_said_what_and_leaves_thoughts_out() {
        let call = Block::ToolCall { id: "c".into(), name: "bash".into(), arguments: "{}".into() };
        let thought = Block::Reasoning { text: "hm".into() };
        let messages = [
            message(Role::User, SourceKind::User, vec![Block::text("fix it")]),
            message(Role::Assistant, SourceKind::Model, vec![thought, Block::text("I look."), call]),
            message(Role::Tool, SourceKind::Tool, vec![Block::text("fine")]),
        ];
        let text = transcript(&messages, 1000);
        assert_eq!(text, "[user] fix it\n[agent] I look.\n[call of bash] {}\n[result] fine\n");
    }

    #[test]
    fn it_fits_whatever_was_said() {
        let long = "é".repeat(20_000);
        let messages: Vec<_> = (0..200)
            .map(|_| message(Role::User, SourceKind::User, vec![Block::text(long.clone())]))
            .collect();
        for bytes_max in [100_000, 5_000, 64] {
            let text = transcript(&messages, bytes_max);
            assert!(text.len() <= bytes_max && text.starts_with("[user] é"), "{}", text.len());
        }
    }
}
