//! How a connection ends: what is in flight is answered, what is subscribed to is sent up to now, what is queued is
//! written; each within a bound, and then the rest is dropped.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::Connection;
use super::reader::End;

/// Replies that say that nobody waits any more are queued within this.
const GIVE_UP_WAIT: Duration = Duration::from_secs(1);

impl Connection {
    /// Ends it. Nothing of it is left afterwards but what the writer could not write.
    pub(super) async fn end(&self, end: End, writer: JoinHandle<()>) {
        let deadline = Instant::now() + self.service.shared.config.borrow().shutdown.drain_timeout;
        match end {
            End::Input => {
                self.input_over.cancel();
                self.answer(deadline).await;
                self.outlive_input().await;
                self.settle(deadline).await;
            }
            End::Drained => {
                self.answer(Instant::now() + GIVE_UP_WAIT).await;
                self.settle(deadline).await;
            }
            End::Left => self.answer(Instant::now()).await,
            End::Dead => {}
        }
        self.outbound.close();
        if timeout_at(deadline, writer).await.is_err() {
            tracing::warn!(peer = self.peer.label, "a peer did not take what was left for it");
        }
        self.scope.abort();
        if !self.scope.wait(GIVE_UP_WAIT).await {
            tracing::error!(
                peer = self.peer.label,
                tasks = self.scope.len(),
                "tasks outlive their connection"
            );
        }
        self.service.shared.disconnected(self.id);
    }

    /// Lets requests in flight be answered until `deadline`; the others are told that they are given up.
    async fn answer(&self, deadline: Instant) {
        let cut = self.cut();
        tokio::pin!(cut);
        tokio::select! {
            () = &mut cut => return,
            answered = timeout_at(deadline, self.in_flight.emptied()) => {
                if answered.is_ok() {
                    return;
                }
            }
        }
        self.giving_up.cancel();
        tokio::select! {
            () = cut => {}
            _ = timeout(GIVE_UP_WAIT, self.in_flight.emptied()) => {}
        }
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
            _ = timeout_at(deadline, self.follows.all_ended()) => {}
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
