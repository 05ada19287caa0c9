//! What is known of one connection to a server: whether it stands, why it ended, whether the list of tools that we have
//! is the last one. Also the transport that learns this from the messages that pass.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Requests of a server that wait for our answer.
const REQUESTS_MAX: usize = 64;

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Cancelled when it has ended.
    ended: CancellationToken,
    /// Why, by whoever noticed first.
    why: Mutex<Option<String>>,
    /// How often the server has said that its tools changed.
    changes: AtomicU64,
    /// Which of these the list that we have includes.
    listed: AtomicU64,
    changed: Notify,
}

impl Line {
    /// Ends it, if it has not ended.
    pub(super) fn end(&self, why: impl Into<String>) {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.into());
        self.ended.cancel();
    }

    /// Why it ended.
    pub(super) fn why(&self) -> Option<String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Whether the list that we have is the last one.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire) >= self.changes.load(Ordering::Acquire)
    }

    /// How often the tools have changed so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The list that we have includes so many changes.
    pub(super) fn set_listed(&self, changes: u64) {
        self.listed.fetch_max(changes, Ordering::AcqRel);
    }

    /// Waits until the list that we have is not the last one.
    pub(super) async fn outdated(&self) {
        while self.is_listed() {
            self.changed.notified().await;
        }
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }
}

/// A transport that tells its line what passes. It notes a change of the tools before the answer that comes after it is
/// delivered, so that the next step asks for the new list.
pub(super) struct Watched<T> {
    inner: T,
    line: std::sync::Arc<Line>,
    /// Requests of the server that wait for our answer.
    open: usize,
}

impl<T> Watched<T> {
    pub(super) fn new(inner: T, line: std::sync::Arc<Line>) -> Self {
        Self { inner, line, open: 0 }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
            self.open = self.open.saturating_sub(1);
        }
        self.inner.send(item)
    }

    /// Cancel safe, as the inner one is.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Some(message) = self.inner.receive().await else {
            self.line.end("it closed the connection");
            return None;
        };
        match &message {
            JsonRpcMessage::Request(_) => {
                self.open += 1;
                if self.open > REQUESTS_MAX {
                    self.line.end(format!("it asks more than {REQUESTS_MAX} things at once"));
                    return None;
                }
            }
            JsonRpcMessage::Notification(message) => {
                let notification = &message.notification;
                if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
                    self.line.note_change();
                } else if matches!(notification, ServerNotification::CancelledNotification(_)) {
                    // A request that it takes back is not answered.
                    self.open = self.open.saturating_sub(1);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
