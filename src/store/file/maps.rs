//! What is known of logs' lines, so that reading on does not read again: exact for leased logs, bounded for the rest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::log::SharedMap;
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
    /// Written by this process: its writer keeps the map.
    leased: HashMap<SessionId, (SharedMap, Weak<Syncable>)>,
    known: HashMap<SessionId, (SharedMap, u64)>,
    uses: u64,
}

impl Maps {
    /// Keeps the map of a log that is now written here.
    pub(super) fn lease(&self, id: &SessionId, map: Map, syncable: &Arc<Syncable>) -> SharedMap {
        let map = Arc::new(Mutex::new(map));
        let mut inner = self.lock();
        inner.known.remove(id);
        inner.leased.retain(|_, (_, syncable)| syncable.strong_count() > 0);
        inner.leased.insert(id.clone(), (map.clone(), Arc::downgrade(syncable)));
        map
    }

    /// The map of a log that is written here.
    pub(super) fn leased(&self, id: &SessionId) -> Option<SharedMap> {
        let inner = self.lock();
        let (map, syncable) = inner.leased.get(id)?;
        (syncable.strong_count() > 0).then(|| map.clone())
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

    /// The logs that are written here.
    pub(super) fn syncables(&self) -> Vec<Arc<Syncable>> {
        self.lock().leased.values().filter_map(|(_, syncable)| syncable.upgrade()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
