//! A session's feed: the tail of its log as finished lines, and the text in flight. Subscribers hold cursors on it and
//! pull; the feed never waits for them and holds nothing of theirs.
//!
//! The actor publishes under a short mutex what is already in the log. A cursor that the tail no longer reaches reads
//! the store. Attaching late, lagging and reconnecting are the same code.

mod answerer;
mod cursor;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::futures::Notified;

pub use self::answerer::Answerer;
pub use self::cursor::{Cursor, Next};

use super::{CloseCause, Position, Status};
use crate::event::{ApprovalAsked, Epoch, EventBody, Seq, SessionEvent, SessionId, Totals};
use crate::store::{Extent, StoredLine};
use crate::turn::text::{Attempt, Frame, LiveText};

/// How an event becomes a line: given by the wire's layer, opaque here.
#[derive(Clone, Copy, Debug)]
pub struct Framing {
    /// What stands before the event's JSON.
    pub prefix: fn(&SessionId, Epoch) -> Vec<u8>,
    /// What stands after it, newline included.
    pub suffix: &'static [u8],
}

/// Where a cursor begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// After the last event.
    Now,
    /// Before the first event.
    Beginning,
    /// After an event that a client has seen.
    After(Epoch, Seq),
    /// After a position that we gave ourselves, in the current life; the agent counts as idle there.
    Here(Option<Seq>),
}

/// The cursor is of a history that is not this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor belongs to another history of this session")]
pub struct CursorInvalid {
    /// Where this history is.
    pub position: Position,
}

/// What an event means for those who follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A prompt came in or a turn starts: the agent runs.
    Starts,
    /// A child session works from here on.
    ChildStarted(SessionId),
    /// A child session's turn has ended.
    ChildFinished(SessionId),
    /// Nothing.
    None,
}

impl Mark {
    /// The mark of an event.
    pub fn of(body: &EventBody) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "four types of many matter here")]
        match body {
            EventBody::TurnStart(_) => Self::Starts,
            EventBody::InboxSpliced(splice) if !splice.inserted.is_empty() => Self::Starts,
            EventBody::SubagentStarted(started) => Self::ChildStarted(started.child_session_id.clone()),
            EventBody::SubagentFinished(finished) => Self::ChildFinished(finished.child_session_id.clone()),
            _ => Self::None,
        }
    }

    /// The mark of a stored event, by its first bytes: our encoder writes `type` first.
    pub fn of_json(json: &[u8]) -> Self {
        let insert = json.starts_with(b"{\"type\":\"agent/inbox/spliced\"")
            && memchr::memmem::find(json, b"\"inserted\":[{").is_some();
        if json.starts_with(b"{\"type\":\"subagent/") {
            // What is no event was refused when it was read.
            return SessionEvent::decode(json).map_or(Self::None, |event| Self::of(&event.body));
        }
        if insert || json.starts_with(b"{\"type\":\"turn/start\"") { Self::Starts } else { Self::None }
    }
}

/// An event that is in the log and now told.
#[derive(Debug)]
pub struct Published {
    /// Its position.
    pub seq: Seq,
    /// Its JSON as stored.
    pub json: Bytes,
    /// What it means for the status.
    pub mark: Mark,
    /// Whether it ends the text in flight: the text stands before it.
    pub seals_text: bool,
}

#[derive(Debug)]
struct Entry {
    seq: Seq,
    line: Bytes,
    mark: Mark,
}

#[derive(Debug)]
struct Inner {
    /// `None` until the log was opened or looked at.
    extent: Option<Extent>,
    /// The position at which this life of the feed began.
    loaded_at: Option<Seq>,
    status: Status,
    totals: Option<Totals>,
    tail: VecDeque<Entry>,
    tail_bytes: usize,
    sealed: VecDeque<(Seq, Arc<Attempt>)>,
    prefix: Bytes,
    ended: Option<CloseCause>,
    /// Sessions that work for this one right now.
    children: Vec<(Seq, SessionId)>,
    /// Whether another session made it and has not let it go: who follows that one is told of it there.
    delegated: bool,
    /// Calls that wait for an approval.
    approvals: Vec<ApprovalAsked>,
    /// The newest delta with whom it serves: those who are level share one frame.
    shared_delta: Option<cursor::SharedDelta>,
}

/// A session's feed.
#[derive(Debug)]
pub struct Feed {
    session: SessionId,
    framing: Framing,
    bytes_max: usize,
    text: Arc<LiveText>,
    /// Subscribers who can answer approvals.
    answerers: AtomicUsize,
    inner: Mutex<Inner>,
}

/// A shared feed.
pub type SharedFeed = Arc<Feed>;

impl Feed {
    /// A feed whose log was not looked at yet. Keeps at most `bytes_max` of finished lines, and one at least.
    pub fn new(session: SessionId, framing: Framing, bytes_max: usize) -> Self {
        let inner = Inner {
            extent: None,
            loaded_at: None,
            status: Status::Idle,
            totals: None,
            tail: VecDeque::new(),
            tail_bytes: 0,
            sealed: VecDeque::new(),
            prefix: Bytes::new(),
            ended: None,
            children: Vec::new(),
            delegated: false,
            approvals: Vec::new(),
            shared_delta: None,
        };
        Self {
            session,
            framing,
            bytes_max,
            text: Arc::default(),
            answerers: AtomicUsize::new(0),
            inner: Mutex::new(inner),
        }
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The text in flight, for the turn that writes it.
    pub fn text(&self) -> &Arc<LiveText> {
        &self.text
    }

    /// Whether its log was opened or looked at, so that [`Feed::position`] is true.
    pub fn is_known(&self) -> bool {
        self.lock().extent.is_some()
    }

    /// Where the log is, and whether the agent works. Epoch 0 before the log was looked at.
    pub fn position(&self) -> (Position, Status) {
        let inner = self.lock();
        (inner.position(), inner.status)
    }

    /// Another session makes it, to work for it.
    pub fn delegated(&self) {
        self.lock().delegated = true;
    }

    /// Whether it works for another session, whose followers hear of it there.
    pub fn is_delegated(&self) -> bool {
        self.lock().delegated
    }

    /// The sessions that work for this one and began at `after` or before.
    pub fn children(&self, after: Option<Seq>) -> Vec<SessionId> {
        let inner = self.lock();
        let begun = inner.children.iter().filter(|(seq, _)| Some(*seq) <= after);
        begun.map(|(_, child)| child.clone()).collect()
    }

    /// Bytes of recent events that it holds.
    pub fn tail_bytes(&self) -> usize {
        self.lock().tail_bytes
    }

    /// What the session has used so far, while it is in memory.
    pub fn totals(&self) -> Option<Totals> {
        self.lock().totals
    }

    /// The session has used so much.
    pub fn used(&self, totals: Totals) {
        self.lock().totals = Some(totals).filter(|totals| !totals.is_empty());
    }

    /// Whether somebody who follows it can answer approvals.
    pub fn has_answerers(&self) -> bool {
        self.answerers.load(Ordering::Acquire) > 0
    }

    /// What waits for an approval, the oldest first.
    pub fn approvals(&self) -> Vec<ApprovalAsked> {
        self.lock().approvals.clone()
    }

    /// What waits for an approval now. Nothing is copied as long as nothing changes.
    pub(super) fn set_approvals(&self, waiting: &[ApprovalAsked]) {
        let mut inner = self.lock();
        if inner.approvals.len() != waiting.len() || inner.approvals.last() != waiting.last() {
            waiting.clone_into(&mut inner.approvals);
        }
    }

    /// The last event before this life of the feed.
    pub fn loaded_at(&self) -> Option<Seq> {
        self.lock().loaded_at
    }

    /// A cursor with `deltas` or without.
    ///
    /// # Errors
    /// [`CursorInvalid`] for [`Start::After`] that is not of this history.
    pub fn cursor(&self, start: Start, deltas: bool) -> Result<Cursor, CursorInvalid> {
        let inner = self.lock();
        let position = inner.position();
        let (after, told) = match start {
            Start::Now => (position.last, inner.status),
            Start::Beginning => (None, inner.status),
            Start::Here(after) => (after, Status::Idle),
            Start::After(epoch, seq) if inner.reaches(epoch, seq) => (Some(seq), inner.status),
            Start::After(..) => return Err(CursorInvalid { position }),
        };
        Ok(Cursor::new(after, told, deltas))
    }

    /// What the subscriber does next. `delta_allowed`: no delta of this cursor is on its way.
    pub fn next(&self, cursor: &mut Cursor, delta_allowed: bool) -> Next {
        cursor::next(self, &mut self.lock(), cursor, delta_allowed)
    }

    /// Completes at the next change. Make it, and `enable` it, before asking [`Feed::next`].
    pub fn changed(&self) -> Notified<'_> {
        self.text.changed().notified()
    }

    /// Resolves when the log was opened or looked at, or the feed ended.
    pub async fn known(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed());
            changed.as_mut().enable();
            {
                let inner = self.lock();
                if inner.extent.is_some() || inner.ended.is_some() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// The log was opened, or looked at without opening: how far it reaches.
    pub fn opened(&self, extent: Extent) {
        let mut inner = self.lock();
        if let Some((epoch, _)) = extent.epochs.last() {
            inner.prefix = Bytes::from((self.framing.prefix)(&self.session, *epoch));
        }
        inner.loaded_at = extent.last;
        inner.extent = Some(extent);
        drop(inner);
        self.text.changed().notify_waiters();
    }

    /// A new life of the log begins with the next event.
    pub fn begin_epoch(&self, epoch: Epoch) {
        let mut inner = self.lock();
        inner.prefix = Bytes::from((self.framing.prefix)(&self.session, epoch));
        let extent = inner.extent.get_or_insert_with(Extent::default);
        let first = Seq::following(extent.last);
        extent.epochs.retain(|(_, at)| *at != first);
        extent.epochs.push((epoch, first));
    }

    /// Tells events that are in the log, and the status that holds after them, at once.
    pub fn publish(&self, events: Vec<Published>, status: Status) {
        let mut inner = self.lock();
        for event in events {
            self.publish_one(&mut inner, &event);
        }
        inner.status = status;
        drop(inner);
        self.text.changed().notify_waiters();
    }

    /// The session ends for its subscribers.
    pub fn end(&self, cause: CloseCause) {
        self.lock().ended.get_or_insert(cause);
        self.text.changed().notify_waiters();
    }

    /// Frees the tail: the agent leaves memory, subscribers stay and read the store.
    pub fn rest(&self) {
        let mut inner = self.lock();
        inner.tail = VecDeque::new();
        inner.tail_bytes = 0;
        inner.sealed = VecDeque::new();
        inner.shared_delta = None;
        inner.status = Status::Idle;
        inner.children.clear();
        inner.delegated = false;
        inner.totals = None;
        self.text.discard();
    }

    /// A stored event as a finished line.
    pub fn line_of(&self, stored: &StoredLine) -> Bytes {
        self.finish(&(self.framing.prefix)(&self.session, stored.epoch), &stored.json)
    }

    fn publish_one(&self, inner: &mut Inner, event: &Published) {
        if event.seals_text
            && let Some(attempt) = self.text.seal()
        {
            inner.sealed.push_back((event.seq, Arc::new(attempt)));
        }
        match &event.mark {
            Mark::ChildStarted(child) => inner.children.push((event.seq, child.clone())),
            Mark::ChildFinished(child) => inner.children.retain(|(_, open)| open != child),
            Mark::Starts | Mark::None => {}
        }
        let line = self.finish(&inner.prefix, &event.json);
        inner.tail_bytes += line.len();
        inner.tail.push_back(Entry { seq: event.seq, line, mark: event.mark.clone() });
        if let Some(extent) = &mut inner.extent {
            extent.last = Some(event.seq);
        }
        while inner.tail_bytes > self.bytes_max && inner.tail.len() > 1 {
            inner.tail_bytes -= inner.tail.pop_front().map_or(0, |entry| entry.line.len());
        }
        let mut sealed_bytes: usize = inner.sealed.iter().map(|(_, text)| text.bytes()).sum();
        while sealed_bytes > self.bytes_max && inner.sealed.len() > 1 {
            sealed_bytes -= inner.sealed.pop_front().map_or(0, |(_, text)| text.bytes());
        }
    }

    fn finish(&self, prefix: &[u8], json: &[u8]) -> Bytes {
        let mut line = Vec::with_capacity(prefix.len() + json.len() + self.framing.suffix.len());
        line.extend_from_slice(prefix);
        line.extend_from_slice(json);
        line.extend_from_slice(self.framing.suffix);
        Bytes::from(line)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn position(&self) -> Position {
        let extent = self.extent.as_ref();
        let epoch = extent.and_then(|extent| extent.epochs.last()).map_or(Epoch(0), |(epoch, _)| *epoch);
        Position { epoch, last: extent.and_then(|extent| extent.last) }
    }

    /// Whether `seq` lies in the life `epoch` of this history (or, for the last one, up to its end).
    fn reaches(&self, epoch: Epoch, seq: Seq) -> bool {
        let Some(extent) = &self.extent else { return false };
        let Some(at) = extent.epochs.iter().rposition(|(known, _)| *known == epoch) else { return false };
        let end = extent.epochs.get(at + 1).map_or(extent.last, |(_, next)| next.0.checked_sub(1).map(Seq));
        end.is_some_and(|end| seq <= end)
    }

    fn frame<'a>(&'a self, framing: &'a Framing) -> Frame<'a> {
        Frame { prefix: &self.prefix, suffix: framing.suffix }
    }
}
