//! The two tasks of a client's connection: a reader that hands out replies and notifications, a writer. And the table
//! of calls that wait for their reply.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::error::{CallError, RpcError};
use super::frame::{self, Frame, Notification};

/// Bytes read from the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// Bytes gathered for one write.
const WRITE_BYTES: usize = 64 * 1024;

/// The beginning of a foreign answer that an error quotes, in bytes.
const QUOTE_BYTES: usize = 40;

type Outcome = Result<Box<RawValue>, CallError>;

/// The calls that wait, and why there will be no more.
#[derive(Debug, Default)]
pub(super) struct Table {
    state: Mutex<State>,
    over: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    waiting: HashMap<u64, oneshot::Sender<Outcome>>,
    ended: Option<CallError>,
}

impl Table {
    /// Takes an id and a place for its reply.
    ///
    /// # Errors
    /// Why the connection ended.
    pub(super) fn enter(&self) -> Result<(u64, oneshot::Receiver<Outcome>), CallError> {
        let mut state = self.lock();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        state.next_id += 1;
        let id = state.next_id;
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(id, sender);
        Ok((id, receiver))
    }

    /// The caller of `id` has gone; its reply will be passed over.
    pub(super) fn leave(&self, id: u64) {
        self.lock().waiting.remove(&id);
    }

    /// Waits until the connection has ended, and says why.
    pub(super) async fn ended(&self) -> CallError {
        self.over.cancelled().await;
        self.lock().ended.clone().unwrap_or_else(|| CallError::Closed("for no known reason".to_owned()))
    }

    /// The connection has ended; the first reason stays.
    pub(super) fn end(&self, reason: CallError) {
        let mut state = self.lock();
        let reason = state.ended.get_or_insert(reason).clone();
        for (_, caller) in state.waiting.drain() {
            let _ = caller.send(Err(reason.clone()));
        }
        self.over.cancel();
    }

    fn answer(&self, id: u64, outcome: Result<Box<RawValue>, RpcError>) {
        if let Some(caller) = self.lock().waiting.remove(&id) {
            let _ = caller.send(outcome.map_err(CallError::Rpc));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads frames until the stream ends. A notification waits for room, and the stream with it.
pub(super) async fn read<R>(io: R, table: Arc<Table>, notifications: mpsc::Sender<Notification>)
where
    R: AsyncRead + Unpin,
{
    let mut reader = BufReader::with_capacity(READ_BYTES, io);
    let mut line = Vec::new();
    let mut refusal = None;
    let mut is_first = true;
    let reason = loop {
        match frame::read_line(&mut reader, &mut line).await {
            Ok(true) if line.is_empty() => continue,
            Ok(true) => {}
            Ok(false) => break CallError::Closed("the daemon closed it".to_owned()),
            Err(error) => break CallError::Closed(error.to_string()),
        }
        match Frame::parse(&line) {
            Some(Frame::Reply(id, outcome)) => table.answer(id, outcome),
            // The receiver may have been dropped: its owner wants no notifications.
            Some(Frame::Notification(note)) => drop(notifications.send(note).await),
            Some(Frame::Refusal(error)) => refusal = Some(error),
            None if is_first => break CallError::NotDshd { got: quote(&line) },
            None => break CallError::Closed(format!("the daemon sent no frame: {:?}", quote(&line))),
        }
        is_first = false;
    };
    table.end(refusal.map_or(reason, CallError::Rpc));
}

/// Writes frames until `draining`, or until nobody can send more; then ends the stream's write side.
pub(super) async fn write<W>(
    mut io: W,
    table: Arc<Table>,
    mut frames: mpsc::Receiver<Vec<u8>>,
    draining: CancellationToken,
) where
    W: AsyncWrite + Unpin,
{
    let mut batch = Vec::new();
    let ending = async {
        loop {
            tokio::select! {
                biased;
                frame = frames.recv() => match frame {
                    Some(frame) => batch = frame,
                    None => break,
                },
                () = draining.cancelled() => break,
            }
            while batch.len() < WRITE_BYTES
                && let Ok(more) = frames.try_recv()
            {
                batch.extend_from_slice(&more);
            }
            io.write_all(&batch).await?;
            io.flush().await?;
        }
        io.shutdown().await
    };
    if let Err(error) = ending.await {
        // The reader may still learn why: a daemon says what it refuses before it closes.
        if tokio::time::timeout(super::REFUSAL_WAIT, table.ended()).await.is_err() {
            table.end(CallError::Closed(error.to_string()));
        }
    }
}

fn quote(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(QUOTE_BYTES)]);
    text.trim_end().to_owned()
}
