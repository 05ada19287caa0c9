//! The accept loop: it outlives whatever accepting or a peer does wrong.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::admission::{Admission, Permit, Refusal};
use super::tls::Tls;
use super::{Io, Listener};
use crate::auth::peer::PeerInfo;
use crate::metrics::METRICS;
use crate::shutdown::Scope;

/// Pause after a failure that time may mend, such as no free file descriptor.
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);
/// At most one log line about the same trouble in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Refused peers that are given time to read why, how much time, and what they may send meanwhile.
const REFUSED_AT_ONCE_MAX: usize = 16;
const REFUSED_LINGER: Duration = Duration::from_secs(1);
const REFUSED_BYTES_MAX: u64 = 64 * 1024;

/// A peer that was let in.
#[derive(Debug)]
pub struct Accepted {
    /// Its stream.
    pub io: Io,
    /// Who it is.
    pub peer: PeerInfo,
    /// Its place among the connections: kept as long as the connection lives.
    pub permit: Permit,
    /// The certificate, where TLS is to be spoken first.
    tls: Option<Arc<Tls>>,
}

impl Accepted {
    /// Whether the stream is ready to be read. Otherwise [`Accepted::secured`] makes it so.
    pub fn is_ready(&self) -> bool {
        self.tls.is_none()
    }

    /// Waits for the TLS handshake, within the peer's time to authenticate; `None`: the peer is closed.
    pub async fn secured(self, scope: &Scope) -> Option<Self> {
        let Self { io, peer, permit, tls } = self;
        let (Some(tls), Some(terms)) = (&tls, permit.terms()) else {
            return Some(Self { io, peer, permit, tls: None });
        };
        let Io::Tcp(stream) = io else { return None };
        let label = &peer.label;
        let handshake = tokio::select! {
            biased;
            () = scope.draining().cancelled() => return None,
            () = terms.evicted.cancelled() => {
                tracing::debug!(peer = label, "a peer that did not authenticate made room for another");
                return None;
            }
            handshake = tokio::time::timeout_at(terms.deadline, tls.accept(stream)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => return Some(Self { io: Io::Tls(stream), peer, permit, tls: None }),
            Ok(Err(error)) => tracing::info!(peer = label, %error, "a peer's TLS handshake failed"),
            Err(_) => tracing::info!(peer = label, "a peer did not authenticate in time"),
        }
        permit.failed();
        None
    }
}

/// The one line, newline included, that a peer gets who is not let in. Made by the wire's layer.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    /// `unauthenticated`, with help: the peer's user may not connect.
    pub unauthenticated: fn(&PeerInfo) -> Vec<u8>,
    /// `unauthenticated`: the peer is a program that this daemon runs for an agent.
    pub tool: fn() -> Vec<u8>,
    /// `limit_exceeded`, with the bound's name and value.
    pub limit_exceeded: fn(limit: &'static str, max: usize) -> Vec<u8>,
}

/// Never returns.
pub(super) async fn accept_all<F>(
    listener: &Listener,
    admission: &Admission,
    refusals: Refusals,
    scope: &Scope,
    mut on_connection: F,
) where
    F: FnMut(Accepted),
{
    let mut trouble = Trouble::new();
    let mut refused = Refused::new(scope.clone());
    let mut pulse = admission.pulse().part();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = pulse.answer() => continue,
        };
        let (io, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                trouble.handle(&error, listener).await;
                continue;
            }
        };
        trouble.over();
        match admission.admit(&peer) {
            Ok(permit) => {
                METRICS.connections.add(1);
                on_connection(Accepted { io, peer, permit, tls: listener.tls() });
            }
            // Nothing can be said before TLS is spoken.
            Err(_) if listener.tls().is_some() => METRICS.refused.add(1),
            Err(refusal) => refused.send_away(io, &peer, refusal, refusals),
        }
    }
}

/// What a failure of `accept` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// It was about one connection, which is gone.
    NextConnection,
    /// No file descriptor is free.
    Descriptors,
    /// Something else that time may mend.
    Pause,
}

fn remedy(error: &io::Error) -> Remedy {
    match Errno::from_io_error(error) {
        Some(
            Errno::CONNABORTED
            | Errno::CONNRESET
            | Errno::INTR
            | Errno::PROTO
            | Errno::PERM
            | Errno::TIMEDOUT
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NETDOWN,
        ) => Remedy::NextConnection,
        Some(Errno::MFILE | Errno::NFILE) => Remedy::Descriptors,
        Some(_) | None => Remedy::Pause,
    }
}

/// Failures in a row and what is kept against them.
struct Trouble {
    pause: Duration,
    log: LogGate,
    /// A descriptor to give up when none is free, so that a waiting peer is closed instead of left hanging.
    reserve: Option<File>,
}

impl Trouble {
    fn new() -> Self {
        Self { pause: BACK_OFF_MIN, log: LogGate::default(), reserve: open_reserve() }
    }

    fn over(&mut self) {
        self.pause = BACK_OFF_MIN;
    }

    async fn handle(&mut self, error: &io::Error, listener: &Listener) {
        match remedy(error) {
            Remedy::NextConnection => {
                tracing::debug!(%error, "a connection ended before it was accepted");
                // A flood of these must not keep this worker from the other tasks.
                tokio::task::yield_now().await;
                return;
            }
            Remedy::Descriptors => self.close_one_waiting(listener).await,
            Remedy::Pause => {}
        }
        if let Some(suppressed) = self.log.open() {
            tracing::warn!(%error, address = listener.address(), suppressed, "cannot accept connections now");
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(BACK_OFF_MAX);
    }

    async fn close_one_waiting(&mut self, listener: &Listener) {
        drop(self.reserve.take());
        // The peer is there already, so this ends at once; the limit is for one that left meanwhile.
        let accepted = tokio::time::timeout(BACK_OFF_MIN, listener.accept()).await;
        drop(accepted);
        self.reserve = open_reserve();
    }
}

fn open_reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Lets one log line through in [`LOG_INTERVAL`] and counts the others.
#[derive(Default)]
struct LogGate {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogGate {
    /// Whether to log now; how many were held back before.
    fn open(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < LOG_INTERVAL) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Sends peers away that are not let in.
struct Refused {
    scope: Scope,
    log: LogGate,
    lingering: Arc<Semaphore>,
}

impl Refused {
    fn new(scope: Scope) -> Self {
        Self { scope, log: LogGate::default(), lingering: Arc::new(Semaphore::new(REFUSED_AT_ONCE_MAX)) }
    }

    fn send_away(&mut self, io: Io, peer: &PeerInfo, refusal: Refusal, refusals: Refusals) {
        METRICS.refused.add(1);
        let frame = match refusal {
            Refusal::User => (refusals.unauthenticated)(peer),
            Refusal::Tool => (refusals.tool)(),
            Refusal::Limit { limit, max } => (refusals.limit_exceeded)(limit, max),
        };
        if let Some(suppressed) = self.log.open() {
            tracing::warn!(peer = peer.label, ?refusal, suppressed, "refused a connection");
        }
        // A new socket's buffer takes the line whole; a peer that is gone already needs none.
        let told = io.try_write(&frame).is_ok_and(|written| written == frame.len());
        let Ok(slot) = Arc::clone(&self.lingering).try_acquire_owned() else { return };
        if told {
            let drain = self.scope.draining().clone();
            self.scope.spawn(async move {
                let _slot = slot;
                drain.run_until_cancelled(linger(io)).await;
            });
        }
    }
}

/// Closing with unread input resets the connection, which may cost the peer the line that says why. So read a while.
async fn linger(mut io: Io) {
    let read = async {
        io.shutdown().await?;
        tokio::io::copy(&mut io.take(REFUSED_BYTES_MAX), &mut tokio::io::sink()).await
    };
    match tokio::time::timeout(REFUSED_LINGER, read).await {
        Ok(Ok(_)) | Err(_) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a refused peer left"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use tokio::net::UnixStream;
    use tokio::sync::{mpsc, watch};
    use tokio::time::timeout;

    use super::*;
    use crate::auth::peer::PeerKind;
    use crate::config::{Config, Listen};

    const SOON: Duration = Duration::from_secs(10);

    const REFUSALS: Refusals = Refusals {
        unauthenticated: |peer| format!("not you, {}\n", peer.label).into_bytes(),
        tool: || b"not a tool\n".to_vec(),
        limit_exceeded: |limit, max| format!("{limit} {max}\n").into_bytes(),
    };

    struct Running {
        path: PathBuf,
        accepted: mpsc::Receiver<Accepted>,
        scope: Scope,
        _directory: tempfile::TempDir,
    }

    fn run(change: impl FnOnce(&mut Config)) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let mut config = Config::default();
        change(&mut config);
        let listener = Listener::bind(&Listen::unix(&path), &config).unwrap();
        let (_, config) = watch::channel(Arc::new(config));
        let scope = Scope::new();
        let (sender, accepted) = mpsc::channel(64);
        let running = listener.run(Admission::new(config), REFUSALS, scope.clone(), move |accepted| {
            sender.try_send(accepted).unwrap();
        });
        scope.spawn(running);
        Running { path, accepted, scope, _directory: directory }
    }

    async fn connect(path: &Path) -> UnixStream {
        timeout(SOON, UnixStream::connect(path)).await.unwrap().unwrap()
    }

    async fn read_all(stream: &mut UnixStream) -> String {
        let mut text = String::new();
        timeout(SOON, stream.read_to_string(&mut text)).await.unwrap().unwrap();
        text
    }

    #[tokio::test]
    async fn an_accepted_stream_carries_bytes_both_ways() {
        let mut running = run(|_| {});
        let mut client = connect(&running.path).await;
        let mut accepted = timeout(SOON, running.accepted.recv()).await.unwrap().unwrap();
        client.write_all(b"ping").await.unwrap();
        let mut got = [0; 4];
        timeout(SOON, accepted.io.read_exact(&mut got)).await.unwrap().unwrap();
        assert_eq!(&got, b"ping");
        accepted.io.write_all(b"pong").await.unwrap();
        accepted.io.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, "pong");
    }

    /// The peer's own input is unread when we close; without lingering it gets a reset in the line's place.
    #[tokio::test]
    async fn a_peer_over_the_limit_reads_one_line_and_the_end_even_if_it_wrote_first() {
        let mut running = run(|config| {
            config.limits.connections = 1;
            config.limits.connections_per_uid = 0;
        });
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push((
                connect(&running.path).await,
                timeout(SOON, running.accepted.recv()).await.unwrap().unwrap(),
            ));
        }
        let mut client = connect(&running.path).await;
        client.write_all(&[b'x'; 4096]).await.unwrap();
        assert_eq!(read_all(&mut client).await, "connections_per_uid 0\n");
        held.clear();
        let _client = connect(&running.path).await;
        timeout(SOON, running.accepted.recv()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_peer_whose_user_may_not_connect_reads_one_line_and_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let peer = PeerInfo::new(PeerKind::Unix { uid: 4711, pid: None });
        let mut refused = Refused::new(Scope::new());
        refused.send_away(Io::Unix(ours), &peer, Refusal::User, REFUSALS);
        assert_eq!(read_all(&mut theirs).await, "not you, unix:uid=4711\n");
    }

    #[tokio::test]
    async fn refused_peers_that_stay_are_few() {
        let mut refused = Refused::new(Scope::new());
        let peer = PeerInfo::new(PeerKind::Stdio);
        let mut clients = Vec::new();
        for _ in 0..2 * REFUSED_AT_ONCE_MAX {
            let (ours, theirs) = UnixStream::pair().unwrap();
            refused.send_away(Io::Unix(ours), &peer, Refusal::Limit { limit: "l", max: 1 }, REFUSALS);
            clients.push(theirs);
        }
        assert_eq!(refused.scope.len(), REFUSED_AT_ONCE_MAX);
        for client in &mut clients {
            assert_eq!(read_all(client).await, "l 1\n");
        }
    }

    #[tokio::test]
    async fn peers_that_leave_at_once_do_not_end_the_listener() {
        let mut running = run(|config| config.limits.connections_per_uid = 1000);
        for _ in 0..30 {
            drop(connect(&running.path).await);
            drop(timeout(SOON, running.accepted.recv()).await.unwrap().unwrap());
        }
        let _client = connect(&running.path).await;
        timeout(SOON, running.accepted.recv()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn draining_ends_the_listener_and_removes_its_socket() {
        let running = run(|_| {});
        running.scope.drain();
        assert!(running.scope.wait(SOON).await);
        assert!(!running.path.exists());
    }

    /// Accepting ended for good, or span, when no descriptor was free. Runs in a process of its own, since the limit is
    /// the process's.
    #[test]
    fn without_free_descriptors_peers_are_closed_and_accepting_goes_on_when_some_are_free() {
        const INNER: &str = "DSHD_TEST_FEW_DESCRIPTORS";
        const NAME: &str = "listener::accept::tests::without_free_descriptors_peers_are_closed_and_accepting_goes_on_when_some_are_free";
        if std::env::var_os(INNER).is_some() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            return runtime.block_on(run_out_of_descriptors());
        }
        let output = std::process::Command::new("sh")
            .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(INNER, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    async fn run_out_of_descriptors() {
        let mut running = run(|_| {});
        let address = socket2::SockAddr::unix(&running.path).unwrap();
        let clients: Vec<_> = (0..3)
            .map(|_| socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap())
            .collect();
        // The listener's task takes its reserve before it waits.
        tokio::task::yield_now().await;
        let mut taken = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }
        let mut clients = clients.into_iter().map(|client| {
            client.connect(&address).unwrap();
            client.set_nonblocking(true).unwrap();
            UnixStream::from_std(client.into()).unwrap()
        });
        let mut closed = Vec::new();
        for _ in 0..2 {
            let mut client = clients.next().unwrap();
            assert_eq!(read_all(&mut client).await, "", "closed instead of left hanging");
            // Kept, lest it leave a descriptor free.
            closed.push(client);
        }
        assert!(running.accepted.try_recv().is_err());
        taken.clear();
        let _client = clients.next().unwrap();
        timeout(SOON, running.accepted.recv()).await.unwrap().unwrap();
    }

    #[test]
    fn failures_of_one_connection_are_told_from_those_of_the_process() {
        let of = |errno: Errno| remedy(&io::Error::from(errno));
        assert_eq!(of(Errno::CONNABORTED), Remedy::NextConnection);
        assert_eq!(of(Errno::CONNRESET), Remedy::NextConnection);
        assert_eq!(of(Errno::MFILE), Remedy::Descriptors);
        assert_eq!(of(Errno::NFILE), Remedy::Descriptors);
        assert_eq!(of(Errno::NOBUFS), Remedy::Pause);
        assert_eq!(of(Errno::INVAL), Remedy::Pause);
        assert_eq!(remedy(&io::Error::other("?")), Remedy::Pause);
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_gets_one_line_in_ten_seconds() {
        let mut gate = LogGate::default();
        assert_eq!(gate.open(), Some(0));
        for _ in 0..5 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(gate.open(), None);
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(gate.open(), Some(5));
    }
}
