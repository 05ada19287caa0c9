//! Looking at sessions without opening them: reading, following, listing. None of this takes a log's lease.

use std::collections::HashMap;

use bytes::Bytes;

use super::{Listed, Runtime};
use crate::event::{Seq, SessionId};
use crate::session::feed::SharedFeed;
use crate::session::{Answer, Command, Position, QueueFold, QueueView, SessionError, Status, session_error};
use crate::store::{Blobs, ListQuery, Listing, Page, PageLimit, StoreError};

impl Runtime {
    /// The feed of a session that is in memory, without waiting.
    pub fn loaded_feed(&self, id: &SessionId) -> Option<SharedFeed> {
        self.shared.feed(id).filter(|feed| feed.is_known())
    }

    /// The feed of a session, loaded or not; never opens a log for writing.
    pub fn feed(&self, id: &SessionId) -> Answer<SharedFeed> {
        if let Some(feed) = self.loaded_feed(id) {
            return Answer::ready(Ok(feed));
        }
        let (runtime, id) = (self.clone(), id.clone());
        self.later(async move { runtime.find_feed(&id).await })
    }

    /// A page of events and where the log is now. Never opens a log for writing.
    pub fn read(&self, id: &SessionId, after: Option<Seq>, limit: PageLimit) -> Answer<(Page, Position)> {
        let (runtime, id) = (self.clone(), id.clone());
        self.later(async move { runtime.read_page(&id, after, limit).await })
    }

    /// A picture of a session, by its attachment's id; `None` when there is none. Never opens a log for writing.
    pub fn blob(&self, id: &SessionId, name: &str) -> Answer<Option<Bytes>> {
        let (runtime, id, name) = (self.clone(), id.clone(), name.to_owned());
        self.later(async move {
            let blobs = Blobs::new(runtime.shared.store.clone(), id.clone());
            match blobs.get(&name).await {
                // A session that nobody has prompted yet.
                Err(StoreError::NotFound) if runtime.loaded_feed(&id).is_some() => Ok(None),
                found => found.map_err(|error| session_error(&id, error)),
            }
        })
    }

    /// A page of the sessions that have a log, newest first, and whether more follow.
    pub fn list(&self, query: ListQuery) -> Answer<(Vec<Listed>, bool)> {
        let runtime = self.clone();
        self.later(async move {
            let listing = runtime.shared.store.list(query).await;
            let Listing { sessions, more } =
                listing.map_err(|error| SessionError::StorageFailed(error.to_string()))?;
            let loaded: HashMap<SessionId, SharedFeed> = runtime.loaded_by_id();
            let listed = sessions.into_iter().map(|mut summary| {
                let feed = loaded.get(&summary.header.id);
                // A turn that runs has used more than the end of the last one says.
                summary.totals = feed.and_then(|feed| feed.totals()).or(summary.totals);
                let status = feed.map_or(Status::Idle, |feed| feed.position().1);
                Listed { summary, status }
            });
            Ok((listed.collect(), more))
        })
    }

    /// What waits in a session; never opens a log for writing.
    pub fn queue(&self, id: &SessionId) -> Answer<QueueView> {
        let (answer_by, answer) = Answer::channel();
        if self.shared.submit_loaded(id, Command::Queue { answer: answer_by }).is_ok() {
            return answer;
        }
        let (runtime, id) = (self.clone(), id.clone());
        self.later(async move { runtime.stored_queue(&id).await })
    }

    /// Answers for a session that is not in memory: what `idle` says if it is stored, else that there is none.
    pub(super) fn if_stored<T: Send + 'static>(&self, id: &SessionId, idle: impl FnOnce() -> T) -> Answer<T> {
        let (runtime, id, value) = (self.clone(), id.clone(), idle());
        self.later(async move {
            let header = runtime.shared.store.header(&id).await;
            header.map(|_| value).map_err(|error| session_error(&id, error))
        })
    }

    /// Deletes the sessions of a deleted session's subagents. What can't be deleted stays, and is listed.
    pub(super) async fn delete_children(&self, parent: &SessionId) {
        let children = match self.shared.store.children(parent).await {
            Ok(children) => children,
            Err(error) => return tracing::warn!(%parent, %error, "sessions of subagents may be left"),
        };
        for child in children {
            let deleted = self.submit(&child, |answer| Command::Delete { idle_only: false, answer }).await;
            if let Err(error) = deleted
                && !matches!(error, SessionError::NotFound(_))
            {
                tracing::warn!(%parent, %child, %error, "the session of a subagent is left");
            }
        }
    }

    pub(super) fn later<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SessionError>> + Send + 'static,
    ) -> Answer<T> {
        let (answer_by, answer) = Answer::channel();
        self.shared.scope.spawn(async move {
            let _ = answer_by.send(work.await);
        });
        answer
    }

    async fn find_feed(&self, id: &SessionId) -> Result<SharedFeed, SessionError> {
        loop {
            if let Some(feed) = self.shared.feed(id) {
                feed.known().await;
                if feed.is_known() {
                    return Ok(feed);
                }
            }
            let extent = self.shared.store.extent(id).await.map_err(|error| session_error(id, error))?;
            let feed = self.shared.new_feed(id);
            feed.opened(extent);
            let kept = self.shared.keep_dormant(feed);
            if kept.is_known() {
                return Ok(kept);
            }
        }
    }

    async fn read_page(
        &self,
        id: &SessionId,
        after: Option<Seq>,
        limit: PageLimit,
    ) -> Result<(Page, Position), SessionError> {
        let feed = self.find_feed(id).await?;
        let (position, _) = feed.position();
        let Some(last) = position.last else { return Ok((Page::default(), position)) };
        let page = self.shared.store.read(id, after, limit).await;
        let mut page = match page {
            Err(StoreError::NotFound) if position.last.is_none() => Page::default(),
            page => page.map_err(|error| session_error(id, error))?,
        };
        // What is written but not yet told is not yet there.
        if page.lines.last().is_some_and(|line| line.seq > last) {
            page.lines.retain(|line| line.seq <= last);
            page.more = false;
        }
        Ok((page, position))
    }

    /// Folds a stored log for what waits in it, page by page.
    async fn stored_queue(&self, id: &SessionId) -> Result<QueueView, SessionError> {
        let limit = PageLimit { events: 1000, bytes: 256 * 1024 };
        let mut fold = QueueFold::default();
        let mut after = None;
        loop {
            let page =
                self.shared.store.read(id, after, limit).await.map_err(|error| session_error(id, error))?;
            after = page.lines.last().map(|line| line.seq).or(after);
            page.lines.iter().for_each(|line| fold.take(line));
            if !page.more {
                return Ok(fold.view());
            }
        }
    }

    fn loaded_by_id(&self) -> HashMap<SessionId, SharedFeed> {
        self.shared.loaded().into_iter().map(|feed| (feed.session().clone(), feed)).collect()
    }
}
