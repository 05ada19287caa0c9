//! Who is let in, and how many at once: peer users and connection permits. One for all listeners of the daemon.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::strangers::{Bounds, Strangers};
use crate::auth::peer::{self, PeerInfo, PeerKind};
use crate::config::Config;
use crate::process;
use crate::pulse::Pulse;

/// Connections beyond every limit that only the owner may use, so that a flood never locks the owner out.
const OWNER_RESERVE: usize = 4;

/// Why a peer was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its user may not use this daemon.
    User,
    /// It is a program that this daemon runs for an agent, which does not command the daemon.
    Tool,
    /// A bound of `[limits]` is reached.
    Limit {
        /// The bound's name in the configuration.
        limit: &'static str,
        /// Its value.
        max: usize,
    },
}

/// Lets peers in. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub struct Admission {
    config: watch::Receiver<Arc<Config>>,
    owner: u32,
    counts: Arc<Mutex<Counts>>,
    pulse: Pulse,
}

/// Invariant: `by_uid` holds no zero; every count is that of the living permits.
#[derive(Debug, Default)]
struct Counts {
    total: usize,
    strangers: Strangers,
    by_uid: HashMap<u32, usize>,
}

/// A place among the connections; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    counts: Arc<Mutex<Counts>>,
    uid: Option<u32>,
    stranger: Option<Stranger>,
}

/// A peer that has not authenticated yet.
#[derive(Debug)]
struct Stranger {
    number: u64,
    address: SocketAddr,
    terms: Terms,
}

/// What a peer has until it has authenticated.
#[derive(Clone, Debug)]
pub struct Terms {
    /// When it must have (`limits.preauth_time` after it came).
    pub deadline: Instant,
    /// Its place was given to another.
    pub evicted: CancellationToken,
}

impl Admission {
    /// Limits and users are read from the configuration in force at each connection.
    pub fn new(config: watch::Receiver<Arc<Config>>) -> Self {
        Self::owned_by(config, peer::own_uid())
    }

    fn owned_by(config: watch::Receiver<Arc<Config>>, owner: u32) -> Self {
        Self { config, owner, counts: Arc::default(), pulse: Pulse::default() }
    }

    /// Asks the accept loops for a sign of life.
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        lock(&self.counts).total
    }

    /// All connections, those that have not authenticated yet, and the most of one user.
    pub fn counts(&self) -> (usize, usize, usize) {
        let counts = lock(&self.counts);
        (counts.total, counts.strangers.len(), counts.by_uid.values().copied().max().unwrap_or(0))
    }

    /// A place for a peer.
    ///
    /// # Errors
    /// Why it gets none.
    pub fn admit(&self, peer: &PeerInfo) -> Result<Permit, Refusal> {
        let config = self.config.borrow();
        let limits = &config.limits;
        let uid = match peer.kind {
            PeerKind::Unix { uid, .. } => Some(uid),
            PeerKind::Tcp { .. } | PeerKind::Stdio => None,
        };
        if uid.is_some_and(|uid| !peer::may_connect(uid, self.owner, &config.auth.allowed_uids)) {
            return Err(Refusal::User);
        }
        if let PeerKind::Unix { uid, pid: Some(pid) } = peer.kind
            && uid == self.owner
            && process::is_own_program(pid)
        {
            return Err(Refusal::Tool);
        }
        let reserve = if uid == Some(self.owner) { OWNER_RESERVE } else { 0 };

        let mut counts = lock(&self.counts);
        let of_user = uid.map_or(0, |uid| counts.by_uid.get(&uid).copied().unwrap_or(0));
        refuse_at(counts.total, limits.connections, reserve, "connections")?;
        refuse_at(of_user, limits.connections_per_uid, reserve, "connections_per_uid")?;
        counts.total += 1;
        if let Some(uid) = uid {
            *counts.by_uid.entry(uid).or_default() += 1;
        }
        let stranger = match peer.kind {
            PeerKind::Tcp { address } => {
                let bounds =
                    Bounds { all: limits.preauth_connections, per_source: limits.preauth_per_source };
                let now = Instant::now();
                let (number, evicted) = counts.strangers.enter(address, bounds, now);
                let terms = Terms { deadline: now + limits.preauth_time, evicted };
                Some(Stranger { number, address, terms })
            }
            PeerKind::Unix { .. } | PeerKind::Stdio => None,
        };
        drop(counts);
        Ok(Permit { counts: Arc::clone(&self.counts), uid, stranger })
    }
}

impl Permit {
    /// What the peer has until it has authenticated; none when it has, or need not.
    pub fn terms(&self) -> Option<Terms> {
        self.stranger.as_ref().map(|stranger| stranger.terms.clone())
    }

    /// The peer has authenticated: it no longer counts against `limits.preauth_connections`.
    pub fn authenticated(&mut self) {
        if let Some(stranger) = self.stranger.take() {
            lock(&self.counts).strangers.leave(stranger.number);
        }
    }

    /// The peer has failed to authenticate: how long its refusal waits.
    pub fn failed(&self) -> Duration {
        self.stranger.as_ref().map_or(Duration::ZERO, |stranger| {
            lock(&self.counts).strangers.failed(stranger.address, Instant::now())
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.authenticated();
        let mut counts = lock(&self.counts);
        counts.total -= 1;
        if let Some(uid) = self.uid
            && let Some(count) = counts.by_uid.get_mut(&uid)
        {
            *count -= 1;
            if *count == 0 {
                counts.by_uid.remove(&uid);
            }
        }
    }
}

fn refuse_at(count: usize, max: usize, reserve: usize, limit: &'static str) -> Result<(), Refusal> {
    if count < max.saturating_add(reserve) { Ok(()) } else { Err(Refusal::Limit { limit, max }) }
}

/// Counts are whole after every statement, so a panic elsewhere leaves nothing to mend.
fn lock(counts: &Mutex<Counts>) -> std::sync::MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1000;

    fn admission(change: impl FnOnce(&mut Config)) -> Admission {
        let mut config = Config::default();
        change(&mut config);
        let (_, receiver) = watch::channel(Arc::new(config));
        Admission::owned_by(receiver, OWNER)
    }

    fn unix(uid: u32) -> PeerInfo {
        PeerInfo::new(PeerKind::Unix { uid, pid: None })
    }

    fn tcp() -> PeerInfo {
        PeerInfo::new(PeerKind::Tcp { address: ([127, 0, 0, 1], 1).into() })
    }

    #[test]
    fn a_stranger_is_refused_and_takes_no_place() {
        let admission = admission(|_| {});
        assert_eq!(admission.admit(&unix(1001)).unwrap_err(), Refusal::User);
        assert_eq!(admission.connections(), 0);
    }

    #[test]
    fn a_listed_user_is_let_in() {
        let admission = admission(|config| config.auth.allowed_uids = vec![1001]);
        admission.admit(&unix(1001)).unwrap();
    }

    #[test]
    fn the_owner_gets_four_places_more_than_all_others() {
        let admission = admission(|config| {
            config.limits.connections = 2;
            config.auth.allowed_uids = vec![1001];
        });
        let _others = [admission.admit(&unix(1001)).unwrap(), admission.admit(&unix(1001)).unwrap()];
        let full = Refusal::Limit { limit: "connections", max: 2 };
        assert_eq!(admission.admit(&unix(1001)).unwrap_err(), full);
        let owners: Vec<_> = (0..OWNER_RESERVE).map(|_| admission.admit(&unix(OWNER)).unwrap()).collect();
        assert_eq!(admission.admit(&unix(OWNER)).unwrap_err(), full);
        drop(owners);
        admission.admit(&unix(OWNER)).unwrap();
    }

    #[test]
    fn one_user_cannot_take_every_place() {
        let admission = admission(|config| {
            config.limits.connections_per_uid = 1;
            config.auth.allowed_uids = vec![1001, 1002];
        });
        let _first = admission.admit(&unix(1001)).unwrap();
        let full = Refusal::Limit { limit: "connections_per_uid", max: 1 };
        assert_eq!(admission.admit(&unix(1001)).unwrap_err(), full);
        admission.admit(&unix(1002)).unwrap();
    }

    #[test]
    fn a_place_is_given_back_when_its_permit_ends() {
        let admission = admission(|config| config.limits.connections_per_uid = 1);
        for _ in 0..20 {
            let _permit = admission.admit(&unix(0)).unwrap();
        }
        assert_eq!(admission.connections(), 0);
        assert!(lock(&admission.counts).by_uid.is_empty());
    }

    #[tokio::test]
    async fn only_those_who_have_not_authenticated_count_as_such_and_the_oldest_makes_room() {
        let admission = admission(|config| config.limits.preauth_connections = 1);
        let mut first = admission.admit(&tcp()).unwrap();
        let terms = first.terms().unwrap();
        first.authenticated();
        first.authenticated();
        assert!(first.terms().is_none());
        let second = admission.admit(&tcp()).unwrap();
        assert!(!terms.evicted.is_cancelled());
        let third = admission.admit(&tcp()).unwrap();
        assert!(second.terms().unwrap().evicted.is_cancelled());
        assert_eq!(admission.counts().1, 1);
        drop((second, third));
        assert_eq!(admission.counts(), (1, 0, 0));
    }
}
