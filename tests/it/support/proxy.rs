//! A way to a daemon that is cut: a Unix socket in front of the daemon's own, whose connections end after so many bytes, in
//! the middle of whatever is said.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};

/// How many bytes of the daemon's the n-th connection lets through before it is cut; none: it is not.
type Budget = Box<dyn FnMut(u64) -> Option<u64> + Send>;

/// The proxy; it ends when it is dropped, with its connections.
pub(crate) struct Proxy {
    path: PathBuf,
    shared: Arc<Mutex<Shared>>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    connections: u64,
    open: Vec<AbortHandle>,
}

impl Proxy {
    /// Listens at `path` for the daemon at `daemon`.
    pub(crate) fn start(
        path: PathBuf,
        daemon: PathBuf,
        budget: impl FnMut(u64) -> Option<u64> + Send + 'static,
    ) -> Self {
        let listener = UnixListener::bind(&path).unwrap();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, daemon, Box::new(budget), shared.clone()));
        Self { path, shared, _tasks: tasks }
    }

    /// Where it listens.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.lock().unwrap().connections
    }

    /// Cuts every connection that is open.
    pub(crate) fn cut(&self) {
        self.shared.lock().unwrap().open.drain(..).for_each(|open| open.abort());
    }
}

async fn accept(listener: UnixListener, daemon: PathBuf, mut budget: Budget, shared: Arc<Mutex<Shared>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let mut known = shared.lock().unwrap();
        known.connections += 1;
        let pass = budget(known.connections).unwrap_or(u64::MAX);
        let open = connections.spawn(join(client, daemon.clone(), pass));
        known.open.push(open);
    }
}

/// Joins both until one ends, or the daemon has said as much as it may.
async fn join(client: UnixStream, daemon: PathBuf, mut pass: u64) {
    let Ok(daemon) = UnixStream::connect(daemon).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_daemon, mut to_daemon) = daemon.into_split();
    let up = tokio::io::copy(&mut from_client, &mut to_daemon);
    let down = async {
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = from_daemon.read(&mut buffer).await {
            let part = usize::try_from(pass).unwrap_or(usize::MAX).min(count);
            if to_client.write_all(&buffer[..part]).await.is_err() || part < count {
                return;
            }
            pass -= part as u64;
        }
    };
    tokio::select! {
        _ = up => {}
        () = down => {}
    }
}
