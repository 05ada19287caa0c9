//! What is in flight on a connection: each id once, within bounds.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::RequestId;

/// Requests that let things go (cancel, close, …) in flight on a connection; the reader waits at this bound.
const LETTING_GO_MAX: usize = 256;

/// The requests in flight on one connection.
#[derive(Debug)]
pub struct InFlight {
    ordinary_max: usize,
    /// Shared by all connections.
    total: Arc<Semaphore>,
    letting_go: Arc<Semaphore>,
    state: Mutex<State>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    ids: HashSet<RequestId>,
    ordinary: usize,
}

/// Whether a request is taken.
#[derive(Debug)]
pub enum Admission {
    /// Yes; it is in flight until the slot is dropped.
    Taken(Slot),
    /// Its id is in flight already.
    Duplicate,
    /// Too many are.
    Full,
}

/// A request's place; dropping it frees the id.
#[derive(Debug)]
pub struct Slot {
    flight: Arc<InFlight>,
    id: RequestId,
    ordinary: bool,
    _permit: OwnedSemaphorePermit,
}

impl InFlight {
    /// At most `ordinary_max` ordinary requests, and of all connections' no more than `total` has permits.
    pub fn new(ordinary_max: usize, total: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self {
            ordinary_max,
            total,
            letting_go: Arc::new(Semaphore::new(LETTING_GO_MAX)),
            state: Mutex::default(),
            emptied: Notify::new(),
        })
    }

    /// Takes an ordinary request, or says at once why not.
    pub fn admit(self: &Arc<Self>, id: &RequestId) -> Admission {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ids.contains(id) {
            return Admission::Duplicate;
        }
        if state.ordinary >= self.ordinary_max {
            return Admission::Full;
        }
        let Ok(permit) = self.total.clone().try_acquire_owned() else { return Admission::Full };
        state.ordinary += 1;
        state.ids.insert(id.clone());
        Admission::Taken(Slot { flight: self.clone(), id: id.clone(), ordinary: true, _permit: permit })
    }

    /// Takes a request that lets things go: it is never refused, but waits for room. Cancel safe.
    pub async fn admit_letting_go(self: &Arc<Self>, id: &RequestId) -> Admission {
        let Ok(permit) = self.letting_go.clone().acquire_owned().await else { return Admission::Full };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.ids.insert(id.clone()) {
            return Admission::Duplicate;
        }
        Admission::Taken(Slot { flight: self.clone(), id: id.clone(), ordinary: false, _permit: permit })
    }

    /// How many are in flight.
    pub fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ids.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until none is.
    pub async fn emptied(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.is_empty() {
                return;
            }
            emptied.await;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.flight.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ids.remove(&self.id);
        if self.ordinary {
            state.ordinary -= 1;
        }
        if state.ids.is_empty() {
            drop(state);
            self.flight.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RequestId {
        RequestId::from_json(text).unwrap()
    }

    #[test]
    fn an_id_is_in_flight_once_and_free_after_its_reply() {
        let flight = InFlight::new(2, Arc::new(Semaphore::new(10)));
        let Admission::Taken(slot) = flight.admit(&id("1")) else { panic!() };
        assert!(matches!(flight.admit(&id("1")), Admission::Duplicate));
        let Admission::Taken(_other) = flight.admit(&id("\"1\"")) else { panic!() };
        assert!(matches!(flight.admit(&id("3")), Admission::Full));
        drop(slot);
        assert!(matches!(flight.admit(&id("1")), Admission::Taken(_)));
    }

    #[tokio::test]
    async fn the_way_out_is_open_when_all_else_is_full() {
        let flight = InFlight::new(1, Arc::new(Semaphore::new(0)));
        assert!(matches!(flight.admit(&id("1")), Admission::Full));
        assert!(matches!(flight.admit_letting_go(&id("2")).await, Admission::Taken(_)));
        flight.emptied().await;
    }
}
