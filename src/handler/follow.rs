//! What handlers ask of their connection: to follow sessions, and to stop.
//!
//! A trait because the arrow is turned around: the connection, above, owns its subscriptions; handlers, below, begin
//! and end them.

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::event::SessionId;
use crate::session::feed::{Cursor, SharedFeed};

/// Why a connection follows a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It asked to, by `session/subscribe`.
    Explicit,
    /// It created, resumed or prompted it. The one that is idle longest ends when there are too many.
    Implicit,
    /// It hears of every session (`sessions:"all"`); not counted.
    All,
}

/// A subscription to begin.
pub struct Begin {
    /// The session's feed.
    pub feed: SharedFeed,
    /// From where.
    pub cursor: Cursor,
    /// Why.
    pub hold: Hold,
    /// Which of its descendants are followed with it.
    pub tree: Tree,
}

/// Which descendants are followed with a session.
pub enum Tree {
    /// None.
    Alone,
    /// All: those that begin later from their start, these from where their client is, and those that work right now
    /// from now on.
    With(Vec<(SharedFeed, Cursor)>),
}

impl Begin {
    /// With all descendants.
    pub fn whole(feed: SharedFeed, cursor: Cursor, hold: Hold) -> Self {
        Self { feed, cursor, hold, tree: Tree::With(Vec::new()) }
    }
}

/// The connection follows as many sessions as it may, each by a subscription of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this connection follows {max} sessions already; unsubscribe from one")]
pub struct TooMany {
    /// `limits.subscriptions`.
    pub max: usize,
}

/// A connection's subscriptions.
pub trait Follow: Send + Sync {
    /// A place in the order of requests that follow or unfollow a session. Taken when the request is taken up.
    fn turn(&self, session: &SessionId) -> Turn;

    /// Whether the connection follows this feed. With `pin`, the subscription counts as asked for from here on.
    fn follows(&self, feed: &SharedFeed, pin: bool) -> bool;

    /// Whether there is a place for one more subscription.
    ///
    /// # Errors
    /// [`TooMany`] when all places are taken by subscriptions that were asked for.
    fn has_place(&self, session: &SessionId) -> Result<(), TooMany>;

    /// Follows a feed from a cursor; nothing happens when it is followed already, or the connection has ended. What is
    /// left of an ended feed of the same session comes first.
    fn begin(&self, begin: Begin);

    /// Who is at the other end can answer approvals of what it follows from here on.
    fn answers(&self);
    /// Follows every session from here on.
    fn begin_all(&self, deltas: bool);

    /// Stops following, and with it those that are followed only as descendants. Nothing of the session is queued after this resolves. Says whether it was followed.
    fn stop<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, bool>;

    /// Stops following everything.
    fn stop_all(&self) -> BoxFuture<'_, ()>;
}

/// A place in an order: it comes when all places before it are given up, by dropping them.
#[derive(Debug)]
pub struct Turn {
    before: Option<oneshot::Receiver<()>>,
    _after: oneshot::Sender<()>,
}

impl Turn {
    /// The place after `before`, and what tells when it is given up.
    pub fn after(before: Option<oneshot::Receiver<()>>) -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self { before, _after: sender }, receiver)
    }

    /// Waits until the place comes.
    pub async fn comes(&mut self) {
        if let Some(before) = &mut self.before {
            // Nothing is ever sent: the end of the sender is what tells.
            let _ = before.await;
        }
        self.before = None;
    }
}
