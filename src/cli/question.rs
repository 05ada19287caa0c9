//! An approval that waits, as somebody at a terminal is asked for it. No I/O.

use std::fmt::Write as _;

use super::escape::one_line;
use super::human;
use crate::clock::now_ms;
use crate::event::{ApprovalAsked, ApprovalOutcome, SessionId};
use crate::protocol::{AnswerOutcome, AnswerParams};

/// Characters of a command that are shown on the line of the question; all of it stands below when it is longer.
const COMMAND_CHARS: usize = 60;

/// A call that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) session: SessionId,
    pub(super) approval: ApprovalAsked,
}

/// What a key says to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Answer(AnswerOutcome),
    ShowDiff,
    Nothing,
}

impl Question {
    /// What is asked: the tool, what it wants, the command or the diff.
    pub(super) fn text(&self) -> String {
        let asked = &self.approval;
        let mut text =
            format!("? {}: {}", one_line(&plain(&asked.tool_name), 40), one_line(&plain(&asked.reason), 400));
        match &asked.command {
            Some(command) if command.chars().count() <= COMMAND_CHARS && !command.contains('\n') => {
                let _ = write!(text, ":   {}", plain(command));
            }
            Some(command) => {
                text.push('\n');
                text.push_str(&plain(command));
            }
            None => {}
        }
        text
    }

    /// The diff that it would make, for a terminal.
    pub(super) fn diff(&self) -> String {
        self.approval.diff.as_deref().map_or_else(|| "it makes no diff".to_owned(), plain)
    }

    /// Which keys answer, and how long there is.
    pub(super) fn keys(&self) -> String {
        let left = human::elapsed(self.approval.deadline.saturating_sub(now_ms()));
        let session = if self.approval.rule.is_some() { " · s this session" } else { "" };
        let diff = if self.approval.diff.is_some() { " · d diff" } else { "" };
        format!("  y once{session} · n reject{diff} · (another client may answer first)   {left} left")
    }

    /// What a key says.
    pub(super) fn said(&self, key: &[u8]) -> Said {
        match key {
            b"y" | b"Y" => Said::Answer(AnswerOutcome::AllowOnce),
            b"s" | b"S" if self.approval.rule.is_some() => Said::Answer(AnswerOutcome::AllowSession),
            b"n" | b"N" => Said::Answer(AnswerOutcome::Reject),
            b"d" | b"D" => Said::ShowDiff,
            _ => Said::Nothing,
        }
    }

    /// The request that answers it.
    pub(super) fn answer(&self, outcome: AnswerOutcome) -> AnswerParams {
        AnswerParams { session_id: self.session.clone(), approval_id: self.approval.id.clone(), outcome }
    }
}

/// What became of an approval, in a word.
pub(super) fn word(outcome: ApprovalOutcome) -> &'static str {
    match outcome {
        ApprovalOutcome::AllowedOnce => "allowed once",
        ApprovalOutcome::AllowedSession => "allowed for this session",
        ApprovalOutcome::Rejected => "rejected",
        ApprovalOutcome::Cancelled => "cancelled with its turn",
        ApprovalOutcome::Unavailable => "refused: nobody could answer",
    }
}

/// A text in which nothing is hidden and nothing acts on the terminal: what would not be seen as it is, is shown as its
/// escape. Line ends and tabs stay.
fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let stays = matches!(c, '\n' | '\t') || !(c.is_control() || is_unseen(c));
        if stays { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    shown
}

/// Characters that take no room, or change the direction of what follows.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(command: Option<&str>, diff: Option<&str>, rule: Option<&str>) -> Question {
        Question {
            session: SessionId::new("s").unwrap(),
            approval: ApprovalAsked {
                id: "a1".to_owned(),
                tool_name: "bash".to_owned(),
                call_id: "c1".to_owned(),
                reason: "the command wants to run outside the sandbox".to_owned(),
                command: command.map(str::to_owned),
                diff: diff.map(str::to_owned),
                rule: rule.map(str::to_owned),
                deadline: 0,
            },
        }
    }

    #[test]
    fn a_long_command_is_shown_whole_and_can_do_nothing_to_the_terminal() {
        let question = question(Some("echo a\n\x1b]0;title\x07rm \u{202e}-rf /x\r"), None, None);
        let text = question.text();
        assert!(text.ends_with("echo a\n\\u{1b}]0;title\\u{7}rm \\u{202e}-rf /x\\r"), "{text:?}");
    }

    #[test]
    fn only_what_is_offered_can_be_answered() {
        let bare = question(Some("ls"), None, None);
        assert_eq!(bare.said(b"s"), Said::Nothing);
        assert_eq!(bare.said(b"y"), Said::Answer(AnswerOutcome::AllowOnce));
        assert_eq!(bare.said(b"\r"), Said::Nothing);
        let ruled = question(None, Some("-a\n+b\n"), Some("/etc/x"));
        assert_eq!(ruled.said(b"s"), Said::Answer(AnswerOutcome::AllowSession));
        assert_eq!(ruled.said(b"d"), Said::ShowDiff);
        assert!(ruled.keys().contains("d diff") && !bare.keys().contains("d diff"));
    }
}
