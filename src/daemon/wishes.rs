//! What is asked of a process that serves: signals, clients' wishes, and nobody's wish at all.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::core::Core;
use super::reload;
use crate::handler::shared::Stop;
use crate::signal::{SignalStream, Urgency, Wish};

/// How often an idle daemon looks whether it is idle still, at most.
const IDLE_LOOK_MAX: Duration = Duration::from_secs(5);

/// How often at least, in parts of the time after which it exits.
const IDLE_LOOKS: u32 = 10;

/// Where wishes come from.
pub(super) struct Wishes {
    signals: SignalStream,
    stops: watch::Receiver<Option<Stop>>,
}

impl Wishes {
    pub(super) fn new(signals: SignalStream, stops: watch::Receiver<Option<Stop>>) -> Self {
        Self { signals, stops }
    }

    /// Serves wishes until one asks for the end. Says how long running turns may then take; none: as configured.
    pub(super) async fn serve(&mut self, core: &mut Core, idle_exit: Option<Duration>) -> Option<Duration> {
        let (runtime, shared) = (core.runtime.clone(), core.shared.clone());
        let is_idle = move || shared.connection_count() == 0 && !runtime.is_busy();
        let idle = idle_for(idle_exit, is_idle);
        tokio::pin!(idle);
        loop {
            tokio::select! {
                wish = self.signals.next() => match wish {
                    Some(Wish::Reload) => reload::reload(core),
                    Some(Wish::Stop(_)) => {
                        tracing::info!("asked to stop by a signal");
                        return None;
                    }
                    None => {
                        tracing::error!("signals can't be had any more; stopping");
                        return None;
                    }
                },
                stop = asked(&mut self.stops) => match stop {
                    Stop::Drain(deadline) => return deadline,
                    Stop::Now => return Some(Duration::ZERO),
                },
                () = &mut idle => {
                    tracing::info!("idle for long enough; stopping");
                    return None;
                }
            }
        }
    }

    /// While the process stops: a second signal hurries it. Reloading is too late.
    pub(super) async fn hurry(&mut self, hurry: &CancellationToken) -> Infallible {
        loop {
            match self.signals.next().await {
                Some(Wish::Stop(Urgency::Again)) => {
                    tracing::warn!("asked to stop again; not waiting any more");
                    hurry.cancel();
                }
                Some(Wish::Stop(Urgency::Once) | Wish::Reload) => {}
                None => return std::future::pending().await,
            }
        }
    }
}

/// A client's wish to stop.
async fn asked(stops: &mut watch::Receiver<Option<Stop>>) -> Stop {
    match stops.wait_for(Option::is_some).await.map(|stop| *stop) {
        Ok(Some(stop)) => stop,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Resolves when `is_idle` has held for `limit`; never without one.
async fn idle_for(limit: Option<Duration>, is_idle: impl Fn() -> bool) {
    let Some(limit) = limit else { return std::future::pending().await };
    let look = (limit / IDLE_LOOKS).clamp(Duration::from_millis(10), IDLE_LOOK_MAX);
    let mut busy_at = Instant::now();
    loop {
        if !is_idle() {
            busy_at = Instant::now();
        } else if busy_at.elapsed() >= limit {
            return;
        }
        tokio::time::sleep(look).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_is_idle_only_after_it_has_been_so_for_the_whole_time() {
        let limit = Duration::from_mins(1);
        let begin = Instant::now();
        let looks = Cell::new(0);
        // Busy once, half way through.
        idle_for(Some(limit), || {
            looks.set(looks.get() + 1);
            looks.get() != 7
        })
        .await;
        assert!(begin.elapsed() >= limit + Duration::from_secs(30), "{:?}", begin.elapsed());
    }
}
