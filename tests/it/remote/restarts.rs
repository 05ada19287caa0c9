//! A service manager holds the socket, so a restart refuses nobody: who connects meanwhile waits and is served.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::ANSWER;
use super::inherited::handed;
use crate::support::{Daemon, Home, number, within};

/// Clients that come, say hello and go, over and over.
const CLIENTS: usize = 8;

/// Comes once: whether it was served. The end of a daemon may cut it; to be refused the connection itself fails the test.
async fn come(path: &Path, hello: &str) -> bool {
    let stream = UnixStream::connect(path).await.expect("the socket is there, and somebody will serve it");
    let (reader, mut writer) = stream.into_split();
    if writer.write_all(hello.as_bytes()).await.is_err() {
        return false;
    }
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.contains("\"id\":2") {
            return line.contains("\"result\"");
        }
    }
    false
}

#[tokio::test]
async fn while_the_daemon_is_started_again_and_again_no_client_is_refused() {
    let by_itself = if std::env::var_os("DSHD_CI").is_some() { 50 } else { 5 };
    let restarts = number("DSHD_RESTARTS").unwrap_or(by_itself);
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let path = home.path("handed.sock");
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let hello: Arc<str> = [
        json!({ "id": 1, "method": "initialize", "params": { "cwd": home.work() } }),
        json!({ "id": 2, "method": "server/ping" }),
    ]
    .map(|line| line.to_string() + "\n")
    .concat()
    .into();
    let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (path, hello, over, served) = (path.clone(), hello.clone(), over.clone(), served.clone());
        clients.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                if come(&path, &hello).await {
                    served.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    for _ in 0..restarts {
        let before = served.load(Ordering::Relaxed);
        let handed = handed(&home, "unix", socket.try_clone().unwrap().into());
        let daemon = Daemon::spawn(&home, handed);
        within("clients that are served", async {
            while served.load(Ordering::Relaxed) < before + CLIENTS as u64 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(daemon.stop().await.success());
    }
    // One more serves those who wait.
    over.store(true, Ordering::Relaxed);
    let daemon = Daemon::spawn(&home, handed(&home, "unix", socket.into()));
    within("the clients' end", async { while clients.join_next().await.transpose().unwrap().is_some() {} })
        .await;
    assert!(daemon.stop().await.success());
}
