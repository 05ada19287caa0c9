//! Descendants: how the subscription of a parent begins those of its children, and waits for them at their ends.
//!
//! A child's first frame follows its `subagent.started`, and its last one precedes its `subagent.finished`, however slow
//! the reader: the parent's cursor stops until the child's has passed.

use super::follows::Follows;
use super::notice;
use super::outbound::Closed;
use super::subscription::Subscription;
use crate::event::{EventBody, SessionEvent, SessionId, SubagentFinished};
use crate::handler::follow::{Begin, Tree};
use crate::session::feed::{Cursor, Mark, SharedFeed, Start};

impl Subscription {
    /// Begins those children that began before this subscription's place: from where their client is, or, when they work
    /// right now, from now on.
    pub(super) async fn begin_children(&self, known: Vec<(SharedFeed, Cursor)>) {
        let parent = self.feed.session();
        for (feed, cursor) in known {
            if let Some(hold) = self.follows.hold_of_children(parent) {
                let tree = Tree::With(Vec::new());
                self.follows.begin_for(Some(parent), Begin { feed, cursor, hold, tree });
            }
        }
        if self.tree {
            for child in self.feed.children(self.cursor.after()) {
                self.follows.follow_child(parent, &child, Start::Now, self.cursor.deltas()).await;
            }
        }
    }

    /// What comes before a parent's event: the rest of a child whose end it tells.
    pub(super) async fn before(&self, mark: &Mark, json: &[u8]) {
        if let Mark::ChildFinished(child) = mark
            && let Some(finished) = finished(json)
        {
            self.follows.child_passed(child, &finished).await;
        }
    }

    /// Whether [`Subscription::before`] would wait.
    pub(super) fn waits_for(&self, mark: &Mark) -> bool {
        matches!(mark, Mark::ChildFinished(child) if self.follows.is_followed(child))
    }

    /// What comes after a parent's event: the notification that is made of it, and a child that begins.
    pub(super) async fn after(&self, mark: &Mark, json: &[u8]) -> Result<(), Closed> {
        let parent = self.feed.session();
        match mark {
            Mark::ChildStarted(child) => {
                self.send(notice::subagent_started(parent, child)).await?;
                if self.tree {
                    let deltas = self.cursor.deltas();
                    self.follows.follow_child(parent, child, Start::Here(None), deltas).await;
                }
            }
            Mark::ChildFinished(_) => {
                if let Some(finished) = finished(json) {
                    self.send(notice::subagent_finished(parent, finished)).await?;
                }
            }
            Mark::Starts | Mark::None => {}
        }
        Ok(())
    }
}

impl Follows {
    /// Follows a child for as long as its parent is followed.
    pub(super) async fn follow_child(
        &self,
        parent: &SessionId,
        child: &SessionId,
        start: Start,
        deltas: bool,
    ) {
        let feed: SharedFeed = match self.runtime().feed(child).await {
            Ok(feed) => feed,
            // Its log was removed, or it never had one.
            Err(error) => return tracing::debug!(%parent, %child, %error, "a child can't be followed"),
        };
        if let (Some(hold), Ok(cursor)) = (self.hold_of_children(parent), feed.cursor(start, deltas)) {
            let tree = Tree::With(Vec::new());
            self.begin_for(Some(parent), Begin { feed, cursor, hold, tree });
        }
    }

    /// Resolves when a child's events up to its end are queued, or it is not followed. What a crash has taken from its
    /// log is not waited for; where the end is not known, all that there is now comes first.
    async fn child_passed(&self, child: &SessionId, finished: &SubagentFinished) {
        while let Some((feed, progress)) = self.followed(child) {
            let Some(end) = feed.position().0.last else { return };
            let last = finished.child_last_seq.map_or(end, |last| last.min(end));
            progress.reached(last).await;
            if progress.passed() >= Some(last) {
                return;
            }
        }
    }
}

fn finished(json: &[u8]) -> Option<SubagentFinished> {
    let EventBody::SubagentFinished(finished) = SessionEvent::decode(json).ok()?.body else { return None };
    Some(finished)
}
