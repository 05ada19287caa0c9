//! One data directory, one daemon: locks, the socket's owner, `daemon.json`.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::ANSWER;
use crate::support::{Daemon, Home};

fn announced(home: &Home) -> Value {
    serde_json::from_slice(&fs::read(home.data().join("daemon.json")).unwrap()).unwrap()
}

#[tokio::test]
async fn a_daemon_says_who_it_is_and_takes_that_back_at_the_end() {
    let home = Home::new();
    home.scripted(&[ANSWER], "[tools]\nallow_unsandboxed_remote = true");
    let socket = format!("unix:{}", home.socket().display());
    let daemon = Daemon::start_in(&home, ["--listen", &socket, "--listen", "tcp:127.0.0.1:0"]);
    let file = announced(&home);
    assert_eq!(file["pid"], daemon.pid());
    assert_eq!(file["version"], env!("CARGO_PKG_VERSION"));
    assert!(file["startedAt"].as_str().unwrap().ends_with('Z'), "{file}");
    let tcp = daemon.tcp();
    assert!(!tcp.ends_with(":0"), "the real port: {tcp}");
    assert_eq!(
        file["listeners"],
        json!([{ "kind": "unix", "address": socket }, { "kind": "tcp", "address": format!("tcp:{tcp}") }])
    );
    assert_eq!(fs::metadata(home.data().join("daemon.json")).unwrap().mode() & 0o777, 0o600);
    for address in [socket, format!("tcp:{tcp}")] {
        daemon.wait_for_line(&format!("ready {address}"));
    }
    let mut peer = daemon.peer().await;
    let status = peer.call("server/status", json!({})).await;
    assert_eq!(status["pid"], file["pid"]);
    assert_eq!(
        status["listeners"],
        json!(file["listeners"].as_array().unwrap().iter().map(|one| &one["address"]).collect::<Vec<_>>())
    );
    peer.finish().await;
    assert!(daemon.stop().await.success());
    assert!(!home.data().join("daemon.json").exists());
    assert!(!home.socket().exists());
}

#[tokio::test]
async fn a_second_daemon_names_the_first_and_leaves_it_reachable() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let second = daemon.home().run(["serve"]).await.expect_code(75);
    assert!(second.stderr.contains(&daemon.pid().to_string()), "{}", second.stderr);
    assert!(second.stderr.contains("help:"), "{}", second.stderr);
    assert_eq!(announced(daemon.home())["pid"], daemon.pid());
    let mut peer = daemon.peer().await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    peer.take_aside();
}

/// A liveness check by ping took a slow daemon for dead, and unlinked its socket.
#[tokio::test]
async fn a_daemon_that_stands_still_is_not_dead() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    daemon.signal(Signal::STOP);
    daemon.home().run(["serve"]).await.expect_code(75);
    // Nor is its socket for the taking by who has other data.
    let other = daemon.home().path("other-data");
    let socket = format!("unix:{}", daemon.home().socket().display());
    let mut command = daemon.home().dshd(["serve", "--listen", &socket]);
    command.env("DSHD_DATA_DIR", &other);
    let ran = crate::support::finish(command, b"").await.expect_code(75);
    assert!(ran.stderr.contains("dshd.sock"), "{}", ran.stderr);
    daemon.signal(Signal::CONT);
    daemon.peer().await.finish().await;
}

#[tokio::test]
async fn what_a_killed_daemon_left_is_in_nobodys_way() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let home = daemon.home().clone();
    let pid = daemon.pid();
    daemon.kill().await;
    assert!(home.socket().exists());
    assert_eq!(announced(&home)["pid"], pid, "nobody was there to remove it");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    assert_eq!(announced(&home)["pid"], daemon.pid());
    let mut peer = daemon.peer().await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    peer.take_aside();
    peer.finish().await;
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn a_socket_that_another_has_put_in_our_place_stays() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let socket = daemon.home().socket();
    fs::remove_file(&socket).unwrap();
    let _others = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let home = daemon.home().clone();
    assert!(daemon.stop().await.success());
    assert!(home.socket().exists());
}
