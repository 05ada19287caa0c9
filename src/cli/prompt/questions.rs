//! What the calls of a prompt's turn ask for: the oldest first, answered by one key each. The keyboard is taken only while
//! something waits, so that typing ahead and Ctrl-C stay what they are otherwise.

use std::collections::VecDeque;

use super::super::attach::keyboard::Keyboard;
use super::super::happening::Happening;
use super::super::question::{Question, Said, word};
use crate::event::SessionId;

/// Questions that wait.
#[derive(Default)]
pub(super) struct Questions {
    waiting: VecDeque<Question>,
    keyboard: Option<Keyboard>,
}

/// What an event says of them.
pub(super) enum Noted {
    /// Ask this now.
    Asks(Question),
    /// It was answered, here or elsewhere.
    Decided(String),
}

impl Questions {
    /// A key, while something waits. Cancel safe.
    pub(super) async fn key(&mut self) -> Vec<u8> {
        if let Some(keyboard) = &mut self.keyboard
            && let Some(key) = keyboard.next().await
        {
            return key;
        }
        std::future::pending().await
    }

    /// What a key says to the oldest one.
    pub(super) fn said(&self, key: &[u8]) -> Option<(&Question, Said)> {
        let question = self.waiting.front()?;
        Some((question, question.said(key)))
    }

    /// Takes an event into account.
    pub(super) fn note(&mut self, session: &str, happening: &Happening) -> Option<Noted> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "two of many matter here")]
        match happening {
            Happening::Asked(asked) => {
                let session = SessionId::new(session).ok()?;
                let question = Question { session, approval: (**asked).clone() };
                self.waiting.push_back(question.clone());
                if self.keyboard.is_none() {
                    self.keyboard = Keyboard::take()
                        .inspect_err(|error| tracing::debug!(%error, "cannot take the keyboard"))
                        .ok();
                }
                Some(Noted::Asks(question))
            }
            Happening::Decided(decided) => {
                let at = self.waiting.iter().position(|question| question.approval.id == decided.id)?;
                self.waiting.remove(at);
                if self.waiting.is_empty() {
                    self.keyboard = None;
                }
                Some(Noted::Decided(word(decided.outcome).to_owned()))
            }
            _ => None,
        }
    }
}
