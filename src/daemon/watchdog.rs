//! The watchdog: a thread that ends a process whose runtime is wedged, so that its service manager can start another.
//!
//! It counts its own ticks, not elapsed time: a process that was stopped, or a machine that slept, is not wedged.
//!
//! It also feeds the service manager's watchdog (`WatchdogSec=`), and only while everything answers: the runtime, the
//! store, and each accept loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use sd_notify::NotifyState;

use crate::pulse::Pulse;
use crate::shutdown::Scope;
use crate::store::file::FileStore;
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

/// What shows whether the daemon lives, beside its runtime.
pub(super) struct Signs {
    /// The store: what it stands on may hang.
    pub(super) store: FileStore,
    /// The accept loops.
    pub(super) accepting: Pulse,
}

#[derive(Debug)]
enum Order {
    /// The process must have ended within so long.
    EndWithin(Duration),
}

impl Watchdog {
    /// Watches the runtime that this is called in; signs of life are tasks of `scope`.
    pub(super) fn start(scope: Scope, signs: Signs) -> Self {
        let runtime = tokio::runtime::Handle::current();
        let (orders, received) = sync_channel(1);
        let watch = move || {
            let _inside = runtime.enter();
            if let Err(why) = watch(&received, &scope, &signs) {
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
fn watch(orders: &Receiver<Order>, scope: &Scope, signs: &Signs) -> Result<(), &'static str> {
    let mut runtime = Heart::default();
    let mut count = Count::default();
    let mut feeder = Feeder::new(sd_notify::watchdog_enabled());
    runtime.beat(scope, std::future::ready(()));
    loop {
        match orders.recv_timeout(TICK) {
            Ok(Order::EndWithin(limit)) => count.ticks_left = Some(ticks(limit)),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let alive = count.tick(runtime.beats.load(Ordering::Relaxed))?;
                if alive {
                    runtime.beat(scope, std::future::ready(()));
                }
                if let Some(feeder) = &mut feeder
                    && feeder.is_due(alive, scope, signs)
                {
                    feed();
                }
            }
        }
    }
}

fn feed() {
    if let Err(error) = sd_notify::notify(&[NotifyState::Watchdog]) {
        tracing::warn!(%error, "the service manager's watchdog can't be fed");
    }
}

/// Something that shows signs of life.
#[derive(Debug, Default)]
struct Heart {
    beats: Arc<AtomicU64>,
    /// Beats that were asked for.
    asked: u64,
}

impl Heart {
    /// Asks for one more beat, once `sign` is there.
    fn beat(&mut self, scope: &Scope, sign: impl Future<Output = ()> + Send + 'static) {
        self.asked += 1;
        let beats = Arc::clone(&self.beats);
        scope.spawn(async move {
            sign.await;
            beats.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Whether it has beaten as often as it was asked to.
    fn is_level(&self) -> bool {
        self.beats.load(Ordering::Relaxed) == self.asked
    }
}

/// Decides when the service manager's watchdog is fed.
#[derive(Debug, Default)]
struct Feeder {
    store: Heart,
    accepting: Heart,
    /// Looks in a row that found something silent.
    silent: u32,
}

impl Feeder {
    /// One that has asked nothing; none when the service manager has no watchdog.
    fn new(interval: Option<Duration>) -> Option<Self> {
        let interval = interval?;
        if interval < 2 * TICK {
            tracing::warn!(?interval, every = ?TICK, "WatchdogSec is shorter than twice the time between two feeds");
        }
        Some(Self::default())
    }

    /// Whether all have answered since they were last asked; then they are asked anew.
    fn is_due(&mut self, runtime: bool, scope: &Scope, signs: &Signs) -> bool {
        let (store, accepting) = (self.store.is_level(), self.accepting.is_level());
        if store {
            let store = signs.store.clone();
            self.store.beat(scope, async move { store.answers().await });
        }
        if accepting {
            let pulse = signs.accepting.clone();
            self.accepting.beat(scope, async move { pulse.ask().await });
        }
        let due = runtime && store && accepting;
        self.silent = if due { 0 } else { self.silent + 1 };
        if self.silent == TICKS_MAX / 2 {
            let text = format!(
                "warning: the service manager's watchdog is not fed; answers: runtime {runtime}, store {store}, accept \
                 loops {accepting}"
            );
            telemetry::say(&text);
        }
        due
    }
}

fn ticks(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX).saturating_add(1)
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

    fn signs(data: &std::path::Path) -> Signs {
        Signs { store: FileStore::open(data).unwrap(), accepting: Pulse::default() }
    }

    async fn until_level(feeder: &Feeder) {
        let level = async {
            while !(feeder.store.is_level() && feeder.accepting.is_level()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), level).await.expect("all answer");
    }

    #[tokio::test]
    async fn the_service_manager_is_fed_while_the_runtime_the_store_and_the_accept_loops_answer() {
        let data = tempfile::tempdir().unwrap();
        let (signs, scope) = (signs(data.path()), Scope::new());
        let mut feeder = Feeder::new(Some(Duration::from_mins(1))).unwrap();
        assert!(feeder.is_due(true, &scope, &signs));
        until_level(&feeder).await;
        assert!(!feeder.is_due(false, &scope, &signs), "the runtime is silent");
        until_level(&feeder).await;
        assert!(feeder.is_due(true, &scope, &signs));
        until_level(&feeder).await;

        // An accept loop that answers nothing.
        let part = signs.accepting.part();
        assert!(feeder.is_due(true, &scope, &signs), "it was not asked yet");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!feeder.is_due(true, &scope, &signs));
        drop(part);
        until_level(&feeder).await;
        assert!(feeder.is_due(true, &scope, &signs));
        assert!(Feeder::new(None).is_none());
    }

    #[test]
    fn a_process_that_does_not_end_in_time_is_ended() {
        let mut count = Count { ticks_left: Some(ticks(2 * TICK)), ..Count::default() };
        assert!(count.tick(1).is_ok());
        assert!(count.tick(2).is_ok());
        assert!(count.tick(3).is_err());
    }
}
