//! Where sessions live: an append-only log each. `file` is the daemon's, `memory` serves tests and embedders.
//!
//! The trait names no path and no file, so that a distributed engine can stand behind it. A log opened for writing is
//! a lease: nobody else writes it meanwhile, in this process or another. Reading never takes the lease.

mod blob;
pub mod file;
pub mod memory;
mod record;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub use self::blob::{BlobId, Blobs};

use crate::event::{Epoch, PermissionMode, Seq, SessionEvent, SessionId, Totals};

/// What a log begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The session.
    pub id: SessionId,
    /// When it was created, in epoch milliseconds.
    pub created_at: u64,
    /// The directory it began in, absolute.
    pub cwd: String,
    /// The session that delegated to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session: Option<SessionId>,
}

/// An event ready to be stored: its number and its JSON as [`SessionEvent::encode`] wrote it.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its position.
    pub seq: Seq,
    /// One compact JSON object, without newline.
    pub json: Bytes,
}

/// A stored event as a reader gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLine {
    /// Its position.
    pub seq: Seq,
    /// The life of the log in which it was written.
    pub epoch: Epoch,
    /// The event's JSON, the same bytes that were appended.
    pub json: Bytes,
}

/// How far a log reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Each life of the log with the position of its first event, oldest first.
    pub epochs: Vec<(Epoch, Seq)>,
    /// The last event; `None` when there is none.
    pub last: Option<Seq>,
}

impl Extent {
    /// The life in which an event was written.
    fn epoch_of(&self, seq: Seq) -> Epoch {
        let at = self.epochs.partition_point(|(_, first)| *first <= seq);
        let epoch = at.checked_sub(1).and_then(|at| self.epochs.get(at));
        epoch.map_or(Epoch(0), |(epoch, _)| *epoch)
    }
}

/// How much one page may hold. A page has at least one event when there is one.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit {
    /// Events at most.
    pub events: usize,
    /// Bytes of JSON at most.
    pub bytes: usize,
}

/// A page of events.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The events, dense and in order.
    pub lines: Vec<StoredLine>,
    /// Whether more follow.
    pub more: bool,
}

/// A log that is open for writing.
pub struct Opened {
    /// The lease.
    pub log: Box<dyn SessionLog>,
    /// What the log begins with.
    pub header: Header,
    /// How far it reaches after recovery.
    pub extent: Extent,
    /// Bytes of a torn tail that were cut; 0 when it was whole.
    pub cut_bytes: u64,
}

/// A session's place in the list: the newest first, then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When the last event was written, in epoch milliseconds.
    pub updated_at: std::cmp::Reverse<u64>,
    /// The session.
    pub id: SessionId,
}

/// Which part of the list is asked for.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// What follows this place; none: from the newest.
    pub after: Option<Place>,
    /// Sessions at most.
    pub limit: usize,
    /// Only those that began in this directory.
    pub cwd: Option<String>,
}

impl ListQuery {
    /// All sessions.
    pub const ALL: Self = Self { after: None, limit: usize::MAX, cwd: None };
}

/// A page of the list.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The sessions.
    pub sessions: Vec<Summary>,
    /// Whether more follow.
    pub more: bool,
}

/// How much a session takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Which.
    pub id: SessionId,
    /// The session that delegated to it.
    pub parent: Option<SessionId>,
    /// When the last event was written, in epoch milliseconds.
    pub updated_at: u64,
    /// Bytes of its log and its blobs.
    pub bytes: u64,
}

/// A line of the list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What the log begins with.
    pub header: Header,
    /// The title, if it has one yet.
    pub title: Option<String>,
    /// When the last event was written, in epoch milliseconds.
    pub updated_at: u64,
    /// The last event.
    pub last: Option<Seq>,
    /// What it has used, as its last turn's end says.
    pub totals: Option<Totals>,
    /// What its agent may touch, as far as its head and its end say.
    pub mode: Option<PermissionMode>,
}

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such session.
    #[error("no such session")]
    NotFound,
    /// There is one already.
    #[error("the session exists already")]
    Exists,
    /// Somebody else writes it.
    #[error("another process (pid {pid}) writes this session")]
    Locked {
        /// Who; 0 when unknown.
        pid: u32,
    },
    /// Damaged before what was durable; nothing was changed.
    #[error("the log {path} is damaged at seq {seq}: {detail}")]
    Corrupt {
        /// Where it is, for a person.
        path: String,
        /// The first event that can't be read.
        seq: Seq,
        /// What is wrong.
        detail: String,
    },
    /// The log says a format that this version does not know.
    #[error("the log has format version {0}, which this dshd does not know")]
    Version(u64),
    /// Not the position that the log is at; our bug.
    #[error("append at seq {offered}, but the log is at {expected}")]
    OutOfOrder {
        /// What came.
        offered: Seq,
        /// What was due.
        expected: Seq,
    },
    /// The disk failed, now or before; nothing more is acknowledged.
    #[error("storage failed: {0}")]
    Failed(String),
}

/// A log that is open for writing. Dropping it ends the lease.
pub trait SessionLog: Send {
    /// Appends lines, dense from the log's next position, in one write. They are safe from kill -9 when this returns,
    /// and from a power cut after [`SessionLog::barrier`].
    ///
    /// # Errors
    /// [`StoreError::Failed`]: nothing of it is in the log. [`StoreError::OutOfOrder`]: our bug.
    fn append(&mut self, lines: &[Line]) -> Result<(), StoreError>;

    /// Resolves when all that was appended before the call is on stable storage. Barriers of many sessions share syncs.
    fn barrier(&self) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// Where sessions live.
pub trait SessionStore: Send + Sync + 'static {
    /// Makes a new log with its header and leases it. The log survives a power cut from its first barrier on.
    fn create(&self, header: Header) -> BoxFuture<'_, Result<Box<dyn SessionLog>, StoreError>>;

    /// Leases a log, recovers it (a torn tail is cut, damage elsewhere refused) and sends its events in order to
    /// `replay`, in batches. A receiver that goes away stops the reading, not the opening.
    fn open(
        &self,
        id: &SessionId,
        replay: mpsc::Sender<Vec<SessionEvent>>,
    ) -> BoxFuture<'_, Result<Opened, StoreError>>;

    /// How far a log reaches, without leasing it; only whole, valid lines count.
    fn extent(&self, id: &SessionId) -> BoxFuture<'_, Result<Extent, StoreError>>;

    /// Reads events after `after` (`None`: from the start), without leasing.
    fn read(
        &self,
        id: &SessionId,
        after: Option<Seq>,
        limit: PageLimit,
    ) -> BoxFuture<'_, Result<Page, StoreError>>;

    /// What the log begins with.
    fn header(&self, id: &SessionId) -> BoxFuture<'_, Result<Header, StoreError>>;

    /// Removes a session: its log first, so that what a crash leaves of it is no session. It is gone for good, also after a
    /// power cut, when this resolves. A log that is leased here is removed under that lease.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Locked`] when another process has the lease; [`StoreError::Failed`].
    fn remove(&self, id: &SessionId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// A page of the sessions, newest `updated_at` first, without reading whole logs.
    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Listing, StoreError>>;

    /// The sessions that were made by a session for its subagents.
    fn children(&self, parent: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>>;

    /// How much each session takes, longest unchanged first.
    fn sizes(&self) -> BoxFuture<'_, Result<Vec<Size>, StoreError>>;

    /// Keeps bytes that events of a session will name by their content. They are on stable storage when this resolves, so
    /// that no event outlives what it names. Needs no lease: the same bytes are the same blob, whoever keeps them.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the session has no log yet. [`StoreError::Failed`].
    fn put_blob(&self, id: &SessionId, blob: BlobId, bytes: Bytes) -> BoxFuture<'_, Result<(), StoreError>>;

    /// A blob's bytes; `None` when the session has none of that name.
    fn blob(&self, id: &SessionId, blob: BlobId) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// The first storage failure, if there was one: from then on the store only reads.
    fn failure(&self) -> Option<String>;

    /// Bytes that can still be stored; `None` when nobody can tell.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Resolves when everything appended so far, in every log, is on stable storage.
    fn flush(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}
