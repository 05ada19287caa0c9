//! What the tools of one session keep between calls.

use std::sync::Arc;
use std::time::Duration;

use super::Notify;
use super::job::Jobs;
use super::observed::Observed;
use crate::event::EventBody;
use crate::process::Family;

/// Made when a session comes into memory, gone when it leaves.
#[derive(Debug, Default)]
pub struct ToolState {
    /// Tells the session of what ends after its call; none in tests.
    notify: Option<Arc<dyn Notify>>,
    /// Files as the session saw them.
    pub(super) observed: Observed,
    family: Arc<Family>,
    jobs: Jobs,
}

impl ToolState {
    /// Nothing kept yet.
    pub fn new(notify: Arc<dyn Notify>) -> Self {
        Self { notify: Some(notify), ..Self::default() }
    }

    /// Tells the session of what ends after its call.
    pub fn notify(&self) -> Option<&Arc<dyn Notify>> {
        self.notify.as_ref()
    }

    /// Takes an event of the session's log into account that an earlier life wrote.
    pub fn replay(&self, event: &EventBody) {
        if let EventBody::ToolResult(result) = event
            && let Some(meta) = &result.meta
        {
            self.observed.replay(meta);
        }
    }

    /// The processes of its commands.
    pub(super) fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// Its background jobs.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Whether nothing of it needs the session: no background job and no process that a command left.
    pub async fn is_at_rest(&self) -> bool {
        self.jobs.running() == 0 && !self.family.lives().await
    }

    /// A turn starts.
    pub fn begin_turn(&self) {
        self.family.begin_turn();
    }

    /// The turn was cancelled: what its commands left in the background ends; background jobs go on.
    pub async fn cancel_turn(&self, grace: Duration) {
        self.family.end_turn(grace).await;
    }

    /// Ends everything: asks, waits at most `grace`, kills. Jobs that end by this say `why`.
    pub async fn end(&self, why: &'static str, grace: Duration) {
        self.jobs.give_up(why);
        self.family.end(grace).await;
        self.jobs.end().await;
    }
}
