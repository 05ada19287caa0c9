//! What each method does: one file a method.
//!
//! A handler's `start` is called in the order in which requests arrive. It submits what it has to submit at once; only
//! the waiting is a future. It never touches the stream: what it wants of its connection it asks of
//! [`follow::Follow`] or says in its [`Outcome`]. Called by `dispatch` alone.

pub mod approval;
pub mod blob;
pub mod caller;
pub mod cancel;
pub mod close;
pub mod create;
pub mod delete;
pub mod directory;
pub mod drain;
mod error;
pub mod follow;
pub mod initialize;
pub mod list;
pub mod models;
pub mod prompt;
pub mod queue;
pub mod read;
pub mod resume;
pub mod shared;
pub mod shutdown;
pub mod status;
pub mod submitted;
pub mod subscribe;
#[cfg(test)]
pub(crate) mod testing;
pub mod update;
pub mod wait;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

pub use self::error::incident;

use self::follow::{Begin, Turn};
use crate::event::{Seq, SessionId};
use crate::protocol::{Empty, SessionStatus};
use crate::rpc::{ErrorKind, RpcError};
use crate::session::Status;

/// How a request goes on after its start.
pub enum Started {
    /// It is done.
    Now(Result<Outcome, RpcError>),
    /// It is submitted; this waits.
    Later(BoxFuture<'static, Result<Outcome, RpcError>>),
}

/// What a request came to.
pub struct Outcome {
    /// The result.
    pub body: Box<RawValue>,
    /// What must be queued before the reply, for the sessions that the connection follows.
    pub after: Vec<(SessionId, Seq)>,
    /// What happens once the reply is queued.
    pub then: Then,
}

/// What happens once a reply is queued.
pub enum Then {
    /// Nothing.
    Nothing,
    /// The connection follows a session.
    Follow(Box<Following>),
    /// The connection ends.
    Leave,
}

/// A subscription that begins after a reply.
pub struct Following {
    /// Which.
    pub begin: Begin,
    /// Its place in the order, given up once it has begun.
    pub turn: Turn,
}

impl Started {
    /// The request is done, with this result.
    pub fn now(result: &impl Serialize) -> Self {
        Self::Now(Outcome::of(result))
    }

    /// The request is submitted.
    pub fn later(future: impl Future<Output = Result<Outcome, RpcError>> + Send + 'static) -> Self {
        Self::Later(future.boxed())
    }
}

impl Outcome {
    /// A result and nothing else.
    ///
    /// # Errors
    /// `internal` when it can't be written as JSON: our bug.
    pub fn of(result: &impl Serialize) -> Result<Self, RpcError> {
        let body = to_raw_value(result).map_err(|error| {
            RpcError::new(ErrorKind::Internal, format!("the result could not be written: {error}"))
        })?;
        Ok(Self { body, after: Vec::new(), then: Then::Nothing })
    }

    /// `{}`.
    ///
    /// # Errors
    /// None that can happen.
    pub fn empty() -> Result<Self, RpcError> {
        Self::of(&Empty {})
    }

    /// The same, after these events.
    #[must_use]
    pub fn after(mut self, after: Vec<(SessionId, Seq)>) -> Self {
        self.after = after;
        self
    }

    /// The same, and what happens then.
    #[must_use]
    pub fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// A status in the wire's words.
pub fn wire_status(status: Status) -> SessionStatus {
    match status {
        Status::Running => SessionStatus::Running,
        Status::Idle => SessionStatus::Idle,
    }
}

/// A connection's name on the wire.
pub fn connection_id(connection: u64) -> String {
    format!("c{connection}")
}

/// A wrong parameter.
pub(crate) fn invalid(path: &'static str, message: &str) -> RpcError {
    RpcError::new(ErrorKind::InvalidParams, format!("{path}: {message}")).with("path", &path)
}
