//! Readers beside each other: none can hurt another.

use std::fs;

use serde_json::{Value, json};

use super::{Told, follower, position};
use crate::model_server::chat;
use crate::stage::{Stage, leave};
use crate::support::{Daemon, Peer};

/// Resident memory of a process in KiB.
fn resident_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

/// A megabyte a turn.
const LONG: &str = r#"{"prompt":"long","parts":[{"text":["0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"],"repeat":16000}]}"#;
const SHORT: &str = r#"{"parts":[{"text":["a ","b ","c"]}]}"#;

/// Turns of the session that is read by one and not by the others.
const TURNS: usize = 24;

/// Clients that had stopped reading once stalled everybody, or cost their backlog in memory.
#[tokio::test]
async fn readers_that_stand_still_cost_the_others_nothing_and_miss_nothing() {
    let daemon = Daemon::scripted(&[LONG, SHORT], "[limits]\nwrite_progress = \"5m\"");
    let mut fast = daemon.peer().await;
    assert_eq!(fast.prompt("s", "long").await["status"], "ok");
    let mut stopped = Vec::new();
    for _ in 0..20 {
        let mut peer = daemon.peer().await;
        peer.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
        stopped.push(peer);
    }
    let before = resident_kib(daemon.pid());
    for _ in 1..TURNS {
        assert_eq!(fast.prompt("s", "long").await["status"], "ok");
    }
    let grown = resident_kib(daemon.pid()).saturating_sub(before);
    assert!(grown < 60 * 1024, "{grown} KiB more for {TURNS} MB that twenty readers have not read");
    let status = fast.call("server/status", json!({})).await;
    let lags: Vec<u64> = status["connections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["lagBytes"].as_u64().unwrap())
        .collect();
    assert!(lags.iter().all(|lag| *lag <= 4 << 20), "{lags:?}");
    let mut expected = Told::default();
    for message in fast.take_aside() {
        expected.take(&message, u64::MAX);
    }
    let (_, last) = position(&mut fast, "s").await;
    expected.assert_dense(0);
    for mut peer in stopped {
        let mut told = Told::default();
        told.read_to(&mut peer, last).await;
        assert!(told.events == expected.events, "who stood still was told something else");
        peer.leave_unread();
    }
    fast.leave_unread();
}

#[tokio::test]
async fn a_session_that_streams_without_a_pause_keeps_no_other_from_its_turn() {
    let stage = Stage::new().await;
    let live = stage.live();
    let mut streaming = stage.peer().await;
    streaming.send_prompt("loud", "x").await;
    stage.model.request().await;
    let flood = async {
        let deltas = chat::text("word ").repeat(100);
        loop {
            live.send(deltas.clone()).await;
        }
    };
    let reading = async {
        loop {
            streaming.message().await;
        }
    };
    let mut quiet = stage.peer().await;
    let others = async {
        for _ in 0..20 {
            stage.says(&["a"]);
            assert_eq!(quiet.prompt("quiet", "x").await["status"], "ok");
            quiet.take_aside();
        }
    };
    tokio::select! {
        () = others => {}
        () = flood => {}
        () = reading => {}
    }
    // It has run all the while, and was not at its end.
    assert_eq!(quiet.call("session/cancel", json!({ "sessionId": "loud" })).await["cancelled"], true);
    streaming.leave_unread();
    quiet.finish().await;
}

async fn until(peer: &mut Peer, fits: impl Fn(&Value) -> bool) -> Value {
    let message = peer.take(fits).await;
    peer.take_aside();
    message
}

#[tokio::test]
async fn what_one_does_to_a_session_the_others_on_it_are_told() {
    let stage = Stage::new().await;
    let mut a = stage.peer().await;
    let mut b = stage.peer().await;
    let live = stage.live();
    let running = a.send_prompt("s", "from a").await;
    stage.model.request().await;
    b.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    live.send(chat::text("so far ")).await;
    // In the middle of a step: the text so far comes first.
    let chunk = b.take(|message| message["params"]["event"]["data"]["chunk"]["type"] == "text-delta").await;
    assert_eq!(chunk["params"]["event"]["data"]["chunk"]["text"], "so far ");
    b.take_aside();
    let mut late = stage.peer().await;
    late.call("session/subscribe", json!({ "sessionId": "s" })).await;
    let chunk = late.event("assistant/chunk").await;
    assert_eq!(chunk["event"]["data"]["chunk"]["type"], "block-start");
    let chunk = late.event("assistant/chunk").await;
    assert_eq!(chunk["event"]["data"]["chunk"]["text"], "so far ");
    late.take_aside();
    // One waits, one queues a prompt, one cancels the turn of another.
    let waiting = late.send("session/wait", json!({ "sessionId": "s" })).await;
    stage.says(&["second"]);
    let params = crate::stage::prompt("s", "from b", &json!({ "whenBusy": "queue" }));
    let queued = b.send("session/prompt", params).await;
    until(&mut a, |message| {
        message["params"]["event"]["data"]["inserted"][0]["content"][0]["text"] == "from b"
    })
    .await;
    assert_eq!(late.call("session/cancel", json!({ "sessionId": "s" })).await["cancelled"], true);
    let reply = a.reply(running).await;
    assert_eq!(reply["result"]["reason"], json!({ "kind": "aborted", "reason": { "kind": "user" } }));
    assert_eq!(b.reply(queued).await["result"]["status"], "ok");
    assert_eq!(late.reply(waiting).await["result"], json!({}));
    // A fourth has heard nothing of it, and is told of the end that it asks for.
    let mut stranger = stage.peer().await;
    stranger.expect_silence().await;
    stranger.call("session/close", json!({ "sessionId": "s" })).await;
    for peer in [&mut a, &mut b, &mut late] {
        let closed = peer.notification("session.closed").await;
        assert_eq!(closed, json!({ "sessionId": "s", "cause": "closed" }));
        peer.take_aside();
    }
    for peer in [a, b, late, stranger] {
        leave(peer).await;
    }
}

#[tokio::test]
async fn all_followers_of_one_turn_are_told_the_same() {
    let stage = Stage::with("", "[limits]\nconnections_per_uid = 200").await;
    let mut prompting = stage.peer().await;
    let live = stage.live();
    prompting.send_prompt("s", "x").await;
    stage.model.request().await;
    let mut followers = Vec::new();
    for _ in 0..100 {
        followers.push(follower(&stage, "s").await);
    }
    for at in 0..200 {
        live.send(chat::text(&format!("{at} "))).await;
    }
    live.send(chat::finish("stop") + chat::DONE).await;
    live.end().await;
    prompting.event("turn/end").await;
    prompting.take_aside();
    let (_, last) = position(&mut prompting, "s").await;
    let mut first: Option<Told> = None;
    for mut peer in followers {
        let mut told = Told::default();
        told.read_to(&mut peer, last).await;
        told.frames = 0;
        told.assert_dense(0);
        let expected = first.get_or_insert_with(|| Told {
            events: told.events.clone(),
            frames: 0,
            text: told.text.clone(),
        });
        assert!(told == *expected, "two followers were told different things");
        peer.leave_unread();
    }
    prompting.leave_unread();
}
