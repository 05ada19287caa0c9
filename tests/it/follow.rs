//! Following a session: from its start, from a place, from now; each event once and in order, whoever comes when.

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, TRANSPORTS, Transport, events, leave, outline};
use crate::support::Peer;

/// Takes what comes up to the event of this seq, and the `idle` after it where `running` was told or due.
async fn up_to(peer: &mut Peer, last: u64, mut running: bool) -> Vec<Value> {
    let mut told = Vec::new();
    let mut passed = false;
    while running || !passed {
        let message = peer.message().await;
        passed |= message["params"]["event"]["seq"] == last;
        if let Some(status) = message["params"]["status"].as_str() {
            running = status == "running";
        }
        told.push(message);
    }
    told
}

fn seqs(told: &[Value]) -> Vec<u64> {
    events(told).iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

/// A session with two turns, on disk and in memory: its events, and where it is.
async fn two_turns(stage: &Stage, peer: &mut Peer) -> (Vec<Value>, u64, u64) {
    stage.says(&["one", "two"]);
    peer.prompt("s", "first").await;
    peer.prompt("s", "second").await;
    let told = peer.take_aside();
    let read = peer.call("session/read", json!({ "sessionId": "s" })).await;
    let place = (read["epoch"].as_u64().unwrap(), read["lastSeq"].as_u64().unwrap());
    (told, place.0, place.1)
}

#[tokio::test]
async fn a_subscription_begins_after_its_reply_with_the_event_after_its_cursor() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        let (live, epoch, last) = two_turns(&stage, &mut peer).await;
        for since in [0, 1, last / 2, last - 1] {
            let id = peer
                .send("session/subscribe", json!({ "sessionId": "s", "since": since, "epoch": epoch }))
                .await;
            let reply = peer.message().await;
            assert_eq!(reply["id"], id, "{transport:?} {since}: the reply comes first");
            assert_eq!(
                (&reply["result"]["epoch"], &reply["result"]["lastSeq"]),
                (&json!(epoch), &json!(last))
            );
            let told = up_to(&mut peer, last, false).await;
            assert_eq!(seqs(&told), (since + 1..=last).collect::<Vec<_>>(), "{transport:?} {since}");
            let expected = &events(&live)[usize::try_from(since).unwrap() + 1..];
            assert_eq!(events(&told), expected, "what is told again is what was told");
        }
        peer.expect_silence().await;
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_replay_tells_the_status_as_it_was_and_ends_with_what_it_is() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        let (_, _, last) = two_turns(&stage, &mut peer).await;
        peer.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
        let told = up_to(&mut peer, last, false).await;
        assert_eq!(seqs(&told), (0..=last).collect::<Vec<_>>());
        let mut status = "idle".to_owned();
        for word in outline(&told) {
            if word == "running" || word == "idle" {
                assert_ne!(word, status, "only on change");
                status = word;
            } else if word == "turn/start" {
                assert_eq!(status, "running");
            }
        }
        assert_eq!(status, "idle");
        leave(peer).await;
    }
}

#[tokio::test]
async fn whoever_comes_while_a_turn_runs_sees_every_event_once_and_in_order() {
    for transport in [Transport::Unix, Transport::Tcp] {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer_with(json!({ "deltas": false })).await;
        let mut others = Vec::new();
        let running = {
            for _ in 0..6 {
                stage.runs("echo out");
            }
            stage.says(&["done"]);
            peer.send_prompt("s", "x").await
        };
        let mut steps = 0;
        while steps < 7 {
            peer.event("step/start").await;
            steps += 1;
            let mut other = stage.peer().await;
            // Half of them from the start, half from now.
            let from_start = steps % 2 == 0;
            let params = if from_start {
                json!({ "sessionId": "s", "since": -1 })
            } else {
                json!({ "sessionId": "s" })
            };
            let id = other.send("session/subscribe", params).await;
            let reply = other.message().await;
            assert_eq!(reply["id"], id);
            let first = if from_start { 0 } else { reply["result"]["lastSeq"].as_u64().unwrap() + 1 };
            others.push((other, first, reply["result"]["status"].clone()));
        }
        assert_eq!(peer.reply(running).await["result"]["status"], "ok");
        let last = *seqs(&peer.take_aside()).last().unwrap();
        for (mut other, first, status) in others {
            if first > last {
                assert_eq!(status, "idle", "it came after the end");
            } else {
                let told = up_to(&mut other, last, status == "running").await;
                assert_eq!(seqs(&told), (first..=last).collect::<Vec<_>>(), "{transport:?}");
            }
            other.expect_silence().await;
            leave(other).await;
        }
        leave(peer).await;
    }
}

#[tokio::test]
async fn after_an_unsubscribe_nothing_comes() {
    let stage = Stage::new().await;
    let live = stage.live();
    let (mut a, mut b) = (stage.peer().await, stage.peer().await);
    let running = a.send_prompt("s", "x").await;
    stage.model.request().await;
    b.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    b.event("session/title").await;
    assert_eq!(b.call("session/unsubscribe", json!({ "sessionId": "s" })).await, json!({}));
    b.take_aside();
    a.call("session/unsubscribe", json!({ "sessionId": "s" })).await;
    a.take_aside();
    live.send(chat::text("hi") + &chat::finish("stop") + chat::DONE).await;
    live.end().await;
    // The prompt is still answered, at once for who no longer follows.
    let reply = a.message().await;
    assert_eq!((&reply["id"], &reply["result"]["status"]), (&json!(running), &json!("ok")));
    a.expect_silence().await;
    b.expect_silence().await;
    leave(a).await;
    leave(b).await;
}

#[tokio::test]
async fn who_hears_of_all_sessions_hears_each_event_once_even_if_it_subscribes() {
    let stage = Stage::new().await;
    let mut all = stage.peer_with(json!({ "sessions": "all" })).await;
    let mut peer = stage.peer().await;
    stage.says(&["one", "two"]);
    peer.prompt("s", "x").await;
    let last = *seqs(&peer.take_aside()).last().unwrap();
    let told = up_to(&mut all, last, false).await;
    assert_eq!(seqs(&told), (0..=last).collect::<Vec<_>>());
    all.call("session/subscribe", json!({ "sessionId": "s" })).await;
    all.prompt("s", "y").await;
    let told = all.take_aside();
    let end = last + u64::try_from(seqs(&told).len()).unwrap();
    assert_eq!(seqs(&told), (last + 1..=end).collect::<Vec<_>>());
    all.expect_silence().await;
    peer.take(|message| message["params"]["status"] == "idle").await;
    peer.take_aside();
    leave(all).await;
    leave(peer).await;
}

#[tokio::test]
async fn following_a_stored_session_does_not_open_it() {
    let mut stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let (live, epoch, last) = two_turns(&stage, &mut peer).await;
    leave(peer).await;
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    let subscribed = peer.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    assert_eq!(subscribed, json!({ "epoch": epoch, "lastSeq": last, "status": "idle" }));
    let told = up_to(&mut peer, last, false).await;
    assert_eq!(events(&told), events(&live));
    assert_eq!(peer.call("server/status", json!({})).await["counts"]["sessionsLoaded"], 0);
    // Another one's prompt opens it, and the follower hears of that.
    let mut other = stage.peer().await;
    stage.says(&["three"]);
    other.prompt("s", "third").await;
    let opened = peer.event("session/opened").await;
    assert_eq!(opened["event"]["seq"], last + 1);
    assert_ne!(opened["epoch"], epoch);
    peer.event("turn/end").await;
    peer.take(|message| message["params"]["status"] == "idle").await;
    peer.take_aside();
    other.take_aside();
    leave(peer).await;
    leave(other).await;
}
