//! One data directory, several processes: each session has one writer at a time.

use rustix::process::Signal;
use serde_json::json;

use super::{ANSWER, prompt};
use crate::support::{Daemon, Home, Peer};

async fn stdio(home: &Home, data: &std::path::Path) -> Peer {
    let mut command = home.dshd(["stdio"]);
    command.env("DSHD_DATA_DIR", data);
    let mut peer = Peer::stdio(command);
    peer.initialize(json!({ "cwd": home.work() })).await;
    peer
}

/// The lock was kept by directory, and the same logs were reached through another name.
#[tokio::test]
async fn a_session_has_one_writer_by_whatever_name_its_log_is_reached() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let home = daemon.home().clone();
    let mut peer = daemon.peer().await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    let link = home.path("link");
    std::os::unix::fs::symlink(home.data(), &link).unwrap();

    let mut other = stdio(&home, &link).await;
    let refused = other.refused("session/prompt", prompt("s", "hello")).await;
    assert_eq!(refused["code"], -32006, "{refused}");
    assert_eq!(refused["data"]["kind"], "session_locked");
    assert_eq!(refused["data"]["pid"], daemon.pid());
    // Another session of the same directory is free, and so is reading this one.
    assert_eq!(other.prompt("t", "hello").await["status"], "ok");
    let read = other.call("session/read", json!({ "sessionId": "s" })).await;
    assert!(!read["events"].as_array().unwrap().is_empty());

    peer.call("session/close", json!({ "sessionId": "s" })).await;
    assert_eq!(other.prompt("s", "now me").await["status"], "ok");
    let refused = peer.refused("session/prompt", prompt("s", "me again")).await;
    assert_eq!(refused["data"]["kind"], "session_locked", "{refused}");
    peer.leave_unread();
    other.leave_unread();
    assert_eq!(other.finish().await.unwrap().code(), Some(0));
    assert_eq!(peer.prompt("s", "my turn").await["status"], "ok", "the other one has let go");
}

#[tokio::test]
async fn what_a_killed_process_held_is_free() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let mut first = stdio(&home, &home.data()).await;
    assert_eq!(first.prompt("s", "hello").await["status"], "ok");
    let pid = first.child().id().and_then(|pid| i32::try_from(pid).ok()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    first.leave_unread();
    first.exited().await;
    let mut second = stdio(&home, &home.data()).await;
    assert_eq!(second.prompt("s", "hello").await["status"], "ok");
    second.leave_unread();
    second.finish().await;
    crate::support::assert_dense(&home.logged("s"));
}
