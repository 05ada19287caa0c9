//! The one owner of signals. TERM and INT stop, HUP reloads, and nothing else in the program installs a handler of
//! theirs. SIGPIPE is ignored by Rust's runtime before `main`, and put back in children by the standard library.

use std::io;

use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;

/// How often we were asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The first time: finish what runs.
    Once,
    /// Again: skip the waiting.
    Again,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// TERM or INT.
    Stop(Urgency),
    /// HUP: read the configuration again.
    Reload,
}

/// The process's signals as a stream.
pub struct SignalStream {
    signals: Signals,
    stops: Stops,
}

#[derive(Debug, Default)]
struct Stops {
    /// The first signal that asked to stop.
    first: Option<i32>,
}

impl SignalStream {
    /// Installs the handlers. Called once, inside the tokio runtime, before anything that a signal should end well.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn install() -> io::Result<Self> {
        Ok(Self { signals: Signals::new([SIGTERM, SIGINT, SIGHUP])?, stops: Stops::default() })
    }

    /// The next wish; cancel safe. `None` only when the process can't get signals any more.
    pub async fn next(&mut self) -> Option<Wish> {
        loop {
            let signal = self.signals.next().await?;
            if let Some(wish) = self.stops.wish(signal) {
                return Some(wish);
            }
        }
    }

    /// The first signal that asked to stop, by its number; commands end with 128 and it.
    pub fn first_stop(&self) -> Option<i32> {
        self.stops.first
    }
}

impl Stops {
    fn wish(&mut self, signal: i32) -> Option<Wish> {
        match signal {
            SIGTERM | SIGINT if self.first.is_some() => Some(Wish::Stop(Urgency::Again)),
            SIGTERM | SIGINT => {
                self.first = Some(signal);
                Some(Wish::Stop(Urgency::Once))
            }
            SIGHUP => Some(Wish::Reload),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_second_wish_to_stop_is_urgent_whichever_signals_they_are() {
        let mut stops = Stops::default();
        assert_eq!(stops.wish(SIGHUP), Some(Wish::Reload));
        assert_eq!(stops.wish(SIGINT), Some(Wish::Stop(Urgency::Once)));
        assert_eq!(stops.wish(SIGHUP), Some(Wish::Reload));
        assert_eq!(stops.wish(SIGTERM), Some(Wish::Stop(Urgency::Again)));
        assert_eq!(stops.wish(SIGINT), Some(Wish::Stop(Urgency::Again)));
    }

    #[tokio::test]
    async fn a_raised_signal_comes_out_of_the_stream() {
        let mut signals = SignalStream::install().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
        let wish = tokio::time::timeout(Duration::from_secs(10), signals.next()).await.unwrap();
        assert_eq!(wish, Some(Wish::Reload));
    }
}
