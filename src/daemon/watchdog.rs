//! The watchdog: a thread that ends a process whose runtime is wedged, so that its service manager can start another.
//!
//! It counts its own ticks, not elapsed time: a process that was stopped, or a machine that slept, is not wedged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::shutdown::Scope;
use crate::telemetry;

/// How often it looks.
const TICK: Duration = Duration::from_secs(2);

/// Looks without a sign of life of the runtime.
const TICKS_MAX: u32 = 15;

/// What the end of a wedged process says: a bug.
const EXIT_CODE: i32 = 70;

/// The watchdog's handle. It watches until this is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    orders: Option<SyncSender<Order>>,
}

#[derive(Debug)]
enum Order {
    /// The process must have ended within so long.
    EndWithin(Duration),
}

impl Watchdog {
    /// Watches the runtime that this is called in; signs of life are tasks of `scope`.
    pub(super) fn start(scope: Scope) -> Self {
        let runtime = tokio::runtime::Handle::current();
        let (orders, received) = sync_channel(1);
        let watch = move || {
            let _inside = runtime.enter();
            if let Err(why) = watch(&received, &scope) {
                end_process(why);
            }
        };
        match std::thread::Builder::new().name("dshd-watchdog".to_owned()).spawn(watch) {
            Ok(_) => Self { orders: Some(orders) },
            Err(error) => {
                tracing::warn!(%error, "there is no watchdog");
                Self { orders: None }
            }
        }
    }

    /// The process must have ended within so long, or the watchdog ends it.
    pub(super) fn end_within(&self, limit: Duration) {
        if let Some(orders) = &self.orders {
            // A watchdog that takes no order has ended the process.
            let _ = orders.try_send(Order::EndWithin(limit));
        }
    }
}

/// Watches until the handle is dropped.
fn watch(orders: &Receiver<Order>, scope: &Scope) -> Result<(), &'static str> {
    let heart = Arc::new(AtomicU64::new(0));
    let mut count = Count::default();
    beat(&heart, scope);
    loop {
        match orders.recv_timeout(TICK) {
            Ok(Order::EndWithin(limit)) => count.ticks_left = Some(ticks(limit)),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                if count.tick(heart.load(Ordering::Relaxed))? {
                    beat(&heart, scope);
                }
            }
        }
    }
}

fn ticks(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX).saturating_add(1)
}

fn beat(heart: &Arc<AtomicU64>, scope: &Scope) {
    let heart = Arc::clone(heart);
    scope.spawn(async move { heart.fetch_add(1, Ordering::Relaxed) });
}

#[derive(Debug, Default)]
struct Count {
    seen: u64,
    missed: u32,
    ticks_left: Option<u32>,
}

impl Count {
    /// A look at the heart. Says whether it has beaten since the last; fails when it is over.
    fn tick(&mut self, heart: u64) -> Result<bool, &'static str> {
        if let Some(left) = &mut self.ticks_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return Err("the process did not end in time");
            }
        }
        let alive = heart != self.seen;
        self.seen = heart;
        self.missed = if alive { 0 } else { self.missed + 1 };
        if self.missed >= TICKS_MAX { Err("the runtime shows no sign of life") } else { Ok(alive) }
    }
}

#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "the runtime that would return to main is the one that is wedged"
)]
fn end_process(why: &str) {
    telemetry::say(&format!("error: {why}; the watchdog ends it"));
    std::process::exit(EXIT_CODE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heart_that_stands_still_for_too_long_is_the_end() {
        let mut count = Count::default();
        assert_eq!(count.tick(1), Ok(true));
        for _ in 1..TICKS_MAX {
            assert_eq!(count.tick(1), Ok(false));
        }
        assert!(count.tick(1).is_err());
    }

    #[test]
    fn a_beat_forgives_what_was_missed() {
        let mut count = Count::default();
        for heart in 0..u64::from(3 * TICKS_MAX) {
            assert!(count.tick(heart / u64::from(TICKS_MAX - 1)).is_ok());
        }
    }

    #[test]
    fn a_process_that_does_not_end_in_time_is_ended() {
        let mut count = Count { ticks_left: Some(ticks(2 * TICK)), ..Count::default() };
        assert!(count.tick(1).is_ok());
        assert!(count.tick(2).is_ok());
        assert!(count.tick(3).is_err());
    }
}
