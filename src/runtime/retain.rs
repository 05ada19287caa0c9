//! Retention: whole sessions that are too old, or more than may be kept, are deleted, longest idle first, as a client would
//! delete them: under their lock, with their followers told. What works, or what another process has open, stays.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::Runtime;
use crate::clock::now_ms;
use crate::config::{ByteSize, Retain};
use crate::event::SessionId;
use crate::store::Size;

/// How often it is looked, beside at the start and when the configuration changes.
const LOOK_EVERY: Duration = Duration::from_hours(1);

/// Parents that are followed upwards; subagents have one.
const DEPTH_MAX: usize = 8;

/// A session and those of its subagents, which are deleted with it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Family {
    root: Option<SessionId>,
    sessions: u64,
    bytes: u64,
    /// When anything of it last changed, in epoch milliseconds.
    updated_at: u64,
}

impl Runtime {
    /// Keeps what is stored within `sessions.retain`, until it is dropped.
    pub(crate) async fn retain(self) {
        let mut config = self.shared.config.clone();
        loop {
            let retain = config.borrow_and_update().sessions.retain.clone();
            if retain != Retain::default() {
                self.delete_beyond(&retain).await;
            }
            tokio::select! {
                changed = config.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn delete_beyond(&self, retain: &Retain) {
        let families = match self.shared.store.sizes().await {
            Ok(sizes) => families(sizes),
            Err(error) => return tracing::warn!(%error, "what is stored can't be looked at"),
        };
        let mut stored: u64 = families.iter().map(|family| family.bytes).sum();
        let (mut sessions, mut bytes) = (0, 0);
        for family in families {
            if self.shared.is_stopping() {
                break;
            }
            if !is_beyond(retain, now_ms(), family.updated_at, stored) {
                continue;
            }
            let Some(root) = &family.root else { continue };
            match self.delete_idle(root).await {
                Ok(true) => {
                    self.delete_children(root).await;
                    stored = stored.saturating_sub(family.bytes);
                    sessions += family.sessions;
                    bytes += family.bytes;
                }
                Ok(false) => {}
                Err(error) => tracing::debug!(session = %root, %error, "a session that is due to go stays"),
            }
        }
        if sessions > 0 {
            tracing::info!(sessions, freed = %ByteSize(bytes), "deleted old sessions (sessions.retain)");
        }
    }
}

fn is_beyond(retain: &Retain, now_ms: u64, updated_at: u64, stored: u64) -> bool {
    let age = Duration::from_millis(now_ms.saturating_sub(updated_at));
    let too_old = !retain.max_age.is_zero() && age > retain.max_age;
    too_old || (retain.max_bytes.0 > 0 && stored > retain.max_bytes.0)
}

/// Joins sessions with those of their subagents, the longest unchanged first.
fn families(sizes: Vec<Size>) -> Vec<Family> {
    let parents: HashMap<SessionId, SessionId> =
        sizes.iter().filter_map(|size| Some((size.id.clone(), size.parent.clone()?))).collect();
    let known: HashSet<SessionId> = sizes.iter().map(|size| size.id.clone()).collect();
    let mut families: HashMap<SessionId, Family> = HashMap::new();
    for size in sizes {
        let mut root = size.id;
        for _ in 0..DEPTH_MAX {
            match parents.get(&root).filter(|parent| known.contains(*parent)) {
                Some(parent) => root = parent.clone(),
                None => break,
            }
        }
        let family = families.entry(root.clone()).or_default();
        family.root = Some(root);
        family.sessions += 1;
        family.bytes += size.bytes;
        family.updated_at = family.updated_at.max(size.updated_at);
    }
    let mut families: Vec<Family> = families.into_values().collect();
    families.sort_by(|a, b| (a.updated_at, &a.root).cmp(&(b.updated_at, &b.root)));
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(id: &str, parent: Option<&str>, updated_at: u64, bytes: u64) -> Size {
        let id_of = |text: &str| SessionId::new(text).unwrap();
        Size { id: id_of(id), parent: parent.map(id_of), updated_at, bytes }
    }

    #[test]
    fn a_family_is_as_young_as_its_youngest_and_counted_as_one() {
        let families = families(vec![
            size("old", None, 1, 10),
            size("parent", None, 2, 100),
            size("child", Some("parent"), 9, 1000),
            size("orphan", Some("gone"), 3, 7),
        ]);
        let brief: Vec<_> = families
            .iter()
            .map(|one| (one.root.as_ref().unwrap().as_str(), one.sessions, one.bytes, one.updated_at))
            .collect();
        assert_eq!(brief, [("old", 1, 10, 1), ("orphan", 1, 7, 3), ("parent", 2, 1100, 9)]);
    }

    #[test]
    fn age_and_size_are_bounds_of_their_own_and_0_is_none() {
        let retain = |max_age, max_bytes| Retain {
            max_age: Duration::from_millis(max_age),
            max_bytes: ByteSize(max_bytes),
        };
        assert!(!is_beyond(&retain(0, 0), 1_000_000, 0, u64::MAX));
        assert!(is_beyond(&retain(10, 0), 111, 100, 0) && !is_beyond(&retain(10, 0), 110, 100, 0));
        assert!(is_beyond(&retain(0, 10), 100, 100, 11) && !is_beyond(&retain(0, 10), 100, 100, 10));
    }
}
