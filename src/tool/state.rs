//! What the tools of one session keep between calls.

use std::sync::Arc;

use super::Notify;
use super::observed::Observed;
use crate::event::EventBody;

/// Made when a session comes into memory, gone when it leaves.
#[derive(Debug, Default)]
pub struct ToolState {
    /// Tells the session of what ends after its call; none in tests.
    notify: Option<Arc<dyn Notify>>,
    /// Files as the session saw them.
    pub(super) observed: Observed,
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
}
