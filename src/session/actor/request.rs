//! Requests: each is decided at once, in the order in which it came.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::open::{Missing, working_directory};
use super::{Actor, Leaving, Reached};
use crate::event::{
    AbortCause, Block, EventBody, MessageId, Seq, SessionUpdate, TurnEndReason, WorkingDirectoryChange,
};
use crate::session::decide::Verdict;
use crate::session::mailbox::{Command, PromptAnswers};
use crate::session::state::{Keyed, view};
use crate::session::{
    Accepted, Answerer, Cancelled, CloseCause, NewSession, Position, PromptRequest, QueueView, SessionError,
    Settled,
};
use crate::store::BlobId;
use crate::turn::FactEvent;

impl Actor {
    pub(super) async fn take_command(&mut self, command: Command) {
        match command {
            Command::Prompt { new, request, answers } => self.prompt(&new, request, answers).await,
            Command::Create { new, answer } => drop(answer.send(self.create(&new).await)),
            Command::Resume { answer } => {
                let opened = self.ensure_open(Missing::Refuse).await;
                let _ = answer.send(opened.map(|_| self.feed.position().0));
            }
            Command::Cancel { message_id, cause, answer } => self.cancel(message_id, cause, answer),
            Command::Close { cause, answer } => self.close(cause, answer).await,
            Command::Delete { idle_only, answer } => self.delete(idle_only, answer),
            Command::Wait { answer } => self.wait_idle(answer).await,
            Command::Queue { answer } => drop(answer.send(self.queue().await)),
            Command::GetDirectory { new, answer } => {
                let opened = self.ensure_open(Missing::Make(&new)).await;
                let _ = answer.send(opened.map(|_| self.directory()));
            }
            Command::SetDirectory { new, path, answer } => {
                let set = self.set_directory(&new, &path).await;
                let _ = answer.send(set);
            }
            Command::Update { update, answer } => drop(answer.send(self.update(*update).await)),
            Command::Answer { id, outcome, by, answer } => self.answer(&id, outcome, by, answer),
            Command::Rules { revoke, answer } => {
                let opened = self.ensure_open(Missing::Refuse).await;
                let _ = answer.send(opened.and_then(|_| self.rules(revoke)));
            }
            Command::Notice { events, text } => self.notice(events, text),
            Command::Unload => self.unload_due = true,
            Command::Retire { answer } if self.running.is_some() => drop(answer.send(Ok(()))),
            Command::Retire { answer } => {
                self.waiters.closes.push(answer);
                self.leaving = self.leaving.or(Some(Leaving::Retire));
            }
        }
    }

    async fn prompt(&mut self, new: &NewSession, request: PromptRequest, answers: PromptAnswers) {
        let was_open = self.open.is_some();
        let verdict = self.judge(new, &request).await;
        let before = if was_open { self.last() } else { self.feed.loaded_at() };
        match verdict {
            Err(error) => answers.refuse(&error),
            Ok(Verdict::Repeat(keyed)) => self.repeat(before, &keyed, answers),
            Ok(Verdict::Insert { message_id, event }) => {
                if let Err(error) = self.ready_for(request.pictures).await {
                    return answers.refuse(&error);
                }
                self.insert(before, (message_id, *event), request.receipt, answers);
            }
        }
    }

    /// Decides before anything is stored: a refused prompt leaves nothing behind.
    async fn judge(&mut self, new: &NewSession, request: &PromptRequest) -> Result<Verdict, SessionError> {
        if self.shared.is_stopping() {
            return Err(SessionError::ShuttingDown { message_id: None });
        }
        let max = self.shared.config.borrow().limits.event_bytes;
        if json_len(&request.content) > max.bytes() {
            return Err(SessionError::PromptTooLarge { max: max.0 });
        }
        self.ensure_open(Missing::Make(new)).await?;
        let Some(open) = &self.open else { return Err(SessionError::Closed(self.id.clone())) };
        let verdict = open.state.decide_prompt(&self.id, request)?;
        if matches!(verdict, Verdict::Insert { .. }) {
            self.shared.check_room()?;
        }
        if matches!(verdict, Verdict::Insert { .. }) && !request.pictures.is_empty() {
            let route = &open.state.settings;
            if !self.shared.providers().abilities(&route.provider, &route.model).images {
                let (provider, model) = (route.provider.clone(), route.model.clone());
                return Err(SessionError::TakesNoImages { provider, model });
            }
        }
        Ok(verdict)
    }

    /// Makes the log if there is none, and keeps the pictures that the next event will name.
    async fn ready_for(&mut self, pictures: Vec<(BlobId, Bytes)>) -> Result<(), SessionError> {
        self.ensure_log().await?;
        for (blob, bytes) in pictures {
            let kept = self.shared.store.put_blob(&self.id, blob, bytes).await;
            kept.map_err(|error| super::open::session_error(&self.id, error))?;
        }
        Ok(())
    }

    fn insert(
        &mut self,
        before: Option<Seq>,
        (message_id, event): (MessageId, EventBody),
        receipt: bool,
        answers: PromptAnswers,
    ) {
        let Some(open) = &self.open else { return answers.refuse(&SessionError::Closed(self.id.clone())) };
        let mut events = vec![FactEvent::from(event)];
        let starts = open.state.turn.is_none();
        if starts {
            events.extend(open.state.start_events().into_iter().map(FactEvent::from));
        }
        let inserted_at = match self.append(events) {
            Ok(first) => first,
            Err(error) => return answers.refuse(&error),
        };
        let accepted = Accepted {
            message_id: message_id.clone(),
            first_seq: Some(Seq::following(before)),
            after: vec![(self.id.clone(), inserted_at)],
        };
        let _ = answers.accepted.send(Ok(accepted));
        if receipt {
            self.barrier(Reached::Durable(answers.durable));
        }
        self.waiters.for_prompt(message_id, answers.settled);
        if starts {
            self.start_turn();
        }
    }

    /// Changes settings, from the next step on. Says where that is in the log, if there is one yet.
    async fn update(&mut self, update: SessionUpdate) -> Result<Option<Seq>, SessionError> {
        if self.shared.is_stopping() {
            return Err(SessionError::ShuttingDown { message_id: None });
        }
        self.ensure_open(Missing::Refuse).await?;
        let policy = self.shared.config.borrow().sessions.approval_policy;
        let Some(open) = &mut self.open else { return Err(SessionError::Closed(self.id.clone())) };
        if open.journal.is_unwritten() {
            open.state.apply_update(&update);
            return Ok(None);
        }
        let events = open.state.decide_update(update, policy).into_iter().map(FactEvent::from).collect();
        self.append(events).map(Some)
    }

    /// Logs what happened beside the turns, and tells the model of it: in the next step of a running turn, else in a
    /// turn that it starts.
    fn notice(&mut self, events: Vec<EventBody>, text: Option<String>) {
        let Some(open) = self.open.as_ref().filter(|open| !open.journal.is_unwritten()) else { return };
        if events.iter().any(|event| open.state.is_stale(event)) {
            return;
        }
        // A subagent works for its call alone: what comes after it waits for a prompt.
        let wakes =
            text.is_some() && self.leaving.is_none() && open.parent.is_none() && !self.shared.is_stopping();
        let mut events: Vec<FactEvent> = events.into_iter().map(FactEvent::from).collect();
        events.extend(text.map(|text| open.state.decide_notice(text).into()));
        if let Err(error) = self.append(events) {
            tracing::warn!(session = %self.id, %error, "a notice could not be logged");
        } else if wakes {
            // Nobody waits for this turn; a failure has closed the session.
            let _ = self.wake_recovered();
        }
        self.jobs_changed();
    }

    /// Answers a prompt whose key is known with the first one's outcome, now or when it is there. One that was found in
    /// the log waits for a prompt to come, and its repeat is one.
    fn repeat(&mut self, before: Option<Seq>, keyed: &Keyed, answers: PromptAnswers) {
        let woken = if keyed.outcome.is_none() { self.wake_recovered() } else { Ok(false) };
        let first_seq = match woken {
            Ok(woken) => woken.then(|| Seq::following(before)),
            Err(error) => return answers.refuse(&error),
        };
        let accepted = Accepted { message_id: keyed.message_id.clone(), first_seq, after: Vec::new() };
        let _ = answers.accepted.send(Ok(accepted));
        self.barrier(Reached::Durable(answers.durable));
        match &keyed.outcome {
            Some((reason, seq)) => {
                let settled = Settled {
                    message_id: keyed.message_id.clone(),
                    reason: reason.clone(),
                    answer: None,
                    after: vec![(self.id.clone(), *seq)],
                };
                let _ = answers.settled.send(Ok(settled));
            }
            None => self.waiters.for_prompt(keyed.message_id.clone(), answers.settled),
        }
    }

    /// Starts the turn of the first prompt that waits, if none runs. Says whether it did.
    fn wake_recovered(&mut self) -> Result<bool, SessionError> {
        let Some(open) = self.open.as_ref().filter(|open| open.state.turn.is_none()) else {
            return Ok(false);
        };
        let Some(events) = open.state.decide_next_turn() else { return Ok(false) };
        self.append(events.into_iter().map(FactEvent::from).collect())?;
        self.start_turn();
        Ok(true)
    }

    fn last(&self) -> Option<Seq> {
        self.open.as_ref().and_then(|open| open.state.last)
    }

    async fn create(&mut self, new: &NewSession) -> Result<Position, SessionError> {
        if self.shared.is_stopping() {
            return Err(SessionError::ShuttingDown { message_id: None });
        }
        if self.ensure_open(Missing::Make(new)).await? {
            Ok(self.feed.position().0)
        } else {
            Err(SessionError::Exists(self.id.clone()))
        }
    }

    fn cancel(&mut self, message_id: Option<MessageId>, cause: AbortCause, answer: Answerer<Cancelled>) {
        let nothing = Cancelled { cancelled: false, after: Vec::new() };
        let Some(open) = &self.open else {
            let _ = answer.send(Ok(nothing));
            return;
        };
        let running = open.state.turn.as_ref().and_then(|turn| turn.message_id.clone());
        match message_id {
            Some(id) if running.as_ref() != Some(&id) => match open.state.decide_withdrawal(&id) {
                Some(event) => self.withdraw(&id, event, answer),
                None => drop(answer.send(Ok(nothing))),
            },
            _ if self.running.is_some() => {
                self.waiters.cancels.push(answer);
                self.cancel_turn(cause);
            }
            _ => drop(answer.send(Ok(nothing))),
        }
    }

    fn withdraw(&mut self, message_id: &MessageId, event: EventBody, answer: Answerer<Cancelled>) {
        match self.append(vec![event.into()]) {
            Ok(seq) => {
                let after = vec![(self.id.clone(), seq)];
                let reason = TurnEndReason::Aborted { reason: AbortCause::User };
                let settled =
                    Settled { message_id: message_id.clone(), reason, answer: None, after: after.clone() };
                self.waiters.settle(message_id, &Ok(settled));
                let _ = answer.send(Ok(Cancelled { cancelled: true, after }));
                if self.is_idle() {
                    self.waiters.tell_idle();
                }
            }
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    async fn close(&mut self, cause: CloseCause, answer: Answerer<()>) {
        if self.open.is_none()
            && let Err(error) = self.exists().await
        {
            let _ = answer.send(Err(error));
            return;
        }
        self.waiters.closes.push(answer);
        self.leaving = Some(Leaving::Close(cause));
        self.cancel_turn(AbortCause::Disposed);
    }

    fn delete(&mut self, idle_only: bool, answer: Answerer<bool>) {
        let works =
            self.running.is_some() || self.open.as_ref().is_some_and(|open| !open.state.jobs.is_empty());
        if idle_only && works {
            let _ = answer.send(Ok(false));
            return;
        }
        self.waiters.deletes.push(answer);
        self.leaving = Some(Leaving::Delete);
        self.cancel_turn(AbortCause::Disposed);
    }

    async fn exists(&mut self) -> Result<(), SessionError> {
        let header = self.shared.store.header(&self.id).await;
        header.map(drop).map_err(|error| super::open::session_error(&self.id, error))
    }

    async fn wait_idle(&mut self, answer: Answerer<()>) {
        if self.open.is_none() {
            let _ = answer.send(self.exists().await);
        } else if self.is_idle() {
            let _ = answer.send(Ok(()));
        } else {
            self.waiters.idle.push(answer);
        }
    }

    async fn queue(&mut self) -> Result<QueueView, SessionError> {
        if self.open.is_none() {
            self.exists().await?;
        }
        let Some(open) = &self.open else { return Ok(QueueView::default()) };
        let running = open.state.turn.as_ref().and_then(|turn| turn.message_id.clone());
        let waiting = open.state.steering.iter().chain(&open.state.queue);
        Ok(view(running, waiting.map(|queued| &queued.message)))
    }

    fn directory(&self) -> PathBuf {
        self.open.as_ref().map_or_else(PathBuf::new, |open| {
            working_directory(&open.state.settings.cwd, &open.state.settings.first_cwd)
        })
    }

    async fn set_directory(&mut self, new: &NewSession, path: &Path) -> Result<PathBuf, SessionError> {
        self.ensure_open(Missing::Make(new)).await?;
        let joined = self.directory().join(path);
        let bad = || SessionError::BadDirectory { path: joined.display().to_string() };
        let cwd = std::fs::canonicalize(&joined).map_err(|_| bad())?;
        if !cwd.is_dir() {
            return Err(bad());
        }
        let text = cwd.to_str().ok_or_else(bad)?.to_owned();
        match &mut self.open {
            Some(open) if open.journal.is_unwritten() => open.state.settings.cwd.clone_from(&cwd),
            _ => {
                let change = EventBody::WorkingDirectoryChange(WorkingDirectoryChange { cwd: text });
                self.append(vec![change.into()])?;
            }
        }
        Ok(cwd)
    }
}

/// Bytes of a prompt's content as JSON.
fn json_len(content: &[Block]) -> usize {
    serde_json::to_vec(content).map_or(usize::MAX, |json| json.len())
}
