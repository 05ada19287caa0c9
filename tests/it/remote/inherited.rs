//! Sockets that a service manager has bound and hands over.

use std::os::fd::OwnedFd;

use serde_json::json;
use tokio::process::Command;

use super::{ANSWER, CONSENT, create_token};
use crate::support::{Daemon, Home, Peer, finish};

/// `dshd serve` as a service manager starts it, with one socket under a name.
pub(super) fn handed(home: &Home, name: &str, socket: OwnedFd) -> Command {
    let template = home.dshd([] as [&str; 0]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec 3<&0 </dev/null; LISTEN_PID=$$ exec \"$0\" serve", env!("CARGO_BIN_EXE_dshd")])
        .env_clear()
        .envs(template.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env(CONSENT.0, CONSENT.1)
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", name)
        .current_dir(home.work())
        .stdin(socket)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn a_unix_socket_is_served_instead_of_our_own_and_stays_when_we_go() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let path = home.path("handed.sock");
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let daemon = Daemon::spawn(&home, handed(&home, "dshd.socket", socket.into()));
    assert!(!home.socket().exists(), "none of ours was bound");
    let mut peer = Peer::unix(&path).await;
    peer.initialize(json!({ "cwd": home.work() })).await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    peer.take_aside();
    peer.finish().await;
    assert!(daemon.stop().await.success());
    assert!(path.exists(), "its path is the manager's");
}

#[tokio::test]
async fn a_tcp_socket_is_served_beside_our_unix_socket_and_needs_a_token_as_any() {
    let home = Home::new();
    home.scripted(&[ANSWER], "[[listen]]\nfd = \"mine\"\nmode_max = \"read-only\"");
    let secret = create_token(&home, &["test"]).await;
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let _daemon = Daemon::spawn(&home, handed(&home, "mine", socket.into()));
    let mut peer = Peer::tcp(&address).await;
    peer.call("authenticate", json!({ "token": secret })).await;
    let asked = json!({ "cwd": home.work(), "permissionMode": "workspace-write" });
    let denied = peer.refused("initialize", asked).await;
    assert_eq!(denied["data"]["modeMax"], "read-only", "{denied}");
    peer.finish().await;
}

#[tokio::test]
async fn one_that_is_not_what_it_should_be_is_refused() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let world = || std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    for (name, said) in [
        ("tcp", "dshd tls init"),
        ("tls", "dshd tls init"),
        ("unix", "no Unix socket"),
        ("web", "FileDescriptorName"),
    ] {
        let ran = finish(handed(&home, name, world().into()), b"").await.expect_code(78);
        assert!(ran.stderr.contains(said), "{name}: {}", ran.stderr);
    }
    home.scripted(&[ANSWER], "[[listen]]\nfd = \"other\"");
    let local = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ran = finish(handed(&home, "tcp", local.into()), b"").await.expect_code(78);
    assert!(ran.stderr.contains("FileDescriptorName=other"), "{}", ran.stderr);
}
