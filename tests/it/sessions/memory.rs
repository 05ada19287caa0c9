//! Sessions leave memory when they are idle long, or when there are too many, and come back as they were.

use serde_json::{Value, json};

use crate::stage::{events, leave};
use crate::support::{Daemon, Peer, within};

const SCRIPT: [&str; 3] = [
    r#"{"prompt":"stall","parts":[{"text":["one "]},{"stall":true}]}"#,
    r#"{"prompt":"large","parts":[{"text":["0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"],"repeat":8000}]}"#,
    r#"{"parts":[{"text":["a ","b"]}]}"#,
];

async fn loaded(peer: &mut Peer) -> Vec<String> {
    let status = peer.call("server/status", json!({})).await;
    let ids = status["sessions"].as_array().unwrap().iter();
    ids.map(|one| one["sessionId"].as_str().unwrap().to_owned()).collect()
}

async fn until_loaded(peer: &mut Peer, expected: &[&str]) {
    within("sessions to leave memory", async {
        loop {
            let mut now = loaded(peer).await;
            now.sort();
            if now == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn history(peer: &mut Peer, session: &str) -> Vec<Value> {
    let read = peer.call("session/read", json!({ "sessionId": session, "limit": 1000 })).await;
    read["events"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_idle_session_leaves_memory_and_comes_back_and_who_follows_it_notices_nothing() {
    let daemon = Daemon::scripted(&SCRIPT, "[sessions]\nidle_unload = \"100ms\"");
    let mut peer = daemon.peer().await;
    let mut follower = daemon.peer().await;
    peer.prompt("s", "x").await;
    follower.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    for round in 0..4 {
        until_loaded(&mut peer, &[]).await;
        let before = history(&mut peer, "s").await;
        assert_eq!(peer.prompt("s", &format!("round {round}")).await["status"], "ok");
        let now = history(&mut peer, "s").await;
        assert_eq!(now[..before.len()], before, "what was there is there");
        assert_eq!(now[before.len()]["type"], "session/opened", "a new life");
    }
    let all = history(&mut peer, "s").await;
    let last = all.last().unwrap()["seq"].as_u64().unwrap();
    let mut told = Vec::new();
    while told.last().is_none_or(|message: &Value| message["params"]["event"]["seq"] != last) {
        told.push(follower.message().await);
    }
    assert_eq!(events(&told).into_iter().cloned().collect::<Vec<_>>(), all, "each event once, in order");
    peer.take_aside();
    follower.leave_unread();
    leave(peer).await;
}

#[tokio::test]
async fn what_works_stays_in_memory_however_long() {
    let daemon = Daemon::scripted(&SCRIPT, "[sessions]\nidle_unload = \"50ms\"");
    let mut peer = daemon.peer().await;
    peer.send_prompt("works", "stall").await;
    peer.event("assistant/chunk").await;
    peer.prompt("idle", "x").await;
    until_loaded(&mut peer, &["works"]).await;
    assert_eq!(peer.call("session/cancel", json!({ "sessionId": "works" })).await["cancelled"], true);
    until_loaded(&mut peer, &[]).await;
    peer.take_aside();
    peer.leave_unread();
}

#[tokio::test]
async fn above_the_limit_the_least_recently_used_goes_first_and_one_that_works_never() {
    let daemon = Daemon::scripted(&SCRIPT, "[limits]\nloaded_sessions = 3");
    let mut peer = daemon.peer().await;
    peer.send_prompt("works", "stall").await;
    peer.event("assistant/chunk").await;
    for session in ["a", "b"] {
        peer.prompt(session, "x").await;
    }
    peer.prompt("a", "touched again").await;
    peer.prompt("c", "x").await;
    until_loaded(&mut peer, &["a", "c", "works"]).await;
    // Where all work there is no room for another.
    peer.take_aside();
    for session in ["a", "c"] {
        peer.send_prompt(session, "stall").await;
        peer.take(|message| {
            message["params"]["sessionId"] == session && message["params"]["event"]["transient"] == true
        })
        .await;
    }
    let error = peer.refused("session/create", json!({ "sessionId": "d" })).await;
    assert_eq!(
        (&error["data"]["kind"], &error["data"]["limit"]),
        (&json!("limit_exceeded"), &json!("loaded_sessions"))
    );
    peer.take_aside();
    peer.leave_unread();
}

/// One unload at a time was asked for, so that a burst was refused although all sessions were idle.
#[tokio::test]
async fn a_burst_of_new_sessions_finds_room_while_the_old_ones_are_idle() {
    let daemon = Daemon::scripted(&SCRIPT, "[limits]\nloaded_sessions = 8\nin_flight = 100");
    let mut peer = daemon.peer().await;
    for at in 0..8 {
        peer.prompt(&format!("old{at}"), "x").await;
    }
    let ids: Vec<u64> = {
        let mut ids = Vec::new();
        for at in 0..8 {
            ids.push(peer.send_prompt(&format!("new{at}"), "x").await);
        }
        ids
    };
    for id in ids {
        let reply = peer.reply(id).await;
        assert_eq!(reply["result"]["status"], "ok", "{reply}");
    }
    within("the old ones to leave memory", async {
        while loaded(&mut peer).await.len() > 8 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    peer.take_aside();
    leave(peer).await;
}

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

#[tokio::test]
async fn the_memory_of_sessions_returns_when_they_leave() {
    let daemon = Daemon::scripted(&SCRIPT, "[sessions]\nidle_unload = \"1s\"");
    let mut peer = daemon.peer_without_deltas().await;
    peer.prompt("warm", "large").await;
    peer.take_aside();
    let before = resident_kib(daemon.pid());
    let mut rounds = Vec::new();
    for round in ["a", "b"] {
        for at in 0..60 {
            peer.prompt(&format!("{round}{at}"), "large").await;
            peer.take_aside();
        }
        let full = resident_kib(daemon.pid());
        until_loaded(&mut peer, &[]).await;
        rounds.push((full, resident_kib(daemon.pid())));
    }
    eprintln!(
        "resident: {before} KiB; with 60 sessions of half a megabyte, and without them, twice: {rounds:?} KiB"
    );
    // The allocator keeps some of it for what comes; what comes then takes that and no more.
    let returned = rounds.iter().map(|(full, after)| full.saturating_sub(*after)).max().unwrap();
    assert!(returned > rounds[0].0.saturating_sub(before) / 8, "{before} {rounds:?}");
    assert!(rounds[1].0 < rounds[0].0 + rounds[0].0 / 6, "{before} {rounds:?}");
    leave(peer).await;
}
