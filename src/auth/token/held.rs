//! Who is in by which token: the connections that end when their token does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Token, TokenError};

/// The connections that are in by a token.
#[derive(Debug, Default)]
pub(super) struct Holders {
    held: Mutex<Table>,
    came: Notify,
    /// The tokens can't be read, and it was said.
    unreadable: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    /// By a number of ours. Bounded by the connections.
    by_number: HashMap<u64, (Token, CancellationToken)>,
}

/// A connection's hold on its token; given up when dropped.
#[derive(Debug)]
pub struct Held {
    holders: Arc<Holders>,
    number: u64,
    token: Token,
    ended: CancellationToken,
}

impl Held {
    /// The token by which the connection came in.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Cancelled when the token is revoked, has expired or was changed.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holders.lock().by_number.remove(&self.number);
    }
}

impl Holders {
    pub(super) fn add(self: &Arc<Self>, token: Token) -> Held {
        let ended = CancellationToken::new();
        let number = {
            let mut table = self.lock();
            table.last += 1;
            let number = table.last;
            table.by_number.insert(number, (token.clone(), ended.clone()));
            number
        };
        self.came.notify_one();
        Held { holders: Arc::clone(self), number, token, ended }
    }

    /// Returns when there is at least one.
    pub(super) async fn some(&self) {
        while self.lock().by_number.is_empty() {
            self.came.notified().await;
        }
    }

    /// The tokens that are held, each once.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let table = self.lock();
        let mut tokens: Vec<Token> = Vec::new();
        for (token, _) in table.by_number.values() {
            if !tokens.contains(token) {
                tokens.push(token.clone());
            }
        }
        tokens
    }

    /// Ends all connections of a token.
    pub(super) fn end(&self, token: &Token, now: Timestamp) {
        let ending: Vec<CancellationToken> = {
            let table = self.lock();
            table
                .by_number
                .values()
                .filter(|(held, ended)| held == token && !ended.is_cancelled())
                .map(|(_, ended)| ended.clone())
                .collect()
        };
        if ending.is_empty() {
            return;
        }
        let why = if token.expired(now) { "it has expired" } else { "it was revoked or changed" };
        tracing::warn!(
            token = token.name,
            connections = ending.len(),
            "closing the connections of a token: {why}"
        );
        ending.iter().for_each(CancellationToken::cancel);
    }

    /// The tokens can't be read; said once until they can.
    pub(super) fn unreadable(&self, error: &TokenError) {
        if !self.unreadable.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "nobody comes in by a token, since tokens cannot be read");
        }
    }

    /// The tokens can be read.
    pub(super) fn readable(&self) {
        self.unreadable.store(false, Ordering::Relaxed);
    }

    /// The table is whole between any two statements that could panic.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
