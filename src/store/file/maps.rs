//! What is known of logs' lines, so that reading on does not read again: exact for leased logs, bounded for the rest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::log::{Lease, SharedMap};
use super::scan::Map;
use super::sync::Syncable;
use crate::event::SessionId;

/// Logs that nobody here writes and whose map is kept.
const KNOWN_MAX: usize = 256;

/// All maps.
#[derive(Debug, Default)]
pub(super) struct Maps {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Written by this process while the lease lives: its writer keeps the map.
    leased: HashMap<SessionId, (SharedMap, Weak<Lease>)>,
    /// What this process writes, or wrote and has not synced yet.
    syncables: Vec<Weak<Syncable>>,
    known: HashMap<SessionId, (SharedMap, u64)>,
    uses: u64,
}

impl Maps {
    /// Keeps the map of a log that is now written here.
    pub(super) fn lease(
        &self,
        id: &SessionId,
        map: Map,
        lease: &Arc<Lease>,
        syncable: &Arc<Syncable>,
    ) -> SharedMap {
        let map = Arc::new(Mutex::new(map));
        let mut inner = self.lock();
        inner.known.remove(id);
        inner.leased.retain(|_, (_, lease)| lease.strong_count() > 0);
        inner.leased.insert(id.clone(), (map.clone(), Arc::downgrade(lease)));
        inner.syncables.retain(|syncable| syncable.strong_count() > 0);
        inner.syncables.push(Arc::downgrade(syncable));
        map
    }

    /// The map of a log that is written here.
    pub(super) fn leased(&self, id: &SessionId) -> Option<SharedMap> {
        let inner = self.lock();
        let (map, lease) = inner.leased.get(id)?;
        (lease.strong_count() > 0).then(|| map.clone())
    }

    /// The lease of a log that is written here.
    pub(super) fn lease_of(&self, id: &SessionId) -> Option<Arc<Lease>> {
        self.lock().leased.get(id)?.1.upgrade()
    }

    /// A log is gone.
    pub(super) fn forget(&self, id: &SessionId) {
        let mut inner = self.lock();
        inner.leased.remove(id);
        inner.known.remove(id);
    }

    /// The map of a log that is not written here; an empty one when nothing is known yet.
    pub(super) fn known(&self, id: &SessionId) -> SharedMap {
        let mut inner = self.lock();
        inner.uses += 1;
        let now = inner.uses;
        let before = inner.leased.remove(id).map(|(map, _)| map);
        if !inner.known.contains_key(id) && inner.known.len() >= KNOWN_MAX {
            let oldest = inner.known.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| id.clone());
            oldest.and_then(|oldest| inner.known.remove(&oldest));
        }
        let (map, used) = inner.known.entry(id.clone()).or_insert_with(|| (before.unwrap_or_default(), now));
        *used = now;
        map.clone()
    }

    /// The logs of which something may not be on stable storage yet.
    pub(super) fn syncables(&self) -> Vec<Arc<Syncable>> {
        self.lock().syncables.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
