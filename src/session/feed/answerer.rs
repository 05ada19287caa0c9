//! Who can answer approvals: counted on the feed while they follow it.

use std::sync::atomic::Ordering;

use super::SharedFeed;

/// A subscriber who can answer what the session's calls ask for, for as long as this lives.
#[derive(Debug)]
pub struct Answerer(SharedFeed);

impl Answerer {
    /// Counts one.
    pub fn of(feed: &SharedFeed) -> Self {
        feed.answerers.fetch_add(1, Ordering::AcqRel);
        Self(feed.clone())
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.0.answerers.fetch_sub(1, Ordering::AcqRel);
    }
}
