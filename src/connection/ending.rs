//! How a connection ends: what is in flight is answered, what is subscribed to is sent up to now, what is queued is
//! written; each within a bound, and then the rest is dropped.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::Connection;
use super::reader::End;

/// Each last thing is given this at least, however long others have taken.
const LAST_WAIT: Duration = Duration::from_secs(1);

impl Connection {
    /// Ends it. Nothing of it is left afterwards but what the writer could not write.
    pub(super) async fn end(&self, end: End, writer: JoinHandle<()>) {
        let deadline = Instant::now() + self.service.shared.config.borrow().shutdown.drain_timeout;
        match end {
            End::Input => {
                self.input_over.cancel();
                self.answered(deadline).await;
                self.outlive_input().await;
                self.give_up().await;
                self.settle(deadline).await;
            }
            End::Drained => {
                self.answered(Instant::now() + LAST_WAIT).await;
                self.give_up().await;
                self.settle(deadline).await;
            }
            End::Left => self.give_up().await,
            End::Dead => {}
            // Not a byte more, however slowly it reads.
            End::Revoked => self.scope.abort(),
        }
        self.outbound.close();
        if timeout_at(deadline.max(Instant::now() + LAST_WAIT), writer).await.is_err() {
            tracing::warn!(peer = self.peer.label, "a peer did not take what was left for it");
        }
        self.scope.abort();
        if !self.scope.wait(LAST_WAIT).await {
            tracing::error!(
                peer = self.peer.label,
                tasks = self.scope.len(),
                "tasks outlive their connection"
            );
        }
        self.service.shared.disconnected(self.id);
    }

    /// Lets requests in flight be answered until `deadline`.
    async fn answered(&self, deadline: Instant) {
        tokio::select! {
            () = self.cut() => {}
            _ = timeout_at(deadline, self.in_flight.emptied()) => {}
        }
    }

    /// Tells those that still wait that nobody does any more.
    async fn give_up(&self) {
        self.giving_up.cancel();
        self.answered(Instant::now() + LAST_WAIT).await;
    }

    /// On stdio: says that the input has ended, and goes on until the process ends.
    async fn outlive_input(&self) {
        if let Some(input_ended) = &self.service.input_ended {
            input_ended.cancel();
            tokio::select! {
                () = self.cut() => {}
                () = self.scope.draining().cancelled() => {}
            }
        }
    }

    /// Lets subscriptions send what there is until now.
    async fn settle(&self, deadline: Instant) {
        self.settling.cancel();
        tokio::select! {
            () = self.cut() => {}
            _ = timeout_at(deadline.max(Instant::now() + LAST_WAIT), self.follows.all_ended()) => {}
        }
    }

    /// Nothing more can be written, or nobody waits any more.
    async fn cut(&self) {
        tokio::select! {
            () = self.dead.cancelled() => {}
            () = self.scope.aborting().cancelled() => {}
        }
    }
}
