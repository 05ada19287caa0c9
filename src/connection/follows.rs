//! The table of one connection's subscriptions.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::outbound::Slot;
use super::subscription::{Common, Progress, Subscription};
use crate::config::Config;
use crate::event::{Seq, SessionId};
use crate::handler::follow::{Begin, Follow, Hold, TooMany, Tree, Turn};
use crate::handler::shared::Holders;
use crate::runtime::Runtime;
use crate::session::feed::{Answerer, Feed, SharedFeed, Start};
use crate::shutdown::Scope;

/// One connection's subscriptions. Cheap to clone.
#[derive(Clone)]
pub(super) struct Follows(Arc<Inner>);

struct Inner {
    table: Mutex<Table>,
    common: Common,
    config: watch::Receiver<Arc<Config>>,
    holders: Holders,
    /// Where the subscriptions run.
    scope: Scope,
    /// The peer can answer approvals.
    answers: AtomicBool,
}

#[derive(Default)]
struct Table {
    followed: HashMap<SessionId, Followed>,
    /// The last place taken in each session's order; those that were given up are swept at the next.
    turns: HashMap<SessionId, oneshot::Receiver<()>>,
    closed: bool,
}

struct Followed {
    feed: SharedFeed,
    progress: Arc<Progress>,
    hold: Hold,
    /// The session that it is a child of, when it is followed for that alone.
    parent: Option<SessionId>,
    end: CancellationToken,
    /// Counts the peer among those who can answer the session's approvals.
    _answerer: Option<Answerer>,
}

impl Follows {
    pub(super) fn new(
        common: Common,
        config: watch::Receiver<Arc<Config>>,
        holders: Holders,
        scope: Scope,
    ) -> Self {
        Self(Arc::new(Inner {
            table: Mutex::default(),
            common,
            config,
            holders,
            scope,
            answers: AtomicBool::new(false),
        }))
    }

    /// Resolves when every event named is queued, with the status due after it, for each session that is followed.
    pub(super) async fn passed(&self, after: &[(SessionId, Seq)]) {
        for (session, seq) in after {
            // A subscription that is about to begin counts as begun.
            self.turn(session).comes().await;
            // Whoever replaces a subscription begins another one: look again after the end of the one that was there.
            while let Some(progress) = self.progress(session) {
                progress.reached(*seq).await;
                if progress.passed() >= Some(*seq) {
                    break;
                }
            }
        }
    }

    /// How many events this connection has not been sent yet.
    pub(super) fn events_behind(&self) -> u64 {
        let table = self.0.lock();
        let behind = table.followed.values().map(|followed| {
            let last = followed.feed.position().0.last.map_or(0, |seq| seq.0 + 1);
            last.saturating_sub(followed.progress.passed().map_or(0, |seq| seq.0 + 1))
        });
        behind.sum()
    }

    /// Resolves when no session is followed any more.
    pub(super) async fn all_ended(&self) {
        loop {
            let progress = self.0.lock().followed.values().next().map(|followed| followed.progress.clone());
            match progress {
                Some(progress) => progress.ended().await,
                None => return,
            }
        }
    }

    /// How many sessions are followed.
    pub(super) fn len(&self) -> usize {
        self.0.lock().followed.len()
    }

    /// Follows every session: those in memory from now, those that come into memory from the first event after that.
    pub(super) async fn follow_all(self, deltas: bool) {
        let mut loads = self.0.common.runtime.loads();
        let mut seen: HashMap<SessionId, Weak<Feed>> = HashMap::new();
        let mut first = true;
        loop {
            loads.mark_unchanged();
            let feeds = self.0.common.runtime.loaded_feeds();
            let loaded: HashSet<&SessionId> = feeds.iter().map(|feed| feed.session()).collect();
            seen.retain(|session, _| loaded.contains(session));
            // Children are told of by their parents.
            for feed in feeds.iter().filter(|feed| feed.is_known() && !feed.is_delegated()) {
                let known = seen.insert(feed.session().clone(), Arc::downgrade(feed));
                if known.is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(feed))) {
                    continue;
                }
                let start = if first { Start::Now } else { Start::Here(feed.loaded_at()) };
                let mut turn = self.turn(feed.session());
                turn.comes().await;
                if let Ok(cursor) = feed.cursor(start, deltas) {
                    self.begin(Begin::whole(feed.clone(), cursor, Hold::All));
                }
            }
            first = false;
            if loads.changed().await.is_err() {
                return;
            }
        }
    }

    fn progress(&self, session: &SessionId) -> Option<Arc<Progress>> {
        self.followed(session).map(|(_, progress)| progress)
    }

    /// The subscription on a session: its feed, and how far it is.
    pub(super) fn followed(&self, session: &SessionId) -> Option<(SharedFeed, Arc<Progress>)> {
        let table = self.0.lock();
        table.followed.get(session).map(|followed| (followed.feed.clone(), Arc::clone(&followed.progress)))
    }

    /// Whether a session is followed.
    pub(super) fn is_followed(&self, session: &SessionId) -> bool {
        self.0.lock().followed.contains_key(session)
    }

    /// Why the children of a session are followed; `None`: it is not followed any more.
    pub(super) fn hold_of_children(&self, parent: &SessionId) -> Option<Hold> {
        let hold = self.0.lock().followed.get(parent)?.hold;
        Some(if hold == Hold::All { Hold::All } else { Hold::Implicit })
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.0.common.runtime
    }

    /// Begins a subscription: asked for, or (`parent`) because it is a child of one that is followed.
    pub(super) fn begin_for(&self, parent: Option<&SessionId>, begin: Begin) {
        let Begin { feed, cursor, hold, tree } = begin;
        let progress = Arc::new(Progress::at(cursor.after()));
        let end = CancellationToken::new();
        let followed = Followed {
            feed: feed.clone(),
            progress: progress.clone(),
            hold,
            parent: parent.cloned(),
            end: end.clone(),
            _answerer: self.0.answers.load(Ordering::Acquire).then(|| Answerer::of(&feed)),
        };
        let Ok(before) = self.0.insert(followed) else { return };
        let (whole, known) = match tree {
            Tree::Alone => (false, Vec::new()),
            Tree::With(known) => (true, known),
        };
        let subscription = Subscription {
            common: self.0.common.clone(),
            follows: self.clone(),
            feed,
            cursor,
            tree: whole,
            progress: Arc::clone(&progress),
            slot: Arc::new(Slot::default()),
            next_bytes: 0,
        };
        let (inner, aborting) = (Arc::clone(&self.0), self.0.scope.aborting().clone());
        self.0.scope.spawn(async move {
            let session = subscription.feed.session().clone();
            let follow = async {
                if let Some(before) = before {
                    before.ended().await;
                }
                subscription.begin_children(known).await;
                subscription.run().await;
            };
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = aborting.cancelled() => {}
                () = follow => {}
            }
            inner.forget(&session, &progress);
            progress.end();
        });
    }
}

impl Follow for Follows {
    fn turn(&self, session: &SessionId) -> Turn {
        let mut table = self.0.lock();
        table.turns.retain(|_, turn| matches!(turn.try_recv(), Err(TryRecvError::Empty)));
        let (turn, given_up) = Turn::after(table.turns.remove(session));
        table.turns.insert(session.clone(), given_up);
        turn
    }

    fn follows(&self, feed: &SharedFeed, pin: bool) -> bool {
        let mut table = self.0.lock();
        let Some(followed) = table.followed.get_mut(feed.session()) else { return false };
        if !Arc::ptr_eq(&followed.feed, feed) {
            return false;
        }
        if pin {
            if followed.hold == Hold::All {
                self.0.holders.add(feed.session());
            }
            followed.hold = Hold::Explicit;
        }
        true
    }

    fn has_place(&self, session: &SessionId) -> Result<(), TooMany> {
        let max = self.0.config.borrow().limits.subscriptions;
        let table = self.0.lock();
        let asked_for = table.followed.values().filter(|followed| followed.hold == Hold::Explicit).count();
        if asked_for < max || table.followed.contains_key(session) { Ok(()) } else { Err(TooMany { max }) }
    }

    fn begin(&self, begin: Begin) {
        self.begin_for(None, begin);
    }

    fn answers(&self) {
        self.0.answers.store(true, Ordering::Release);
    }

    fn begin_all(&self, deltas: bool) {
        let follows = self.clone();
        let aborting = self.0.scope.aborting().clone();
        self.0.scope.spawn(async move {
            let settling = follows.0.common.draining.clone();
            tokio::select! {
                () = aborting.cancelled() => {}
                () = settling.cancelled() => {}
                () = follows.follow_all(deltas) => {}
            }
        });
    }

    fn stop<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, bool> {
        let mut stopped = Vec::new();
        let mut was_followed = false;
        for (id, followed) in &self.0.lock().followed {
            let asked_for = id == session;
            was_followed |= asked_for;
            // Children that were asked for themselves stay.
            let goes_too = followed.parent.as_ref() == Some(session) && followed.hold != Hold::Explicit;
            if asked_for || goes_too {
                followed.end.cancel();
                stopped.push(Arc::clone(&followed.progress));
            }
        }
        async move {
            for progress in stopped {
                progress.ended().await;
            }
            was_followed
        }
        .boxed()
    }

    fn stop_all(&self) -> BoxFuture<'_, ()> {
        let stopped: Vec<Arc<Progress>> = {
            let mut table = self.0.lock();
            table.closed = true;
            let end = |followed: &Followed| {
                followed.end.cancel();
                Arc::clone(&followed.progress)
            };
            table.followed.values().map(end).collect()
        };
        async move {
            for progress in stopped {
                progress.ended().await;
            }
        }
        .boxed()
    }
}

/// The session is followed already, or the connection takes no subscription any more.
struct NotInserted;

impl Inner {
    /// Enters a subscription. Gives back that of the session's former feed, which comes first.
    fn insert(&self, followed: Followed) -> Result<Option<Arc<Progress>>, NotInserted> {
        let session = followed.feed.session().clone();
        let mut table = self.lock();
        let former = table.followed.get(&session);
        if table.closed || former.is_some_and(|former| Arc::ptr_eq(&former.feed, &followed.feed)) {
            return Err(NotInserted);
        }
        if followed.hold != Hold::All {
            self.make_place(&mut table);
            self.holders.add(&session);
        }
        let now = self.common.clock.load(Ordering::Relaxed);
        followed.progress.touched.store(now, Ordering::Relaxed);
        let former = table.followed.insert(session.clone(), followed);
        if former.as_ref().is_some_and(|former| former.hold != Hold::All) {
            self.holders.remove(&session);
        }
        Ok(former.map(|former| former.progress))
    }

    /// Ends the implicit subscription that is idle longest when all places are taken.
    fn make_place(&self, table: &mut Table) {
        let max = self.config.borrow().limits.subscriptions;
        let counted = table.followed.values().filter(|followed| followed.hold != Hold::All).count();
        if counted < max {
            return;
        }
        let implicit = table.followed.iter().filter(|(_, followed)| followed.hold == Hold::Implicit);
        let touched = |followed: &Followed| followed.progress.touched.load(Ordering::Relaxed);
        if let Some((session, followed)) = implicit.min_by_key(|(_, followed)| touched(followed)) {
            tracing::debug!(%session, max, "a subscription makes place for another");
            followed.end.cancel();
            let session = session.clone();
            table.followed.remove(&session);
            self.holders.remove(&session);
        }
    }

    /// A subscription has ended.
    fn forget(&self, session: &SessionId, progress: &Arc<Progress>) {
        let mut table = self.lock();
        if let Some(followed) = table.followed.get(session)
            && Arc::ptr_eq(&followed.progress, progress)
        {
            if followed.hold != Hold::All {
                self.holders.remove(session);
            }
            table.followed.remove(session);
        }
    }

    /// The table is whole between any two statements that could panic.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
