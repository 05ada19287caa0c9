//! A session's feed: the tail of its log as finished lines, and the text in flight. Subscribers hold cursors on it and
//! pull; the feed never waits for them and holds nothing of theirs.

use std::sync::Arc;

use bytes::Bytes;

use super::{CloseCause, Position, Status};
use crate::event::{Epoch, Seq, SessionId};
use crate::store::StoredLine;

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
    /// After a position that we gave ourselves, in the current life.
    Here(Option<Seq>),
}

/// The cursor is of a history that is not this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor belongs to another history of this session")]
pub struct CursorInvalid {
    /// Where this history is.
    pub position: Position,
}

/// A subscriber's place: the last event sent, how much of the text in flight, the status last told.
#[derive(Debug)]
pub struct Cursor {
    _private: (),
}

impl Cursor {
    /// The last event that was taken.
    pub fn after(&self) -> Option<Seq> {
        unimplemented!()
    }

    /// Takes a line that was read from the store; says the status to tell after it, if it changed.
    pub fn take_stored(&mut self, _line: &StoredLine) -> Option<Status> {
        unimplemented!()
    }
}

/// What a subscriber does next.
#[derive(Debug)]
pub enum Next {
    /// Send this finished line; the cursor has moved past `seq`.
    Event {
        /// The event.
        seq: Seq,
        /// Prefix, event, suffix.
        line: Bytes,
    },
    /// Send this finished line of text; at most one is on its way for a cursor.
    Delta(Bytes),
    /// Tell this status.
    Status(Status),
    /// Read the store after `after`, up to `until` and no further, and hand each line to [`Cursor::take_stored`].
    FromStore {
        /// Last event taken.
        after: Option<Seq>,
        /// Last event published.
        until: Seq,
    },
    /// Nothing now: wait for [`Feed::changed`] (or for the delta on its way).
    Wait,
    /// The session ended for its subscribers.
    Ended(CloseCause),
}

/// A session's feed.
#[derive(Debug)]
pub struct Feed {
    _private: (),
}

impl Feed {
    /// The session.
    pub fn session(&self) -> &SessionId {
        unimplemented!()
    }

    /// Where the log is, and whether the agent works.
    pub fn position(&self) -> (Position, Status) {
        unimplemented!()
    }

    /// A cursor with `deltas` or without.
    ///
    /// # Errors
    /// [`CursorInvalid`] for [`Start::After`] that is not of this history.
    pub fn cursor(&self, _start: Start, _deltas: bool) -> Result<Cursor, CursorInvalid> {
        unimplemented!()
    }

    /// What the subscriber does next. `delta_allowed`: no delta of this cursor is on its way.
    pub fn next(&self, _cursor: &mut Cursor, _delta_allowed: bool) -> Next {
        unimplemented!()
    }

    /// Completes at the next change. Make it, and `enable` it, before asking [`Feed::next`].
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        unimplemented!()
    }
}

/// A shared feed.
pub type SharedFeed = Arc<Feed>;
