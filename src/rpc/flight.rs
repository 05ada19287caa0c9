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
    /// Slots that exist, answered or not.
    slots: usize,
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

/// A request's place, until [`Slot::answered`] or until this is dropped.
#[derive(Debug)]
pub struct Slot {
    flight: Arc<InFlight>,
    id: RequestId,
    ordinary: bool,
    /// None once it is answered.
    permit: Option<OwnedSemaphorePermit>,
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
        state.slots += 1;
        state.ids.insert(id.clone());
        Admission::Taken(Slot { flight: self.clone(), id: id.clone(), ordinary: true, permit: Some(permit) })
    }

    /// Takes a request that lets things go: it is never refused, but waits for room. Cancel safe.
    pub async fn admit_letting_go(self: &Arc<Self>, id: &RequestId) -> Admission {
        let Ok(permit) = self.letting_go.clone().acquire_owned().await else { return Admission::Full };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.ids.insert(id.clone()) {
            return Admission::Duplicate;
        }
        state.slots += 1;
        Admission::Taken(Slot { flight: self.clone(), id: id.clone(), ordinary: false, permit: Some(permit) })
    }

    /// How many are in flight.
    pub fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ids.len()
    }

    /// Whether none is, and no slot is left.
    pub fn is_empty(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).slots == 0
    }

    /// Waits until none is, and no slot is left.
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

impl Slot {
    /// Frees the id and the place. Called just before the reply can be read: who has read it may use both again.
    pub fn answered(&mut self) {
        if self.permit.take().is_some() {
            let mut state = self.flight.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.ids.remove(&self.id);
            if self.ordinary {
                state.ordinary -= 1;
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.answered();
        let mut state = self.flight.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.slots -= 1;
        if state.slots == 0 {
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

    /// A client used an id again as soon as it had the reply, and was told that the id was in flight.
    #[tokio::test]
    async fn an_answered_request_is_in_nobodys_way_but_still_waited_for() {
        let flight = InFlight::new(1, Arc::new(Semaphore::new(1)));
        let Admission::Taken(mut slot) = flight.admit(&id("1")) else { panic!() };
        slot.answered();
        let Admission::Taken(again) = flight.admit(&id("1")) else { panic!() };
        drop(again);
        assert!(!flight.is_empty(), "its reply may not be queued yet");
        drop(slot);
        flight.emptied().await;
    }

    #[tokio::test]
    async fn the_way_out_is_open_when_all_else_is_full() {
        let flight = InFlight::new(1, Arc::new(Semaphore::new(0)));
        assert!(matches!(flight.admit(&id("1")), Admission::Full));
        assert!(matches!(flight.admit_letting_go(&id("2")).await, Admission::Taken(_)));
        flight.emptied().await;
    }
}
