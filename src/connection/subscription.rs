//! A subscription: one task that follows one session for one connection, reading on from its cursor.
//!
//! It waits for its own connection only: for room, for the one line of text on its way, or for the session to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::follows::Follows;
use super::notice;
use super::outbound::{Closed, Outbound, Room, Slot};
use crate::event::Seq;
use crate::metrics::METRICS;
use crate::runtime::Runtime;
use crate::session::feed::{Cursor, Mark, Next, SharedFeed};
use crate::session::{CloseCause, SessionError, Status};
use crate::store::PageLimit;

/// A page that is read from the store for a subscriber who lags, in bytes and events.
const PAGE: PageLimit = PageLimit { events: 1000, bytes: 256 * 1024 };

/// Room that is taken for a page: its events with what stands around them.
const PAGE_ROOM_BYTES: usize = 2 * PAGE.bytes;

/// How far a subscription has come, for those who wait for it. Shared by its task and its connection.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// One more than the last event that is queued with the status due after it; 0 before the first.
    passed: AtomicU64,
    ended: AtomicBool,
    moved: Notify,
    /// The connection's clock when an event was last sent.
    pub(super) touched: AtomicU64,
}

impl Progress {
    pub(super) fn at(after: Option<Seq>) -> Self {
        Self { passed: AtomicU64::new(count(after)), ..Self::default() }
    }

    /// The last event that is queued with the status due after it.
    pub(super) fn passed(&self) -> Option<Seq> {
        self.passed.load(Ordering::Acquire).checked_sub(1).map(Seq)
    }

    /// Resolves when `seq` is queued with the status due after it, or the subscription has ended.
    pub(super) async fn reached(&self, seq: Seq) {
        self.until(|| self.passed() >= Some(seq)).await;
    }

    /// Resolves when the subscription has ended: it queues nothing more.
    pub(super) async fn ended(&self) {
        self.until(|| false).await;
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            if self.ended.load(Ordering::Acquire) || holds() {
                return;
            }
            moved.await;
        }
    }

    fn pass(&self, after: Option<Seq>) {
        let passed = count(after);
        if self.passed.load(Ordering::Relaxed) != passed {
            self.passed.store(passed, Ordering::Release);
            self.moved.notify_waiters();
        }
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.moved.notify_waiters();
    }
}

fn count(after: Option<Seq>) -> u64 {
    after.map_or(0, |seq| seq.0 + 1)
}

/// What the subscriptions of one connection share.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) runtime: Runtime,
    pub(super) outbound: Outbound,
    /// Readers of the store at once, of all connections.
    pub(super) readers: Arc<Semaphore>,
    /// One page of the connection's laggards is in memory at once.
    pub(super) page: Arc<Semaphore>,
    /// Counts events sent on the connection: tells which subscription is idle longest.
    pub(super) clock: Arc<AtomicU64>,
    /// Subscriptions end once they have caught up.
    pub(super) draining: CancellationToken,
}

/// One session followed by one connection.
pub(super) struct Subscription {
    pub(super) common: Common,
    pub(super) follows: Follows,
    pub(super) feed: SharedFeed,
    pub(super) cursor: Cursor,
    /// Whether its descendants are followed, too.
    pub(super) tree: bool,
    pub(super) progress: Arc<Progress>,
    pub(super) slot: Arc<Slot>,
    /// The next stored line's bytes, where it is known to be a large one: 0 else.
    pub(super) next_bytes: usize,
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Ask again.
    More,
    /// Nothing to send now.
    Idle,
    /// The session ended for its subscribers.
    End(CloseCause),
}

impl Subscription {
    /// Follows until the session ends, the connection closes or drains, or the caller drops this.
    pub(super) async fn run(mut self) {
        // A closed connection ends its subscriptions; there is nobody to tell.
        if let Ok(Some(cause)) = self.pump().await {
            let line = notice::closed(self.feed.session(), cause);
            let _ = self.common.outbound.notice(line).await;
        }
    }

    /// Why the session ended; `None`: the connection drains and all is sent.
    async fn pump(&mut self) -> Result<Option<CloseCause>, Closed> {
        let feed = Arc::clone(&self.feed);
        loop {
            match self.step(self.common.outbound.has_room()).await? {
                Flow::More => continue,
                Flow::End(cause) => return Ok(Some(cause)),
                Flow::Idle => {}
            }
            // Asked again once a change can't be missed any more.
            let mut changed = std::pin::pin!(feed.changed());
            changed.as_mut().enable();
            // Looked at once: text that is withheld for lack of room is waited for, whatever has become of the room since.
            let congested = !self.common.outbound.has_room();
            match self.step(!congested).await? {
                Flow::More => continue,
                Flow::End(cause) => return Ok(Some(cause)),
                Flow::Idle => {}
            }
            let draining = self.common.draining.is_cancelled();
            if draining && !congested && self.slot.is_free() {
                return Ok(None);
            }
            tokio::select! {
                () = changed => {}
                () = self.slot.freed() => {}
                room = self.common.outbound.room(self.common.outbound.good_part()), if congested => drop(room?),
                () = self.common.draining.cancelled(), if !draining => {}
            }
        }
    }

    async fn step(&mut self, has_room: bool) -> Result<Flow, Closed> {
        // Text is asked for when there is room for it: whoever waits gets it longer, not older.
        let delta_allowed = self.slot.is_free() && has_room;
        match self.feed.next(&mut self.cursor, delta_allowed) {
            Next::Event { seq, line, mark } => {
                // Those before this one are queued, with the statuses due after them.
                self.progress.pass(seq.0.checked_sub(1).map(Seq));
                self.send_event(line, &mark).await?;
            }
            Next::Status(status) => self.tell(status).await?,
            Next::Delta(line) => {
                self.progress.pass(self.cursor.after());
                METRICS.deltas.add(1);
                let slot = self.slot.take();
                let room = self.common.outbound.room(line.len()).await?;
                self.common.outbound.push(line, room, Some(slot))?;
            }
            Next::FromStore { after, until } => {
                self.progress.pass(after);
                if let Some(cause) = self.catch_up(after, until).await? {
                    return Ok(Flow::End(cause));
                }
            }
            Next::Wait => {
                self.progress.pass(self.cursor.after());
                return Ok(Flow::Idle);
            }
            Next::Ended(cause) => {
                self.progress.pass(self.cursor.after());
                return Ok(Flow::End(cause));
            }
        }
        Ok(Flow::More)
    }

    async fn send_event(&mut self, line: Bytes, mark: &Mark) -> Result<(), Closed> {
        if matches!(mark, Mark::Starts | Mark::None) {
            return self.send(line).await;
        }
        self.before(mark, notice::event_of(&line)).await;
        self.send(line.clone()).await?;
        self.after(mark, notice::event_of(&line)).await
    }

    pub(super) async fn send(&self, line: Bytes) -> Result<(), Closed> {
        let room = self.common.outbound.room(line.len()).await?;
        self.push(line, room)
    }

    fn push(&self, line: Bytes, room: Room) -> Result<(), Closed> {
        self.progress.touched.store(self.common.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.common.outbound.push(line, room, None)
    }

    async fn tell(&self, status: Status) -> Result<(), Closed> {
        self.common.outbound.notice(notice::status(self.feed.session(), status)).await
    }

    /// Sends one page from the store. Says why the subscription ends when there is none to be had.
    ///
    /// Nothing is read, and nothing is held, before there is room for it: who has stopped costs its queue alone.
    async fn catch_up(&mut self, after: Option<Seq>, until: Seq) -> Result<Option<CloseCause>, Closed> {
        let page_permit = self.common.page.clone().acquire_owned().await.map_err(|_| Closed)?;
        let outbound = self.common.outbound.clone();
        let bytes = PAGE_ROOM_BYTES.min(outbound.good_part()).max(std::mem::take(&mut self.next_bytes));
        let mut room = Some(outbound.room(bytes).await?);
        let read = {
            let _reader = self.common.readers.acquire().await.map_err(|_| Closed)?;
            self.common.runtime.read(self.feed.session(), after, PAGE).await
        };
        let lines = match read {
            Ok((page, _)) => page.lines,
            Err(error) => return Ok(Some(self.unreadable(&error))),
        };
        if lines.is_empty() {
            tracing::error!(session = %self.feed.session(), ?after, %until, "told events are not in the log");
            return Ok(Some(CloseCause::StorageFailed));
        }
        let mut page_permit = Some(page_permit);
        for line in lines.into_iter().take_while(|line| line.seq <= until) {
            let mark = Mark::of_json(&line.json);
            let framed = self.feed.line_of(&line);
            let is_plain = matches!(mark, Mark::Starts | Mark::None);
            if !is_plain {
                // A child's events come before it or after it: they need room, and one that is waited for a page.
                room = None;
            }
            if self.waits_for(&mark) {
                page_permit = None;
            }
            let part = room.as_mut().map(|room| room.part(framed.len()));
            if let Some(None) = part {
                self.next_bytes = framed.len();
                break;
            }
            let status = self.cursor.take_stored(&line);
            match part.flatten() {
                Some(part) => self.push(framed, part)?,
                None => self.send_event(framed, &mark).await?,
            }
            if let Some(status) = status {
                self.tell(status).await?;
            }
            if !is_plain {
                break;
            }
        }
        drop(page_permit);
        Ok(None)
    }

    fn unreadable(&self, error: &SessionError) -> CloseCause {
        tracing::warn!(session = %self.feed.session(), %error, "a subscriber can't be caught up");
        if matches!(error, SessionError::NotFound(_)) {
            CloseCause::Deleted
        } else {
            CloseCause::StorageFailed
        }
    }
}
