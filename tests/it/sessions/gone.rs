//! Clients that go: what becomes of their turns is what they said, and nobody else notices.

use std::fs;

use serde_json::json;

use super::{ANSWER, STALL, WAIT_FOR_GO, prompt, queued};
use crate::support::{Daemon, Peer};

async fn follower(daemon: &Daemon, session: &str) -> Peer {
    let mut peer = daemon.peer().await;
    let subscribed = peer.call("session/subscribe", json!({ "sessionId": session, "since": -1 })).await;
    assert_eq!(subscribed["status"], "running", "{subscribed}");
    peer
}

#[tokio::test]
async fn a_session_goes_on_without_the_client_that_prompted_it() {
    let daemon = Daemon::scripted(&[WAIT_FOR_GO, ANSWER], "");
    let mut first = daemon.peer().await;
    first.send_prompt("s", "go").await;
    first.event("tool/call").await;
    first.leave_unread();
    drop(first);
    let mut second = follower(&daemon, "s").await;
    // The daemon has seen the first one leave.
    loop {
        let status = second.call("server/status", json!({})).await;
        if status["counts"]["connections"] == 1 {
            break;
        }
    }
    fs::write(daemon.home().work().join("go"), "").unwrap();
    let end = second.event("turn/end").await;
    assert_eq!(end["event"]["data"]["reason"]["kind"], "completed", "{end}");
    assert_eq!(second.prompt("s", "hello").await["status"], "ok");
    second.take_aside();
}

#[tokio::test]
async fn a_client_that_asked_for_it_takes_its_turn_and_its_queued_prompts_with_it() {
    let daemon = Daemon::scripted(&[STALL, ANSWER], "");
    let mut first = daemon.connect().await;
    first.initialize(json!({ "cwd": daemon.home().work(), "onDisconnect": "abort" })).await;
    first.send_prompt("s", "stall").await;
    first.event("assistant/chunk").await;
    let mut second = follower(&daemon, "s").await;
    let theirs = second.send("session/prompt", queued("s", "stays")).await;
    first.send("session/prompt", queued("s", "goes")).await;
    let goes = |message: &serde_json::Value| {
        message.pointer("/params/event/data/inserted/0/content/0/text").is_some_and(|text| text == "goes")
    };
    let inserted = second.take(goes).await;
    let goes = inserted["params"]["event"]["data"]["inserted"][0]["id"].clone();
    first.leave_unread();
    drop(first);
    let end = second.event("turn/end").await;
    assert_eq!(end["event"]["data"]["reason"], json!({ "kind": "aborted", "reason": { "kind": "user" } }));
    let reply = second.reply(theirs).await;
    assert_eq!(reply["result"]["status"], "ok", "the slot was freed and the other's prompt ran: {reply}");
    let read = super::read_all(&mut second, "s").await;
    assert_eq!(super::prompts_run(&read), ["stall", "stays"], "{goes} was taken out");
    assert!(read.iter().any(|event| event["data"]["outcome"] == "canceled"));
    second.take_aside();
}

#[tokio::test]
async fn a_client_that_vanishes_in_the_middle_of_a_creation_leaves_a_working_session() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    for at in 0..20 {
        let mut peer = daemon.peer().await;
        peer.send("session/prompt", prompt(&format!("s{at}"), "hello")).await;
        peer.leave_unread();
        drop(peer);
    }
    let mut peer = daemon.peer().await;
    for at in 0..20 {
        let session = format!("s{at}");
        let id = peer.send("session/prompt", queued(&session, "hello again")).await;
        assert_eq!(peer.reply(id).await["result"]["status"], "ok");
        let read = super::read_all(&mut peer, &session).await;
        crate::support::assert_dense(&read);
    }
    peer.take_aside();
    peer.finish().await;
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn a_hundred_connections_leave_no_file() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    for at in 0..100 {
        let mut peer = daemon.peer().await;
        if at % 4 == 0 {
            let session = format!("s{at}");
            peer.call("session/create", json!({ "sessionId": session })).await;
            let got = peer.call("session/working-directory/get", json!({ "sessionId": session })).await;
            assert_eq!(got["cwd"], daemon.home().work().to_str().unwrap());
        }
        if at % 10 == 0 {
            peer.call("session/list", json!({})).await;
            peer.refused("session/resume", json!({ "sessionId": "never" })).await;
        }
        peer.finish().await;
    }
    let sessions = daemon.home().data().join("sessions");
    let files = fs::read_dir(&sessions).map_or(0, Iterator::count);
    assert_eq!(files, 0, "in {}", sessions.display());
}
