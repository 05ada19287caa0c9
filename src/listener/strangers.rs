//! Peers that have not authenticated yet: how many there are, in all and of one source, and which sources have failed
//! before.
//!
//! A newcomer is never refused for the sake of those who are there: where there is no room, the one goes that has used
//! its time the longest, of the source that has failed the most. So who has a token and says it at once gets in, however
//! many hold their place and say nothing; and a source that fails is told so later and later, never one that succeeds.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Sources whose failures are remembered.
const SOURCES_MAX: usize = 1024;
/// A source's failures halve in this time.
const FAILURES_HALVE: Duration = Duration::from_secs(30);
/// Failures that cost nothing: a typing error is no attack.
const FAILURES_FREE: u32 = 3;
/// Failures at which a source has half its places, and at which a quarter.
const FAILURES_HALF: u32 = 16;
const FAILURES_QUARTER: u32 = 64;
/// The first delay of a refusal; it doubles up to the longest.
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(2);

/// The bounds of `[limits]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// `preauth_connections`.
    pub(super) all: usize,
    /// `preauth_per_source`.
    pub(super) per_source: usize,
}

/// All of them. Invariant: `sources` holds at most [`SOURCES_MAX`].
#[derive(Debug, Default)]
pub(super) struct Strangers {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
    sources: HashMap<IpAddr, Failures>,
}

#[derive(Debug)]
struct Waiting {
    source: IpAddr,
    evicted: CancellationToken,
}

/// Failures of a source, as they stood at a time.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    at: Instant,
}

impl Failures {
    fn now(self, now: Instant) -> u32 {
        let halvings = now.saturating_duration_since(self.at).as_secs() / FAILURES_HALVE.as_secs();
        self.count.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0)
    }
}

impl Strangers {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes one in: its number, and the token by which it is told to go.
    pub(super) fn enter(
        &mut self,
        address: SocketAddr,
        bounds: Bounds,
        now: Instant,
    ) -> (u64, CancellationToken) {
        let source = source(address);
        let share = share(bounds.per_source, self.failures(source, now));
        while self.waiting.values().filter(|one| one.source == source).count() >= share {
            self.evict(|one| one.source == source, now);
        }
        while self.waiting.len() >= bounds.all.max(1) {
            self.evict(|_| true, now);
        }
        self.last += 1;
        let evicted = CancellationToken::new();
        self.waiting.insert(self.last, Waiting { source, evicted: evicted.clone() });
        (self.last, evicted)
    }

    /// One is no stranger any more, or has left.
    pub(super) fn leave(&mut self, number: u64) {
        self.waiting.remove(&number);
    }

    /// One has failed: how long its refusal waits.
    pub(super) fn failed(&mut self, address: SocketAddr, now: Instant) -> Duration {
        let source = source(address);
        let count = self.failures(source, now).saturating_add(1);
        if !self.sources.contains_key(&source) {
            self.make_room(now);
        }
        self.sources.insert(source, Failures { count, at: now });
        match count.checked_sub(FAILURES_FREE + 1) {
            Some(over) => {
                DELAY_MIN.saturating_mul(1_u32.checked_shl(over).unwrap_or(u32::MAX)).min(DELAY_MAX)
            }
            None => Duration::ZERO,
        }
    }

    fn failures(&self, source: IpAddr, now: Instant) -> u32 {
        self.sources.get(&source).map_or(0, |failures| failures.now(now))
    }

    /// Sends away the longest there of those whose source has failed the most.
    fn evict(&mut self, may_go: impl Fn(&Waiting) -> bool, now: Instant) {
        let mut worst: Option<(u32, u64)> = None;
        for (&number, one) in self.waiting.iter().filter(|(_, one)| may_go(one)) {
            let failures = self.failures(one.source, now);
            if worst.is_none_or(|(most, _)| failures > most) {
                worst = Some((failures, number));
            }
        }
        if let Some(gone) = worst.and_then(|(_, number)| self.waiting.remove(&number)) {
            gone.evicted.cancel();
        }
    }

    /// Forgets those who have failed the least, when the table is full.
    fn make_room(&mut self, now: Instant) {
        if self.sources.len() < SOURCES_MAX {
            return;
        }
        self.sources.retain(|_, failures| failures.now(now) > 0);
        if self.sources.len() >= SOURCES_MAX {
            let least = self.sources.iter().min_by_key(|(_, failures)| (failures.now(now), failures.at));
            if let Some(source) = least.map(|(source, _)| *source) {
                self.sources.remove(&source);
            }
        }
    }
}

/// What an address counts as: the whole of IPv4, the network of IPv6 that one customer has.
fn source(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

/// Places of a source at once.
fn share(per_source: usize, failures: u32) -> usize {
    let share = match failures {
        FAILURES_QUARTER.. => per_source / 4,
        FAILURES_HALF.. => per_source / 2,
        _ => per_source,
    };
    share.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { all: 16, per_source: 8 };

    fn from(last: u8) -> SocketAddr {
        ([127, 0, 0, last], 4711).into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_holds_its_places_loses_its_oldest_to_its_newest() {
        let mut strangers = Strangers::default();
        let now = Instant::now();
        let entered: Vec<_> = (0..9).map(|_| strangers.enter(from(1), BOUNDS, now)).collect();
        assert_eq!(strangers.len(), 8);
        let evicted: Vec<bool> = entered.iter().map(|(_, evicted)| evicted.is_cancelled()).collect();
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        assert!(evicted[0]);
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_places_are_held_the_source_that_failed_the_most_makes_room() {
        let mut strangers = Strangers::default();
        let now = Instant::now();
        strangers.failed(from(9), now);
        let entered: Vec<_> = (1..17).map(|last| strangers.enter(from(last), BOUNDS, now)).collect();
        let (good, _) = strangers.enter(from(200), BOUNDS, now);
        assert_eq!(strangers.len(), 16);
        assert!(entered[8].1.is_cancelled(), "127.0.0.9 has failed before");
        strangers.leave(good);
        assert_eq!(strangers.len(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_come_later_with_each_failure_and_time_forgives() {
        let mut strangers = Strangers::default();
        let now = Instant::now();
        let delays: Vec<u128> = (0..10).map(|_| strangers.failed(from(1), now).as_millis()).collect();
        assert_eq!(delays, [0, 0, 0, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(strangers.failed(from(2), now), Duration::ZERO, "another source");
        let later = now + 10 * FAILURES_HALVE;
        assert_eq!(strangers.failed(from(1), later), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_sources_is_bounded_and_keeps_the_worst() {
        let mut strangers = Strangers::default();
        let now = Instant::now();
        for _ in 0..5 {
            strangers.failed(from(1), now);
        }
        for a in 0..20 {
            for b in 0..250 {
                strangers.failed(([10, 0, a, b], 1).into(), now);
            }
        }
        assert_eq!(strangers.sources.len(), SOURCES_MAX);
        assert_eq!(strangers.failures(source(from(1)), now), 5);
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_network() {
        let of = |text: &str| source(text.parse().unwrap()).to_string();
        assert_eq!(of("127.0.0.1:1"), "127.0.0.1");
        assert_eq!(of("[::ffff:127.0.0.1]:1"), "127.0.0.1");
        assert_eq!(of("[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1:2::");
        assert_eq!([share(8, 0), share(8, 16), share(8, 64), share(1, 64)], [8, 4, 2, 1]);
    }
}
