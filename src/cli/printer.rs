//! The thread that writes to stdout and stderr for a command that goes on meanwhile: a pager that stops reading must not
//! keep Ctrl-C from being heard. One thread for both, so that text and commentary stay in their order on a terminal.

use std::io::{self, Write};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Failure, output};
use crate::shutdown::Scope;

/// Pieces that wait to be written; beyond them the command waits.
const PIECES_MAX: usize = 64;

/// Bytes for one of the two streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The result.
    Out(Vec<u8>),
    /// Commentary.
    Err(Vec<u8>),
}

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Printer {
    queue: mpsc::Sender<Piece>,
    thread: JoinHandle<io::Result<()>>,
}

impl Printer {
    /// Starts the thread.
    pub(super) fn new() -> Self {
        let (queue, pieces) = mpsc::channel(PIECES_MAX);
        Self { queue, thread: Scope::new().spawn_blocking(move || write(pieces)) }
    }

    /// Waits for room, for ever when stdout can't be written any more. Cancel safe.
    pub(super) async fn has_room(&self) {
        if self.queue.reserve().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until stdout can't be written any more; [`Printer::finish`] says why. Cancel safe.
    pub(super) async fn failed(&self) {
        self.queue.closed().await;
    }

    /// Queues a piece, for which there must be room. Only one task prints, so room that was there still is.
    pub(super) fn print(&self, piece: Piece) {
        // A closed queue shows at the next wait for room.
        let _ = self.queue.try_send(piece);
    }

    /// Waits for room and queues a piece.
    pub(super) async fn send(&self, piece: Piece) {
        let _ = self.queue.send(piece).await;
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// [`Failure::broken_pipe`] when the reader of stdout is gone, else the I/O error.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        drop(self.queue);
        match self.thread.await {
            Ok(written) => written.map_err(output::stdout_failed),
            Err(error) => Err(Failure::bug(format!("the printing thread ended: {error}"))),
        }
    }
}

fn write(mut pieces: mpsc::Receiver<Piece>) -> io::Result<()> {
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            Piece::Out(bytes) => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
            }
            // Nobody is left to tell when stderr is gone.
            Piece::Err(bytes) => drop(io::stderr().lock().write_all(&bytes)),
        }
    }
    Ok(())
}
