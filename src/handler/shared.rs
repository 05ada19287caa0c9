//! What all connections of a process share, for handlers: the runtime, the configuration, the phase, who is connected.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::event::SessionId;
use crate::protocol::{self, ConnectionState};
use crate::runtime::Runtime;

/// How far the process is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Serving,
    /// It takes nothing new; running turns may finish for so long.
    Draining {
        /// Until turns are cancelled.
        deadline: Duration,
    },
}

impl Phase {
    /// As it stands on the wire.
    pub fn wire(self) -> protocol::Phase {
        match self {
            Self::Serving => protocol::Phase::Ready,
            Self::Draining { .. } => protocol::Phase::Draining,
        }
    }
}

/// A client's wish that the process end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// As SIGTERM does; running turns may finish for so long, or for `shutdown.drain_timeout`.
    Drain(Option<Duration>),
    /// At once, as `shutdown` on stdio does.
    Now,
}

/// What all connections share. Made by the daemon.
pub struct Shared {
    /// The sessions.
    pub runtime: Runtime,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// How far the process is.
    pub phase: watch::Receiver<Phase>,
    /// Requests in flight on all connections (`limits.in_flight_total`).
    pub in_flight: Arc<Semaphore>,
    /// Readers of the store for subscribers who lag, at once.
    pub readers: Arc<Semaphore>,
    /// Who holds which session.
    pub holders: Holders,
    /// Where the process is, for `server/status`.
    pub place: Place,
    /// Cancelled when all sessions are disposed of: what `shutdown` on stdio waits for.
    pub disposed: CancellationToken,
    /// Clients' wishes to stop, for the daemon.
    stop: watch::Sender<Option<Stop>>,
    door: OnceLock<Door>,
    in_flight_max: usize,
    started: Instant,
    connections: Mutex<Connections>,
}

/// Who is at the door, as whoever lets them in counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// All connections.
    pub all: usize,
    /// Those that have not authenticated yet.
    pub preauth: usize,
    /// The most of one local user.
    pub of_one_user: usize,
}

/// Tells who is at the door.
pub type Door = Box<dyn Fn() -> Peers + Send + Sync>;

/// Where the process is and what it has.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Where its data is.
    pub data_dir: PathBuf,
    /// Where it listens.
    pub listeners: Vec<String>,
    /// Names of the environment variables of keys that it has.
    pub keys: Vec<String>,
}

/// Tells how a connection is, while it is there.
pub type Gauge = Box<dyn Fn() -> Option<ConnectionState> + Send + Sync>;

#[derive(Default)]
struct Connections {
    last_id: u64,
    gauges: BTreeMap<u64, Gauge>,
}

/// Subscribers who lag and read the store at once.
const READERS_MAX: usize = 8;

impl Shared {
    /// Shares what the daemon made.
    pub fn new(
        runtime: Runtime,
        config: watch::Receiver<Arc<Config>>,
        phase: watch::Receiver<Phase>,
        place: Place,
    ) -> Self {
        let in_flight_max = config.borrow().limits.in_flight_total;
        Self {
            runtime,
            config,
            phase,
            in_flight: Arc::new(Semaphore::new(in_flight_max)),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            holders: Holders::default(),
            place,
            door: OnceLock::new(),
            in_flight_max,
            disposed: CancellationToken::new(),
            stop: watch::Sender::new(None),
            started: Instant::now(),
            connections: Mutex::default(),
        }
    }

    /// Asks the daemon to stop. From here on nothing new is taken: a request behind this one is refused.
    pub fn ask_to_stop(&self, stop: Stop) {
        self.runtime.stop_taking();
        self.stop.send_replace(Some(stop));
    }

    /// Clients' wishes to stop, for the daemon.
    pub fn stops(&self) -> watch::Receiver<Option<Stop>> {
        self.stop.subscribe()
    }

    /// Who lets peers in says how they can be counted; once.
    pub fn counts_peers(&self, door: Door) {
        let _ = self.door.set(door);
    }

    /// Who is at the door; on standard streams nobody.
    pub fn peers(&self) -> Peers {
        self.door.get().map_or_else(Peers::default, |door| door())
    }

    /// How long the process has served.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The number of a new connection; never given twice.
    pub fn next_connection_id(&self) -> u64 {
        let mut connections = self.lock();
        connections.last_id += 1;
        connections.last_id
    }

    /// A connection is there, and how to ask it how it is.
    pub fn connected(&self, id: u64, gauge: Gauge) {
        self.lock().gauges.insert(id, gauge);
    }

    /// A connection is gone.
    pub fn disconnected(&self, id: u64) {
        self.lock().gauges.remove(&id);
    }

    /// How the connections are.
    pub fn connections(&self) -> Vec<ConnectionState> {
        self.lock().gauges.values().filter_map(|gauge| gauge()).collect()
    }

    /// How many requests are in flight on all connections.
    pub fn in_flight_count(&self) -> usize {
        self.in_flight_max.saturating_sub(self.in_flight.available_permits())
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> usize {
        self.lock().gauges.len()
    }

    /// The map is whole between any two statements that could panic.
    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many connections hold each session by a subscription of their own. Cheap to clone; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Holders(Arc<Mutex<HashMap<SessionId, usize>>>);

impl Holders {
    /// One more holds it.
    pub fn add(&self, session: &SessionId) {
        *self.lock().entry(session.clone()).or_default() += 1;
    }

    /// One less holds it.
    pub fn remove(&self, session: &SessionId) {
        let mut holders = self.lock();
        if let Some(count) = holders.get_mut(session) {
            *count -= 1;
            if *count == 0 {
                holders.remove(session);
            }
        }
    }

    /// Whether anybody holds it.
    pub fn any(&self, session: &SessionId) -> bool {
        self.lock().contains_key(session)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
