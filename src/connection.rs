//! One connection's life: reader, writer, bounded outbound queue, subscriptions.
//!
//! [`serve`] is the one entry for all transports. It owns the stream: one task reads it, one writes it. The reader
//! takes requests up in order and waits for nothing but room for a reply; what waits for sessions are tasks beside it.
//! When it returns, nothing of the connection is left.

mod descendants;
mod ending;
mod follows;
mod notice;
mod outbound;
mod preauth;
mod reader;
mod refusal;
mod reply;
mod subscription;
mod writer;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::notice::framing;
pub use self::refusal::refusals;

use self::follows::Follows;
use self::outbound::Outbound;
use self::subscription::Common;
use self::writer::WriteError;
use crate::auth::Scope as Access;
use crate::auth::peer::{PeerInfo, PeerKind};
use crate::auth::token::Tokens;
use crate::event::PermissionMode;
use crate::handler;
use crate::handler::caller::{Caller, Defaults};
use crate::handler::shared::Shared;
use crate::listener::Permit;
use crate::metrics::METRICS;
use crate::protocol::{ClientInfo, ConnectionState};
use crate::rpc::InFlight;
use crate::shutdown::Scope;

/// What connections are served with. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    /// What handlers work on.
    pub shared: Arc<Shared>,
    /// Who may come in over TCP.
    pub tokens: Arc<Tokens>,
    /// What a client that says nothing gets.
    pub defaults: Defaults,
    /// Ends all connections: its drain lets them finish, its abort cuts them.
    pub scope: Scope,
    /// Cancelled when the input has ended and nothing is in flight. With it a connection stays until its scope drains:
    /// on stdio the end of the input is the end of the process, whose last events the peer still reads.
    pub input_ended: Option<CancellationToken>,
}

/// One connection, as its reader and its reply tasks share it.
pub(super) struct Connection {
    service: Service,
    peer: PeerInfo,
    id: u64,
    outbound: Outbound,
    follows: Follows,
    in_flight: Arc<InFlight>,
    /// All of its tasks but the reader.
    scope: Scope,
    /// The peer says nothing more.
    input_over: CancellationToken,
    /// The write side is dead.
    dead: CancellationToken,
    /// `shutdown` was answered: the connection closes.
    leaving: CancellationToken,
    /// Requests that still wait are answered `shutting_down`.
    giving_up: CancellationToken,
    /// Subscriptions end once they have caught up.
    settling: CancellationToken,
}

/// Serves one peer until it leaves, is cut or the service ends.
pub async fn serve<S>(io: S, peer: PeerInfo, mut permit: Option<Permit>, service: Service)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (input, output) = tokio::io::split(io);
    let connection = Arc::new(Connection::new(peer, service));
    let writer = connection.write(output);
    let label = connection.peer.label.clone();
    tracing::debug!(peer = label, connection = connection.id, "connected");
    let (end, caller) = Box::pin(reader::read(&connection, input, permit.as_mut())).await;
    tracing::debug!(peer = label, connection = connection.id, ?end, "disconnecting");
    connection.end(end, writer).await;
    if let Some(caller) = caller {
        caller.disconnected().await;
    }
    // Its place among the connections is given up last.
    drop(permit);
}

impl Connection {
    fn new(peer: PeerInfo, service: Service) -> Self {
        let scope = service.scope.child();
        let shared = &service.shared;
        let (outbound_bytes, in_flight_max) = {
            let limits = &shared.config.borrow().limits;
            (limits.outbound_bytes.0, limits.in_flight.max(service.defaults.in_flight_min))
        };
        let outbound = Outbound::new(outbound_bytes);
        let settling = CancellationToken::new();
        let common = Common {
            runtime: shared.runtime.clone(),
            outbound: outbound.clone(),
            readers: shared.readers.clone(),
            page: Arc::new(Semaphore::new(1)),
            clock: Arc::new(AtomicU64::new(0)),
            draining: settling.clone(),
        };
        let follows = Follows::new(common, shared.config.clone(), shared.holders.clone(), scope.clone());
        Self {
            id: shared.next_connection_id(),
            in_flight: InFlight::new(in_flight_max, shared.in_flight.clone()),
            peer,
            outbound,
            follows,
            scope,
            input_over: CancellationToken::new(),
            dead: CancellationToken::new(),
            leaving: CancellationToken::new(),
            giving_up: CancellationToken::new(),
            settling,
            service,
        }
    }

    /// What handlers see of the connection, from when it may do something.
    fn caller(&self, (access, mode_max): (Access, PermissionMode)) -> Caller {
        Caller::new(
            self.service.shared.clone(),
            self.service.defaults,
            self.id,
            (access, mode_max),
            Arc::new(self.follows.clone()),
        )
    }

    /// Starts the writer task.
    fn write<W>(self: &Arc<Self>, output: W) -> JoinHandle<()>
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Arc::clone(self);
        let progress_max = match self.peer.kind {
            PeerKind::Unix { .. } | PeerKind::Tcp { .. } => {
                Some(self.service.shared.config.borrow().limits.write_progress)
            }
            PeerKind::Stdio => None,
        };
        self.scope.spawn(async move {
            let aborting = connection.scope.aborting();
            let written =
                writer::write_all(output, &connection.outbound, progress_max, &connection.input_over);
            let result = tokio::select! {
                biased;
                () = aborting.cancelled() => Ok(()),
                result = written => result,
            };
            if let Err(error) = &result {
                connection.log_write_error(error);
                connection.dead.cancel();
            }
        })
    }

    fn log_write_error(&self, error: &WriteError) {
        let peer = &self.peer.label;
        let events = self.follows.events_behind();
        match error {
            WriteError::Stuck { lines, bytes, .. } => {
                METRICS.cut.add(1);
                tracing::warn!(peer, events, lines, bytes, %error, "cut a connection that does not read");
            }
            WriteError::Io(source) => tracing::debug!(peer, events, %source, "a peer is gone"),
        }
    }

    /// Makes the connection known to `server/status`.
    fn announce(self: &Arc<Self>, caller: &Arc<Caller>) {
        let (connection, caller) = (Arc::downgrade(self), Arc::downgrade(caller));
        let gauge = move || {
            let (connection, caller) = (connection.upgrade()?, caller.upgrade()?);
            let client = caller.bound().ok().and_then(|bound| bound.client.as_ref());
            Some(connection.state(client))
        };
        self.service.shared.connected(self.id, Box::new(gauge));
    }

    /// How the connection is; `client` is what it said it is.
    fn state(&self, client: Option<&ClientInfo>) -> ConnectionState {
        let lag = self.outbound.lag();
        ConnectionState {
            connection_id: handler::connection_id(self.id),
            peer: self.peer.label.clone(),
            client: client.map(|client| match &client.version {
                Some(version) => format!("{} {version}", client.name),
                None => client.name.clone(),
            }),
            subscriptions: self.follows.len(),
            lag_events: self.follows.events_behind(),
            in_flight: self.in_flight.len(),
            lag_bytes: lag.bytes as u64,
            last_progress_ms: u64::try_from(lag.still.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests;
