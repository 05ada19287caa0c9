//! One reply a request: awaited, ordered after what it must follow, queued.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Connection;
use super::outbound::Closed;
use crate::dispatch;
use crate::handler::follow::Follow;
use crate::handler::{Outcome, Then};
use crate::rpc::{self, ErrorKind, RequestId, RpcError, Slot};

/// A request that was taken up and not yet answered.
pub(super) struct Pending {
    pub(super) connection: Arc<Connection>,
    pub(super) id: RequestId,
    /// Its place in flight: given up when the reply is queued.
    pub(super) slot: Slot,
}

impl Pending {
    /// Awaits the outcome and replies. A task of its own.
    pub(super) async fn reply_later(self, future: BoxFuture<'static, Result<Outcome, RpcError>>) {
        let connection = Arc::clone(&self.connection);
        let reply = async {
            let outcome = tokio::select! {
                biased;
                outcome = dispatch::guarded(future) => outcome,
                () = connection.giving_up.cancelled() => Err(given_up()),
            };
            // A closed queue is the end of the connection: nobody is left to answer.
            let _ = self.reply(outcome).await;
        };
        tokio::select! {
            biased;
            () = connection.scope.aborting().cancelled() => {}
            () = reply => {}
        }
    }

    /// Replies after the events that the outcome follows, then does what comes after the reply.
    pub(super) async fn reply(self, outcome: Result<Outcome, RpcError>) -> Result<(), Closed> {
        let Self { connection, id, slot } = self;
        let Outcome { body, after, then } = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                return connection.outbound.reply(rpc::response::<()>(Some(&id), Err(&error))).await;
            }
        };
        if !after.is_empty() {
            tokio::select! {
                () = connection.follows.passed(&after) => {}
                () = connection.giving_up.cancelled() => {}
            }
        }
        connection.outbound.reply(rpc::response(Some(&id), Ok(&body))).await?;
        drop(slot);
        match then {
            Then::Nothing => {}
            Then::Follow(follow) => {
                connection.follows.begin(follow.feed, follow.cursor, follow.hold);
                drop(follow.turn);
            }
            Then::Leave => connection.leaving.cancel(),
        }
        Ok(())
    }
}

fn given_up() -> RpcError {
    RpcError::new(ErrorKind::ShuttingDown, "the connection ends before the request is done")
}
