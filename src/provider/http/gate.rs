//! How many calls a provider gets at once. Who comes first is served first; who stops waiting leaves the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// A provider's gate. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub(in crate::provider) struct Gate(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    /// Serves in order of arrival.
    free: Arc<Semaphore>,
    concurrency: usize,
    waiting: AtomicUsize,
}

/// A place for one call, given back when dropped.
#[derive(Debug)]
pub(super) struct Permit(
    #[expect(dead_code, reason = "held for its end alone")] Option<OwnedSemaphorePermit>,
);

/// The wait was longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitedTooLong;

/// One that waits, counted until it has a place or gives up.
struct Waiting<'g>(&'g AtomicUsize);

impl<'g> Waiting<'g> {
    /// Counts one more; says how many waited before.
    fn begin(count: &'g AtomicUsize) -> (Self, usize) {
        let before = count.fetch_add(1, Ordering::Relaxed);
        (Self(count), before)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    /// The gate for so many calls at once (0: any number): the old one if it is for as many.
    pub(in crate::provider) fn after(old: Option<&Self>, concurrency: usize) -> Self {
        let old = old.and_then(|gate| gate.0.as_ref()).filter(|inner| inner.concurrency == concurrency);
        match (old, concurrency) {
            (Some(old), _) => Self(Some(Arc::clone(old))),
            (None, 0) => Self(None),
            (None, concurrency) => {
                let free = Arc::new(Semaphore::new(concurrency));
                Self(Some(Arc::new(Inner { free, concurrency, waiting: AtomicUsize::new(0) })))
            }
        }
    }

    /// Waits for a place. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`WaitedTooLong`] after `patience`.
    pub(super) async fn enter(&self, provider: &str, patience: Duration) -> Result<Permit, WaitedTooLong> {
        let Some(inner) = &self.0 else { return Ok(Permit(None)) };
        let free = Arc::clone(&inner.free);
        if let Ok(permit) = Arc::clone(&free).try_acquire_owned() {
            return Ok(Permit(Some(permit)));
        }
        let (waiting, before) = Waiting::begin(&inner.waiting);
        let began = Instant::now();
        tracing::debug!(provider, concurrency = inner.concurrency, before, "a call waits for its turn");
        let permit = match timeout(patience, free.acquire_owned()).await {
            // The semaphore is never closed.
            Ok(permit) => permit.ok(),
            Err(_) => return Err(WaitedTooLong),
        };
        drop(waiting);
        tracing::debug!(provider, waited = ?began.elapsed(), "a call has its turn");
        Ok(Permit(permit))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn who_comes_first_is_served_first_and_who_goes_leaves_the_queue() {
        let gate = Gate::after(None, 1);
        let enter = || Box::pin(gate.enter("p", PATIENCE));
        let held = enter().await.unwrap();
        let (mut first, mut second, mut third) = (enter(), enter(), enter());
        for waiting in [&mut first, &mut second, &mut third] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(first);
        drop(held);
        assert!((&mut third).now_or_never().is_none(), "the second comes before the third");
        let held = (&mut second).now_or_never().unwrap().unwrap();
        assert!((&mut third).now_or_never().is_none());
        drop(held);
        third.await.unwrap();
        assert_eq!(gate.0.as_ref().unwrap().waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends() {
        let gate = Gate::after(None, 1);
        let _held = gate.enter("p", PATIENCE).await.unwrap();
        assert_eq!(gate.enter("p", PATIENCE).await.unwrap_err(), WaitedTooLong);
    }

    #[tokio::test]
    async fn a_reloaded_gate_is_the_same_while_its_number_is() {
        let gate = Gate::after(None, 1);
        let _held = gate.enter("p", PATIENCE).await.unwrap();
        let same = Gate::after(Some(&gate), 1);
        assert!(same.enter("p", PATIENCE).now_or_never().is_none());
        assert!(Gate::after(Some(&gate), 2).enter("p", PATIENCE).now_or_never().is_some());
        assert!(Gate::after(Some(&gate), 0).enter("p", PATIENCE).now_or_never().is_some());
    }
}
