//! What the tools of one session keep between calls.

use std::sync::Arc;

use super::Notify;

/// Made when a session comes into memory, gone when it leaves.
#[derive(Debug, Default)]
pub struct ToolState {
    /// Tells the session of what ends after its call; none in tests.
    notify: Option<Arc<dyn Notify>>,
}

impl ToolState {
    /// Nothing kept yet.
    pub fn new(notify: Arc<dyn Notify>) -> Self {
        Self { notify: Some(notify) }
    }

    /// Tells the session of what ends after its call.
    pub fn notify(&self) -> Option<&Arc<dyn Notify>> {
        self.notify.as_ref()
    }
}
