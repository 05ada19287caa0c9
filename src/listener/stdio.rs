//! Standard input and output as one stream.
//!
//! Each direction has a thread of its own, because the descriptors may be pipes, files, terminals or sockets that we
//! share with others, so that making them non-blocking would change what those others see. A thread that waits for a
//! peer dies with the process and delays nothing; the runtime never blocks. Hand-over is by one bounded buffer each.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rustix::event::{PollFd, PollFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What each direction holds at most between the thread and the task, twice.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// The first descriptor above the standard ones.
const PRIVATE_FD_MIN: i32 = 3;

/// Our own standard input and output.
#[derive(Debug)]
pub struct Stdio {
    inbound: Arc<Shared>,
    outbound: Arc<Shared>,
}

/// One direction: who fills and who empties take turns.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the thread.
    turn: Condvar,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with a waiter of its own")]
struct State {
    buffer: Vec<u8>,
    /// Inbound: how much of `buffer` the task has read.
    taken: usize,
    /// Outbound: the thread is writing what it took.
    writing: bool,
    /// Outbound: somebody wants to know whether the peer still reads.
    probed: bool,
    /// Nothing more will be put in.
    ended: bool,
    /// The thread is done and its descriptor closed.
    closed: bool,
    error: Option<io::Error>,
    waker: Option<Waker>,
}

impl Stdio {
    /// Takes standard input and output away from everybody else: private copies are made, descriptor 0 becomes
    /// `/dev/null` and descriptor 1 becomes standard error, so that nothing that prints can get between the frames.
    /// Called once, at start, before other threads print.
    ///
    /// # Errors
    /// When descriptors or threads are not to be had.
    pub fn claim() -> io::Result<Self> {
        let input = rustix::io::fcntl_dupfd_cloexec(io::stdin(), PRIVATE_FD_MIN)?;
        let output = rustix::io::fcntl_dupfd_cloexec(io::stdout(), PRIVATE_FD_MIN)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        Self::over(input, output)
    }

    fn over(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        let stdio = Self { inbound: Arc::default(), outbound: Arc::default() };
        let inbound = Arc::clone(&stdio.inbound);
        std::thread::Builder::new()
            .name("dshd-stdin".to_owned())
            .spawn(move || inbound.fill_from(&mut File::from(input)))?;
        let outbound = Arc::clone(&stdio.outbound);
        std::thread::Builder::new()
            .name("dshd-stdout".to_owned())
            .spawn(move || outbound.empty_into(File::from(output)))?;
        Ok(stdio)
    }
}

/// What is in flight outward is still written as long as the process lives; [`AsyncWrite::poll_shutdown`] waits for it.
impl Drop for Stdio {
    fn drop(&mut self) {
        self.inbound.end();
        self.outbound.end();
    }
}

impl Shared {
    /// The state is whole between any two statements that could panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().ended = true;
        self.turn.notify_one();
    }

    fn wait_while(&self, condition: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        self.turn.wait_while(self.lock(), condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// The inbound thread.
    fn fill_from(&self, input: &mut File) {
        let mut chunk = vec![0; BUFFER_BYTES_MAX];
        loop {
            let read = patiently(input, PollFlags::IN, |mut input| input.read(&mut chunk));
            let mut state = self.wait_while(|state| !state.ended && state.taken < state.buffer.len());
            match read {
                _ if state.ended => return,
                Ok(0) => state.ended = true,
                Ok(count) => {
                    state.buffer.clear();
                    state.taken = 0;
                    state.buffer.extend_from_slice(&chunk[..count]);
                }
                Err(error) => {
                    state.error = Some(error);
                    state.ended = true;
                }
            }
            state.wake();
            if state.ended {
                return;
            }
        }
    }

    /// The outbound thread.
    fn empty_into(&self, output: File) {
        let mut chunk = Vec::new();
        loop {
            let mut state = self.wait_while(|state| !state.ended && state.buffer.is_empty() && !state.probed);
            if std::mem::take(&mut state.probed) && is_gone(output.as_fd()) {
                state.fail(io::ErrorKind::BrokenPipe.into());
            }
            if state.buffer.is_empty() {
                if state.ended {
                    break;
                }
                continue;
            }
            std::mem::swap(&mut state.buffer, &mut chunk);
            state.writing = true;
            state.wake();
            drop(state);

            let written = write_all(&output, &chunk);
            chunk.clear();
            let mut state = self.lock();
            state.writing = false;
            if let Err(error) = written {
                state.fail(error);
            }
            state.wake();
        }
        drop(output);
        let mut state = self.lock();
        state.closed = true;
        state.wake();
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends the outward direction: what is left of it has nobody to go to.
    fn fail(&mut self, error: io::Error) {
        self.error = Some(error);
        self.ended = true;
        self.buffer.clear();
        self.wake();
    }

    fn wait<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// The error that ended this direction: whole the first time, its kind from then on.
    fn failure(&mut self) -> Option<io::Error> {
        let kind = self.error.as_ref()?.kind();
        self.error.replace(kind.into())
    }
}

impl AsyncRead for Stdio {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.inbound.lock();
        let ready = state.buffer.len() - state.taken;
        if ready > 0 {
            let count = ready.min(buffer.remaining());
            buffer.put_slice(&state.buffer[state.taken..state.taken + count]);
            state.taken += count;
            if state.taken == state.buffer.len() {
                self.inbound.turn.notify_one();
            }
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = state.failure() {
            return Poll::Ready(Err(error));
        }
        if state.ended {
            return Poll::Ready(Ok(()));
        }
        state.wait(context)
    }
}

/// An empty write asks whether the peer still reads; a later one tells.
impl AsyncWrite for Stdio {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.outbound.lock();
        if let Some(error) = state.failure() {
            return Poll::Ready(Err(error));
        }
        if state.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            state.probed = true;
            self.outbound.turn.notify_one();
            return Poll::Ready(Ok(0));
        }
        let room = BUFFER_BYTES_MAX - state.buffer.len();
        if room == 0 {
            return state.wait(context);
        }
        let count = bytes.len().min(room);
        state.buffer.extend_from_slice(&bytes[..count]);
        self.outbound.turn.notify_one();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.outbound.lock();
        if let Some(error) = state.failure() {
            return Poll::Ready(Err(error));
        }
        if state.buffer.is_empty() && !state.writing {
            return Poll::Ready(Ok(()));
        }
        state.wait(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbound.end();
        let mut state = self.outbound.lock();
        if let Some(error) = state.failure() {
            return Poll::Ready(Err(error));
        }
        if state.closed {
            return Poll::Ready(Ok(()));
        }
        state.wait(context)
    }
}

fn write_all(output: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match patiently(output, PollFlags::OUT, |mut output| output.write(bytes))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// Repeats a call that was interrupted, or that would block because somebody made the descriptor non-blocking.
fn patiently(
    file: &File,
    wanted: PollFlags,
    mut call: impl FnMut(&File) -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match call(file) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for(file.as_fd(), wanted)?,
            result => return result,
        }
    }
}

fn wait_for(fd: BorrowedFd<'_>, wanted: PollFlags) -> io::Result<()> {
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, wanted)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether nobody is at the other end any more. Does not wait.
fn is_gone(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&at_once)).is_ok()
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn stdio() -> (Stdio, PipeWriter, PipeReader) {
        let (input, to_us) = io::pipe().unwrap();
        let (from_us, output) = io::pipe().unwrap();
        (Stdio::over(input.into(), output.into()).unwrap(), to_us, from_us)
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_megabyte_goes_through_both_ways_unchanged() {
        let (mut stdio, mut to_us, mut from_us) = stdio();
        let sent = pattern(1 << 20);
        let copy = sent.clone();
        let feeder = std::thread::spawn(move || to_us.write_all(&copy).unwrap());
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            from_us.read_to_end(&mut got).unwrap();
            got
        });
        let mut got = Vec::new();
        timeout(SOON, stdio.read_to_end(&mut got)).await.unwrap().unwrap();
        assert!(got == sent);
        timeout(SOON, stdio.write_all(&got)).await.unwrap().unwrap();
        timeout(SOON, stdio.shutdown()).await.unwrap().unwrap();
        feeder.join().unwrap();
        assert!(reader.join().unwrap() == sent);
    }

    #[tokio::test]
    async fn end_of_input_is_read_as_the_end() {
        let (mut stdio, mut to_us, _from_us) = stdio();
        to_us.write_all(b"last words").unwrap();
        drop(to_us);
        let mut got = String::new();
        timeout(SOON, stdio.read_to_string(&mut got)).await.unwrap().unwrap();
        assert_eq!(got, "last words");
        assert_eq!(timeout(SOON, stdio.read(&mut [0; 8])).await.unwrap().unwrap(), 0);
    }

    /// A reader that pauses froze the event loop of others: the write blocked the thread that ran everything.
    #[tokio::test]
    async fn a_peer_that_does_not_read_holds_back_its_writer_and_nothing_else() {
        let (mut stdio, _to_us, mut from_us) = stdio();
        let sent = pattern(1 << 20);
        let wrote = timeout(Duration::from_millis(50), stdio.write_all(&sent)).await;
        assert!(wrote.is_err(), "a megabyte must not fit into the buffers");
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            from_us.read_to_end(&mut got).unwrap();
            got
        });
        timeout(SOON, stdio.shutdown()).await.unwrap().unwrap();
        let got = reader.join().unwrap();
        assert!(got == sent[..got.len()]);
    }

    #[tokio::test]
    async fn flush_waits_until_the_peer_can_read_it() {
        let (mut stdio, _to_us, mut from_us) = stdio();
        stdio.write_all(b"answer").await.unwrap();
        timeout(SOON, stdio.flush()).await.unwrap().unwrap();
        rustix::io::ioctl_fionbio(&from_us, true).unwrap();
        let mut got = [0; 6];
        from_us.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"answer");
    }

    #[tokio::test]
    async fn a_peer_that_closed_its_end_is_a_broken_pipe() {
        let (mut stdio, _to_us, from_us) = stdio();
        drop(from_us);
        stdio.write_all(b"x").await.unwrap();
        for _ in 0..2 {
            let error = timeout(SOON, stdio.flush()).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    /// A client that was killed in the middle of a turn that says nothing kept the process alive.
    #[tokio::test]
    async fn a_peer_that_is_gone_is_found_out_without_writing() {
        let (mut stdio, _to_us, from_us) = stdio();
        let asked = timeout(SOON, stdio.write(b"")).await.unwrap().unwrap();
        assert_eq!(asked, 0, "the peer is there");
        drop(from_us);
        let gone = async {
            loop {
                if let Err(error) = stdio.write(b"").await {
                    return error;
                }
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(timeout(SOON, gone).await.unwrap().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn descriptors_that_somebody_made_non_blocking_work() {
        let (input, mut to_us) = io::pipe().unwrap();
        let (mut from_us, output) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&input, true).unwrap();
        rustix::io::ioctl_fionbio(&output, true).unwrap();
        let mut stdio = Stdio::over(input.into(), output.into()).unwrap();
        let sent = pattern(300_000);
        let expected = sent.clone();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            from_us.read_to_end(&mut got).unwrap();
            assert!(got == expected);
        });
        timeout(SOON, stdio.write_all(&sent)).await.unwrap().unwrap();
        timeout(SOON, stdio.shutdown()).await.unwrap().unwrap();
        reader.join().unwrap();
        to_us.write_all(b"late").unwrap();
        let mut got = [0; 4];
        timeout(SOON, stdio.read_exact(&mut got)).await.unwrap().unwrap();
        assert_eq!(&got, b"late");
    }
    /// A library's print got between the frames. Runs in a process of its own, since the descriptors are the process's.
    #[test]
    fn what_is_printed_after_the_claim_goes_to_standard_error() {
        const INNER: &str = "DSHD_TEST_STDIO";
        const NAME: &str = "listener::stdio::tests::what_is_printed_after_the_claim_goes_to_standard_error";
        if std::env::var_os(INNER).is_some() {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            return runtime.block_on(async {
                let mut stdio = Stdio::claim().unwrap();
                io::stdout().write_all(b"noise\n").unwrap();
                let mut request = String::new();
                stdio.read_to_string(&mut request).await.unwrap();
                stdio.write_all(format!("answer to {request}").as_bytes()).await.unwrap();
                stdio.shutdown().await.unwrap();
                assert_eq!(
                    io::stdin().read(&mut [0; 8]).unwrap(),
                    0,
                    "standard input is empty for all others"
                );
            });
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(INNER, "1")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"ping").unwrap();
        let output = child.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        assert!(out.ends_with("answer to ping") && !out.contains("noise"), "{out}");
        assert!(err.contains("noise"), "{err}");
    }
}
