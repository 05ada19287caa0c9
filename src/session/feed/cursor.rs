//! A subscriber's place in a feed, and the one function that says what it does next.

use bytes::Bytes;

use super::{Feed, Inner, Mark};
use crate::event::Seq;
use crate::session::{CloseCause, Status};
use crate::store::StoredLine;
use crate::turn::text::Progress;

/// A subscriber's place: the last event taken, how much of the text in flight, the status last told.
#[derive(Debug)]
pub struct Cursor {
    after: Option<Seq>,
    told: Status,
    due: Option<Status>,
    deltas: bool,
    progress: Progress,
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
        /// What it means.
        mark: Mark,
    },
    /// Send these finished lines of text; at most one such frame is on its way for a cursor.
    Delta(Bytes),
    /// Tell this status.
    Status(Status),
    /// Read the store after `after`, up to `until` and no further, and hand each line to [`Cursor::take_stored`].
    FromStore {
        /// Last event taken.
        after: Option<Seq>,
        /// Last event to take.
        until: Seq,
    },
    /// Nothing now: wait for [`Feed::changed`] (or for the delta on its way).
    Wait,
    /// The session ended for its subscribers.
    Ended(CloseCause),
}

/// The newest delta, and between which places it lies.
#[derive(Debug)]
pub(super) struct SharedDelta {
    from: Progress,
    to: Progress,
    lines: Bytes,
}

impl Cursor {
    pub(super) fn new(after: Option<Seq>, told: Status, deltas: bool) -> Self {
        Self { after, told, due: None, deltas, progress: Progress::default() }
    }

    /// The last event that was taken.
    pub fn after(&self) -> Option<Seq> {
        self.after
    }

    /// Whether it is given the text in flight.
    pub fn deltas(&self) -> bool {
        self.deltas
    }

    /// The status last told.
    pub fn told(&self) -> Status {
        self.told
    }

    /// Takes a line that was read from the store. Says the status to tell after it, if it changed.
    pub fn take_stored(&mut self, line: &StoredLine) -> Option<Status> {
        self.take(line.seq, &Mark::of_json(&line.json));
        let due = self.due.take();
        self.told = due.unwrap_or(self.told);
        due
    }

    fn take(&mut self, seq: Seq, mark: &Mark) {
        self.after = Some(seq);
        if *mark == Mark::Starts && self.told == Status::Idle {
            self.due = Some(Status::Running);
        }
    }
}

/// Events come first; before an event that ends a text comes the rest of that text; the text in flight comes last.
pub(super) fn next(feed: &Feed, inner: &mut Inner, cursor: &mut Cursor, delta_allowed: bool) -> Next {
    if let Some(status) = cursor.due.take() {
        cursor.told = status;
        return Next::Status(status);
    }
    if let Some(last) = inner.extent.as_ref().and_then(|extent| extent.last)
        && cursor.after < Some(last)
    {
        return next_event(feed, inner, cursor, delta_allowed, last);
    }
    if cursor.told != inner.status {
        cursor.told = inner.status;
        return Next::Status(inner.status);
    }
    if let Some(cause) = inner.ended {
        return Next::Ended(cause);
    }
    if cursor.deltas && delta_allowed {
        return live_delta(feed, inner, cursor);
    }
    Next::Wait
}

fn next_event(feed: &Feed, inner: &Inner, cursor: &mut Cursor, delta_allowed: bool, last: Seq) -> Next {
    let due = Seq::following(cursor.after);
    if cursor.deltas
        && let Some((_, text)) = inner.sealed.iter().find(|(seq, _)| *seq == due)
        && text.has_more(&cursor.progress)
    {
        if !delta_allowed {
            return Next::Wait;
        }
        if let Some(lines) = text.lines_since(&mut cursor.progress, inner.frame(&feed.framing)) {
            return Next::Delta(Bytes::from(lines));
        }
    }
    let Some(first) = inner.tail.front().map(|entry| entry.seq) else {
        return Next::FromStore { after: cursor.after, until: last };
    };
    let entry = due.0.checked_sub(first.0).and_then(|at| inner.tail.get(usize::try_from(at).ok()?));
    match entry {
        Some(entry) => {
            cursor.take(entry.seq, &entry.mark);
            Next::Event { seq: entry.seq, line: entry.line.clone(), mark: entry.mark.clone() }
        }
        None => Next::FromStore { after: cursor.after, until: Seq(first.0.saturating_sub(1)) },
    }
}

fn live_delta(feed: &Feed, inner: &mut Inner, cursor: &mut Cursor) -> Next {
    if !feed.text.has_more(&cursor.progress) {
        return Next::Wait;
    }
    if let Some(shared) = &inner.shared_delta
        && shared.from == cursor.progress
        && !feed.text.has_more(&shared.to)
    {
        cursor.progress = shared.to.clone();
        return Next::Delta(shared.lines.clone());
    }
    let from = cursor.progress.clone();
    let Some(lines) = feed.text.lines_since(&mut cursor.progress, inner.frame(&feed.framing)) else {
        return Next::Wait;
    };
    let lines = Bytes::from(lines);
    inner.shared_delta = Some(SharedDelta { from, to: cursor.progress.clone(), lines: lines.clone() });
    Next::Delta(lines)
}
