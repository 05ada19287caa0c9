//! What was told and promised, as hashes, so that it may go on for as long as it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What a follower was told of each session, over all of its connections.
#[derive(Default)]
pub(super) struct Follower {
    places: BTreeMap<String, Place>,
}

struct Place {
    epoch: u64,
    next: u64,
    hash: Sha256,
}

impl Follower {
    /// Where it is: the epoch and the last event; none: at the start.
    pub(super) fn place(&self, session: &str) -> Option<(u64, u64)> {
        let place = self.places.get(session)?;
        Some((place.epoch, place.next.checked_sub(1)?))
    }

    /// It is told an event: the next one, and no other.
    pub(super) fn take(&mut self, session: &str, epoch: u64, seq: u64, json: &str) {
        let new = || Place { epoch, next: 0, hash: Sha256::new() };
        let place = self.places.entry(session.to_owned()).or_insert_with(new);
        assert_eq!(seq, place.next, "{session}: an event is missing, doubled or out of order");
        place.epoch = epoch;
        place.next += 1;
        place.hash.update(json.as_bytes());
        place.hash.update(b"\n");
    }

    /// The hash of all that it was told of a session.
    pub(super) fn hash(&self, session: &str) -> String {
        let hash = self.places.get(session).map_or_else(Sha256::new, |place| place.hash.clone());
        format!("{:x?}", hash.finalize().as_slice())
    }
}

/// What was promised to whom, and how much happened. Cheap to clone; clones are the same.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Inner>);

#[derive(Default)]
struct Inner {
    promised: Mutex<BTreeSet<(String, String)>>,
    events: AtomicU64,
    deltas: AtomicU64,
    connections: AtomicU64,
    cancels: AtomicU64,
    messages: AtomicU64,
}

impl Ledger {
    /// A prompt was answered: its message is in the log.
    pub(super) fn promise(&self, session: &str, outcome: &Value) {
        if let Some(message) = outcome["messageId"].as_str() {
            self.0.promised.lock().unwrap().insert((session.to_owned(), message.to_owned()));
        }
    }

    /// Fails unless all that was promised is in a session's log.
    pub(super) fn check(&self, session: &str, inserted: &BTreeSet<String>) {
        for (of, message) in self.0.promised.lock().unwrap().iter() {
            assert!(
                of != session || inserted.contains(message),
                "{session}: {message} was promised and is not there"
            );
        }
    }

    pub(super) fn count_event(&self) {
        self.0.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_delta(&self) {
        self.0.deltas.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_connection(&self) {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_cancel(&self) {
        self.0.cancels.fetch_add(1, Ordering::Relaxed);
    }

    /// A message whose text was told before it, and fits it.
    pub(super) fn count_message(&self) {
        self.0.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn did_enough(&self) -> bool {
        let promised = self.0.promised.lock().unwrap().len();
        promised > 20
            && [&self.0.events, &self.0.deltas, &self.0.connections, &self.0.messages]
                .iter()
                .all(|count| count.load(Ordering::Relaxed) > 20)
    }

    pub(super) fn summary(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "{} promises, {} events and {} deltas told on {} connections, {} messages after their text, {} cancels",
            self.0.promised.lock().unwrap().len(),
            of(&self.0.events),
            of(&self.0.deltas),
            of(&self.0.connections),
            of(&self.0.messages),
            of(&self.0.cancels),
        )
    }
}
