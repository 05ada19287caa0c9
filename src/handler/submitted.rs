//! A connection's prompts that have not ended, for the day when it is gone and takes them along.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;

use super::caller::Caller;
use crate::event::{MessageId, SessionId};
use crate::runtime::Runtime;
use crate::session::{Accepted, Answer, SessionError, Settled};

/// A prompt that was submitted is in the log, or refused, within this.
const ORPHAN_WAIT: Duration = Duration::from_secs(10);

/// Prompts of one connection.
#[derive(Default)]
pub struct Submitted {
    /// How many were submitted so far.
    count: AtomicU64,
    /// Those in the log whose turn has not ended, as far as is known.
    prompts: Mutex<HashMap<MessageId, Prompt>>,
    orphans: Mutex<Vec<Orphan>>,
}

struct Prompt {
    session: SessionId,
    /// Its place in the order of submission.
    number: u64,
    /// Where nobody waits for the end: tells it when looked at.
    settled: Option<Answer<Settled>>,
}

/// A prompt whose connection ended before it was known to be in the log.
struct Orphan {
    session: SessionId,
    number: u64,
    accepted: Answer<Accepted>,
}

impl Submitted {
    /// A prompt's turn has ended.
    pub fn settled(&self, message_id: &MessageId) {
        lock(&self.prompts).remove(message_id);
    }

    /// Cancels them all. Nothing of the connection may run any more.
    pub async fn cancel_all(&self, runtime: &Runtime) {
        let prompts = std::mem::take(&mut *lock(&self.prompts));
        let orphans = std::mem::take(&mut *lock(&self.orphans));
        let known = prompts.into_iter().map(|(id, prompt)| (prompt.number, prompt.session, id));
        let mut all: Vec<(u64, SessionId, MessageId)> = known.collect();
        for Orphan { session, number, accepted } in orphans {
            match tokio::time::timeout(ORPHAN_WAIT, accepted).await {
                Ok(Ok(accepted)) => all.push((number, session, accepted.message_id)),
                // It was refused.
                Ok(Err(_)) => {}
                Err(_) => {
                    tracing::warn!(%session, "a prompt of a connection that is gone can't be cancelled");
                }
            }
        }
        // The last first: a queued prompt must not start because the turn before it was cancelled.
        all.sort_unstable_by_key(|(number, _, _)| std::cmp::Reverse(*number));
        for (_, session, message_id) in all {
            // Nobody waits for the answer.
            drop(runtime.cancel(&session, Some(message_id)));
        }
    }
}

/// A prompt that is on its way into the log. Dropped before it is there, it is left to its connection's end.
pub struct Accepting {
    caller: Arc<Caller>,
    session: SessionId,
    number: u64,
    answer: Option<Answer<Accepted>>,
}

impl Accepting {
    /// The prompt was submitted just now.
    pub fn new(caller: Arc<Caller>, session: SessionId, answer: Answer<Accepted>) -> Self {
        let number = caller.submitted.count.fetch_add(1, Ordering::Relaxed);
        Self { caller, session, number, answer: Some(answer) }
    }

    /// Waits until the prompt is in the log; from then on it ends with the connection if it is to. `settled`: tells
    /// its end, where nobody else waits for that.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn done(mut self, settled: Option<Answer<Settled>>) -> Result<Accepted, SessionError> {
        let Some(answer) = &mut self.answer else { return Err(SessionError::Closed(self.session.clone())) };
        let accepted = answer.await;
        self.answer = None;
        let accepted = accepted?;
        let prompt = Prompt { session: self.session.clone(), number: self.number, settled };
        let mut prompts = lock(&self.caller.submitted.prompts);
        prompts.retain(|_, prompt| !prompt.has_settled());
        prompts.insert(accepted.message_id.clone(), prompt);
        drop(prompts);
        Ok(accepted)
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        if let Some(accepted) = self.answer.take() {
            let orphan = Orphan { session: self.session.clone(), number: self.number, accepted };
            lock(&self.caller.submitted.orphans).push(orphan);
        }
    }
}

impl Prompt {
    fn has_settled(&mut self) -> bool {
        self.settled.as_mut().is_some_and(|settled| settled.now_or_never().is_some())
    }
}

/// What is kept is whole between any two statements that could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
