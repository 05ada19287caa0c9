//! Splits `<think>…</think>` at the start of an answer's text, for servers without a reasoning parser.

use crate::provider::BlockKind;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Where in the text we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first character that is no white space.
    Start,
    /// Between the tags.
    Inside,
    /// Past them, or there are none.
    Text,
}

/// Holds back what may be a part of a tag.
#[derive(Debug)]
pub(super) struct ThinkSplitter {
    place: Place,
    held: String,
}

impl ThinkSplitter {
    pub(super) fn new() -> Self {
        Self { place: Place::Start, held: String::new() }
    }

    /// Takes text and emits its parts.
    pub(super) fn push(&mut self, text: &str, emit: &mut impl FnMut(BlockKind, &str)) {
        if self.place == Place::Text {
            return emit(BlockKind::Text, text);
        }
        self.held.push_str(text);
        if self.place == Place::Start {
            let trimmed = self.held.trim_start();
            if let Some(rest) = trimmed.strip_prefix(OPEN) {
                self.held = rest.to_owned();
                self.place = Place::Inside;
            } else if !OPEN.starts_with(trimmed) {
                self.place = Place::Text;
                emit(BlockKind::Text, &std::mem::take(&mut self.held));
            }
        }
        if self.place == Place::Inside {
            self.inside(emit);
        }
    }

    fn inside(&mut self, emit: &mut impl FnMut(BlockKind, &str)) {
        if let Some((thought, text)) = self.held.split_once(CLOSE) {
            emit_some(BlockKind::Reasoning, thought, emit);
            emit_some(BlockKind::Text, text, emit);
            self.held.clear();
            self.place = Place::Text;
            return;
        }
        let kept = (1..CLOSE.len()).rev().find(|len| self.held.ends_with(&CLOSE[..*len])).unwrap_or(0);
        let end = self.held.len() - kept;
        emit_some(BlockKind::Reasoning, &self.held[..end], emit);
        self.held.drain(..end);
    }

    /// Emits what was held back.
    pub(super) fn finish(&mut self, emit: &mut impl FnMut(BlockKind, &str)) {
        let kind = if self.place == Place::Inside { BlockKind::Reasoning } else { BlockKind::Text };
        emit_some(kind, &std::mem::take(&mut self.held), emit);
    }
}

fn emit_some(kind: BlockKind, text: &str, emit: &mut impl FnMut(BlockKind, &str)) {
    if !text.is_empty() {
        emit(kind, text);
    }
}

/// The text as it came, made of its parts again.
pub(super) fn joined(thought: &str, text: &str) -> String {
    format!("{OPEN}{thought}{CLOSE}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, thought: &str, said: &str) {
        for size in [1, 2, 3, 7, 1000] {
            let (mut reasoning, mut plain) = (String::new(), String::new());
            let mut emit = |kind, text: &str| match kind {
                BlockKind::Reasoning => reasoning.push_str(text),
                BlockKind::Text | BlockKind::ToolCall => plain.push_str(text),
            };
            let mut splitter = ThinkSplitter::new();
            let chars: Vec<char> = text.chars().collect();
            for part in chars.chunks(size) {
                splitter.push(&part.iter().collect::<String>(), &mut emit);
            }
            splitter.finish(&mut emit);
            assert_eq!((reasoning.as_str(), plain.as_str()), (thought, said), "{text:?} by {size}");
        }
    }

    #[test]
    fn the_thought_at_the_start_is_split_off_and_nothing_else() {
        check(
            "<think>a <b> 那</thin</think>\n\nhi <think>x</think>",
            "a <b> 那</thin",
            "\n\nhi <think>x</think>",
        );
        check(" \n<think></think>hi", "", "hi");
        check("<think>never ends</th", "never ends</th", "");
        check("plain <think>", "", "plain <think>");
        check("<thin", "", "<thin");
        check("  ", "", "  ");
    }

    #[test]
    fn the_text_as_it_came_can_be_made_again() {
        assert_eq!(joined("a", "\nb"), "<think>a</think>\nb");
    }
}
