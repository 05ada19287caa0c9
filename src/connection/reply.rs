//! One reply a request: awaited, ordered after what it must follow, queued.

use std::sync::Arc;

use bytes::Bytes;
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
        let Outcome { body, after, then } = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                let line = rpc::response::<()>(Some(&self.id), Err(&error));
                return self.queue(line).await.map(drop);
            }
        };
        if !after.is_empty() {
            tokio::select! {
                () = self.connection.follows.passed(&after) => {}
                () = self.connection.giving_up.cancelled() => {}
            }
        }
        let line = rpc::response(Some(&self.id), Ok(&body));
        let connection = self.queue(line).await?;
        match then {
            Then::Nothing => {}
            Then::Follow(follow) => {
                connection.follows.begin(follow.begin);
                drop(follow.turn);
            }
            Then::Leave => connection.leaving.cancel(),
        }
        Ok(())
    }

    /// Queues the reply when there is room; until then the request stays in flight.
    async fn queue(mut self, line: Bytes) -> Result<Arc<Connection>, Closed> {
        let room = self.connection.outbound.reply_room(line.len()).await?;
        // Before it can be read: who has read it may use the id again.
        self.slot.answered();
        self.connection.outbound.push(line, room, None)?;
        Ok(self.connection)
    }
}

fn given_up() -> RpcError {
    RpcError::new(ErrorKind::ShuttingDown, "the connection ends before the request is done")
}
