//! A command's output as it comes: into memory, and into the spool once it is too long for that.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::capture::{Caps, Capture, Captured};
use super::spool::{Place, Spool, Spooled};
use crate::event::SessionId;

/// After the command has ended, silence that ends the wait for output of others that hold its pipes, and the longest
/// such wait for those that are not silent.
const DRAIN_IDLE: Duration = Duration::from_millis(100);
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// The longest wait for the last bytes of a spool file.
const SPOOL_WAIT: Duration = Duration::from_secs(5);
const CHUNK_BYTES: usize = 32 * 1024;
/// What is read and thrown away is read at most so often: nobody is helped by a fast reader.
const DISCARD_PAUSE: Duration = Duration::from_millis(5);

/// Both streams of a command.
#[derive(Debug)]
pub(super) struct Output {
    stdout: Stream<ChildStdout>,
    stderr: Stream<ChildStderr>,
}

/// A look at the output of a command that runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct View {
    stdout: Shared,
    stderr: Shared,
}

type Shared = Arc<Mutex<Capture>>;

#[derive(Debug)]
struct Stream<R> {
    pipe: Option<R>,
    chunk: Vec<u8>,
    capture: Shared,
    spooler: Spooler,
}

impl Output {
    pub(super) fn new(
        (stdout, stderr): (Option<ChildStdout>, Option<ChildStderr>),
        caps: Caps,
        spool: Option<&(Spool, SessionId)>,
    ) -> Self {
        Self { stdout: Stream::new(stdout, caps, spool), stderr: Stream::new(stderr, caps, spool) }
    }

    pub(super) fn view(&self) -> View {
        View { stdout: self.stdout.capture.clone(), stderr: self.stderr.capture.clone() }
    }

    /// Whether somebody still holds a pipe.
    pub(super) fn is_open(&self) -> bool {
        self.stdout.pipe.is_some() || self.stderr.pipe.is_some()
    }

    /// Takes in what comes until `event`. Cancel safe, if `event` is.
    pub(super) async fn until<T>(&mut self, event: impl Future<Output = T>) -> T {
        tokio::pin!(event);
        loop {
            tokio::select! {
                biased;
                happened = &mut event => return happened,
                () = self.stdout.take_in(), if self.stdout.is_active() => {}
                () = self.stderr.take_in(), if self.stderr.is_active() => {}
            }
        }
    }

    /// Takes in what comes until nobody holds the pipes. Cancel safe.
    pub(super) async fn drain(&mut self) {
        while self.is_open() {
            self.take_in().await;
        }
    }

    /// The same for the output of a command that has ended: others that hold its pipes are not waited for.
    pub(super) async fn drain_briefly(&mut self) {
        let deadline = Instant::now() + DRAIN_MAX;
        while self.is_open() {
            let until = deadline.min(Instant::now() + DRAIN_IDLE);
            // What is there already is read before the time is looked at.
            if timeout_at(until, self.take_in()).await.is_err() || Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Brings what is to be spooled into its files.
    pub(super) async fn settle(&mut self) {
        let settled = async {
            self.stdout.settle().await;
            self.stderr.settle().await;
        };
        if timeout(SPOOL_WAIT, settled).await.is_err() {
            tracing::warn!("the end of a command's output did not get into the spool in time");
        }
    }

    /// The pipes that somebody still holds.
    pub(super) fn take_pipes(&mut self) -> Pipes {
        Pipes(self.stdout.pipe.take(), self.stderr.pipe.take())
    }

    async fn take_in(&mut self) {
        tokio::select! {
            () = self.stdout.take_in(), if self.stdout.is_active() => {}
            () = self.stderr.take_in(), if self.stderr.is_active() => {}
            else => {}
        }
    }
}

/// The pipes of a command that has ended, still held by others.
#[derive(Debug)]
pub(super) struct Pipes(Option<ChildStdout>, Option<ChildStderr>);

impl Pipes {
    /// Reads on and throws away what others write into them, until nobody holds them.
    pub(super) async fn discard(self) {
        tokio::join!(discard(self.0), discard(self.1));
    }
}

impl View {
    /// What was kept of standard output and of standard error so far.
    pub fn now(&self) -> (Captured, Captured) {
        (lock(&self.stdout).now(), lock(&self.stderr).now())
    }
}

impl<R: AsyncRead + Unpin> Stream<R> {
    fn new(pipe: Option<R>, caps: Caps, spool: Option<&(Spool, SessionId)>) -> Self {
        let spooler = spool.cloned().map_or(Spooler::Off, |(spool, session)| Spooler::Waits(spool, session));
        Self { pipe, chunk: Vec::new(), capture: Arc::new(Mutex::new(Capture::new(caps))), spooler }
    }

    fn is_active(&self) -> bool {
        self.pipe.is_some() || self.spooler.is_behind()
    }

    /// One read, or its end, or one step of spooling what was read. Cancel safe: what was read is kept in the same poll.
    async fn take_in(&mut self) {
        if self.spooler.is_behind() {
            return self.spooler.advance(&self.capture).await;
        }
        let Some(pipe) = &mut self.pipe else { return };
        self.chunk.resize(CHUNK_BYTES, 0);
        match pipe.read(&mut self.chunk).await {
            Ok(0) => {
                self.pipe = None;
                self.chunk = Vec::new();
            }
            Ok(count) => {
                let mut capture = lock(&self.capture);
                self.spooler.take(&self.chunk[..count], &mut capture);
                capture.push(&self.chunk[..count]);
            }
            Err(error) => {
                tracing::warn!(%error, "could not read a command's output");
                self.pipe = None;
            }
        }
    }

    async fn settle(&mut self) {
        while self.spooler.is_behind() {
            self.spooler.advance(&self.capture).await;
        }
        self.spooler.flush(&self.capture).await;
        self.spooler = Spooler::Off;
    }
}

fn lock(capture: &Shared) -> MutexGuard<'_, Capture> {
    capture.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn discard(pipe: Option<impl AsyncRead + Unpin>) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(1..) = pipe.read(&mut chunk).await {
        tokio::time::sleep(DISCARD_PAUSE).await;
    }
}

/// Writes a stream into a file of the spool, from its start on, once it does not fit into the head that memory keeps.
#[derive(Debug)]
enum Spooler {
    /// No spool, or the file is full, or failed.
    Off,
    Waits(Spool, SessionId),
    Opens {
        opening: JoinHandle<io::Result<(Place, File)>>,
        /// Read and not yet written.
        pending: Vec<u8>,
        room: u64,
    },
    Writes {
        file: tokio::fs::File,
        /// Until this is dropped the file counts with all that it may get.
        _place: Place,
        pending: Vec<u8>,
        room: u64,
    },
}

impl Spooler {
    /// Whether something waits to be written; nothing more is read until it is.
    fn is_behind(&self) -> bool {
        match self {
            Self::Off | Self::Waits(..) => false,
            Self::Opens { .. } => true,
            Self::Writes { pending, .. } => !pending.is_empty(),
        }
    }

    /// Takes what was read, before the capture does.
    fn take(&mut self, bytes: &[u8], capture: &mut Capture) {
        if let Self::Waits(spool, session) = self {
            if !capture.overflows_with(bytes.len()) {
                return;
            }
            let room = spool.bytes_max();
            let (spool, session) = (spool.clone(), session.clone());
            let opening = tokio::task::spawn_blocking(move || spool.create(&session));
            let pending = [capture.head(), bytes].concat();
            *self = Self::Opens { opening, pending, room };
        } else if let Self::Writes { pending, room, .. } = self {
            let fits = usize::try_from(*room).unwrap_or(usize::MAX).min(bytes.len());
            pending.extend_from_slice(&bytes[..fits]);
            if fits < bytes.len()
                && let Some(spooled) = &mut capture.spooled
            {
                spooled.is_whole = false;
            }
        }
    }

    /// One step. Cancel safe.
    async fn advance(&mut self, capture: &Shared) {
        match self {
            Self::Off | Self::Waits(..) => {}
            Self::Opens { opening, pending, room } => {
                let opened = opening.await.unwrap_or_else(|error| Err(io::Error::other(error)));
                match opened {
                    Ok((place, file)) => {
                        let fits = usize::try_from(*room).unwrap_or(usize::MAX).min(pending.len());
                        let is_whole = fits == pending.len();
                        pending.truncate(fits);
                        lock(capture).spooled = Some(Spooled { path: place.path.clone(), is_whole });
                        let (pending, file) = (std::mem::take(pending), tokio::fs::File::from_std(file));
                        *self = Self::Writes { file, _place: place, pending, room: *room };
                    }
                    Err(error) => self.fail(&error, capture),
                }
            }
            Self::Writes { file, pending, room, .. } => match file.write(pending).await {
                Ok(count) => {
                    pending.drain(..count);
                    *room -= count as u64;
                }
                Err(error) => self.fail(&error, capture),
            },
        }
    }

    async fn flush(&mut self, capture: &Shared) {
        if let Self::Writes { file, .. } = self
            && let Err(error) = file.flush().await
        {
            self.fail(&error, capture);
        }
    }

    /// Output goes on without the file: what is in memory is told.
    fn fail(&mut self, error: &io::Error, capture: &Shared) {
        tracing::warn!(%error, "a command's output can't be spooled");
        lock(capture).spooled = None;
        *self = Self::Off;
    }
}
