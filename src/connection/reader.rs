//! The reader: takes frames up in the order in which they arrive. Nothing else reads the stream.
//!
//! It waits for room for a reply, and for nothing else.

use std::sync::{Arc, OnceLock};

use futures_util::StreamExt;
use tokio::io::{AsyncRead, AsyncReadExt, Take};
use tokio::sync::watch;
use tokio_util::codec::FramedRead;

use super::outbound::Closed;
use super::{Connection, notice, preauth, reply};
use crate::auth::Scope as Access;
use crate::auth::peer::PeerKind;
use crate::auth::token::Held;
use crate::codec::{Frame, LineDecoder};
use crate::dispatch;
use crate::handler::Started;
use crate::handler::caller::Caller;
use crate::handler::shared::Phase;
use crate::listener::Permit;
use crate::protocol::Method;
use crate::rpc::{self, Admission, ErrorKind, Inbound, Request, RequestId, RpcError};

/// What the decoder begins with; it grows as it fills.
const BUFFER_BYTES: usize = 1024;

/// When a request that was refused for load is worth repeating.
const RETRY_AFTER_MS: u64 = 250;

/// Clients come back at different times.
const RECONNECT_AFTER_MS: std::ops::Range<u64> = 500..5000;

/// Why a connection is read no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer has said all it will say, or too much that is wrong: what is in flight is answered.
    Input,
    /// `shutdown` was answered.
    Left,
    /// The service ends.
    Drained,
    /// The write side is dead, or the connection was cut.
    Dead,
    /// The token by which it came in is no longer one.
    Revoked,
}

/// Reads until the end of the connection's input or of its life. Gives back what handlers saw of it, if it was let in.
pub(super) async fn read<R>(
    connection: &Arc<Connection>,
    input: R,
    permit: Option<&mut Permit>,
) -> (End, Option<Arc<Caller>>)
where
    R: AsyncRead + Unpin + Send,
{
    let caller = OnceLock::new();
    let end = tokio::select! {
        biased;
        () = connection.scope.aborting().cancelled() => End::Dead,
        () = connection.dead.cancelled() => End::Dead,
        () = connection.leaving.cancelled() => End::Left,
        end = admit_and_read(connection, input, permit, &caller) => end,
    };
    (end, caller.into_inner())
}

async fn admit_and_read<R>(
    connection: &Arc<Connection>,
    input: R,
    permit: Option<&mut Permit>,
    caller: &OnceLock<Arc<Caller>>,
) -> End
where
    R: AsyncRead + Unpin,
{
    let (line_bytes, preauth_bytes) = {
        let limits = &connection.service.shared.config.borrow().limits;
        (limits.line_bytes.bytes(), limits.preauth_bytes.bytes())
    };
    let must_authenticate = connection.peer.must_authenticate();
    let first_bytes = if must_authenticate { preauth_bytes } else { line_bytes };
    let decoder = LineDecoder::new(first_bytes);
    let mut frames = FramedRead::with_capacity(input.take(u64::MAX), decoder, BUFFER_BYTES);
    let (mut access, mut mode_max, mut held) = (Access::Control, connection.peer.mode_max, None);
    let mut permit = permit;
    if must_authenticate {
        frames.get_mut().set_limit(preauth_bytes as u64);
        let admitted = tokio::select! {
            biased;
            () = connection.scope.draining().cancelled() => None,
            admitted = preauth::authenticate(connection, &mut frames, permit.as_deref_mut()) => admitted,
        };
        let Some(admitted) = admitted else { return End::Input };
        access = admitted.token().scope;
        mode_max = mode_max.min(admitted.token().mode_max.unwrap_or(mode_max));
        held = Some(admitted);
        frames.get_mut().set_limit(u64::MAX);
        frames.decoder_mut().set_line_bytes_max(line_bytes);
    }
    if let Some(permit) = permit {
        permit.authenticated();
    }
    let caller = caller.get_or_init(|| Arc::new(connection.caller((access, mode_max))));
    connection.announce(caller);
    // A process of the peer's own is not one to come back to.
    let phase = match connection.peer.kind {
        PeerKind::Unix { .. } | PeerKind::Tcp { .. } => Some(connection.service.shared.phase.clone()),
        PeerKind::Stdio => None,
    };
    let mut reader = Reader { connection, caller, frames, phase, bad_frames: 0 };
    tokio::select! {
        biased;
        () = revoked(held.as_ref()) => {
            tracing::warn!(peer = connection.peer.label, "closed a connection whose token has ended");
            End::Revoked
        }
        // A closed queue ends the connection elsewhere; here it only ends the reading.
        end = reader.run() => end.unwrap_or(End::Input),
    }
}

/// Resolves when the token by which a connection came in has ended.
async fn revoked(held: Option<&Held>) {
    match held {
        Some(held) => held.ended().cancelled().await,
        None => std::future::pending().await,
    }
}

struct Reader<'a, R> {
    connection: &'a Arc<Connection>,
    caller: &'a Arc<Caller>,
    frames: FramedRead<Take<R>, LineDecoder>,
    /// The process's phase; none where the peer is not told, or was.
    phase: Option<watch::Receiver<Phase>>,
    bad_frames: u32,
}

impl<R: AsyncRead + Unpin> Reader<'_, R> {
    async fn run(&mut self) -> Result<End, Closed> {
        let bad_frames_max = self.connection.service.shared.config.borrow().limits.bad_frames;
        while self.bad_frames < bad_frames_max {
            let frame = tokio::select! {
                biased;
                // Before the end: where nothing is left to wait for, both come at once.
                deadline_ms = drains(&mut self.phase) => {
                    self.tell_draining(deadline_ms).await?;
                    continue;
                }
                () = self.connection.scope.draining().cancelled() => return Ok(End::Drained),
                frame = self.frames.next() => frame,
            };
            match frame {
                Some(Ok(Frame::Line(line))) => self.take(&line).await?,
                Some(Ok(Frame::TooLong)) => {
                    let message = "the line is longer than limits.line_bytes; it was skipped";
                    self.bad(None, RpcError::new(ErrorKind::LineTooLong, message)).await?;
                }
                Some(Err(error)) => {
                    tracing::debug!(peer = self.connection.peer.label, %error, "a peer's input failed");
                    return Ok(End::Input);
                }
                None => return Ok(End::Input),
            }
        }
        tracing::warn!(
            peer = self.connection.peer.label,
            "closed after {bad_frames_max} bad frames in a row"
        );
        Ok(End::Input)
    }

    async fn take(&mut self, line: &[u8]) -> Result<(), Closed> {
        match rpc::parse(line) {
            Inbound::Nothing => {
                self.bad_frames = 0;
                Ok(())
            }
            Inbound::Bad { id, error } => self.bad(id.as_ref(), error).await,
            Inbound::Request(request) => self.request(request).await,
        }
    }

    async fn request(&mut self, request: Request) -> Result<(), Closed> {
        let Request { id, method, params } = request;
        let Some(method) = Method::from_name(&method) else {
            self.bad_frames = 0;
            let message = format!("there is no method {method:?}");
            return self.refuse(Some(&id), &RpcError::new(ErrorKind::UnknownMethod, message)).await;
        };
        let in_flight = &self.connection.in_flight;
        let admission =
            if method.lets_go() { in_flight.admit_letting_go(&id).await } else { in_flight.admit(&id) };
        let slot = match admission {
            Admission::Taken(slot) => slot,
            Admission::Duplicate => {
                let message = "a request with this id is in flight";
                return self.bad(Some(&id), RpcError::new(ErrorKind::DuplicateId, message)).await;
            }
            Admission::Full => {
                self.bad_frames = 0;
                let message = "too many requests are in flight (limits.in_flight); wait for replies";
                let error = RpcError::new(ErrorKind::Overloaded, message);
                return self.refuse(Some(&id), &error.with("retryAfterMs", &RETRY_AFTER_MS)).await;
            }
        };
        self.bad_frames = 0;
        let pending = reply::Pending { connection: Arc::clone(self.connection), id, slot };
        match dispatch::start(self.caller, method, params.as_deref()) {
            Started::Now(outcome) => pending.reply(outcome).await,
            Started::Later(future) => {
                self.connection.scope.spawn(pending.reply_later(future));
                Ok(())
            }
        }
    }

    async fn bad(&mut self, id: Option<&RequestId>, error: RpcError) -> Result<(), Closed> {
        self.bad_frames += 1;
        self.refuse(id, &error).await
    }

    async fn refuse(&self, id: Option<&RequestId>, error: &RpcError) -> Result<(), Closed> {
        self.connection.outbound.reply(rpc::response::<()>(id, Err(error))).await
    }

    async fn tell_draining(&self, deadline_ms: u64) -> Result<(), Closed> {
        let jitter = uuid::Uuid::new_v4().as_u64_pair().0;
        let span = RECONNECT_AFTER_MS.end - RECONNECT_AFTER_MS.start;
        let line = notice::draining(deadline_ms, RECONNECT_AFTER_MS.start + jitter % span);
        self.connection.outbound.notice(line).await
    }
}

/// Resolves once, with the deadline in milliseconds, when the process begins to drain. Cancel safe.
async fn drains(phase: &mut Option<watch::Receiver<Phase>>) -> u64 {
    let Some(receiver) = phase else { return std::future::pending().await };
    let draining =
        receiver.wait_for(|phase| matches!(phase, Phase::Draining { .. })).await.map(|phase| *phase);
    *phase = None;
    match draining {
        Ok(Phase::Draining { deadline }) => u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        // The daemon is gone; so will be this connection.
        Ok(Phase::Serving) | Err(_) => std::future::pending().await,
    }
}
