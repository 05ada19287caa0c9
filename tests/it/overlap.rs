//! Prompts that meet: one wins or all queue, whoever sends them.

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, TRANSPORTS, Transport, events, leave, prompt, text_of};
use crate::support::Peer;

/// Ends the running answer.
async fn finish(live: &crate::model_server::Live) {
    live.send(chat::text("done") + &chat::finish("stop")).await;
    live.end().await;
}

fn is_reply(message: &Value) -> bool {
    message.get("id").is_some()
}

#[tokio::test]
async fn of_prompts_sent_at_once_on_one_connection_exactly_one_wins() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        for round in 0..10 {
            let session = format!("s{round}");
            let live = stage.live();
            let lines: String = (100..120)
                .map(|id| json!({ "id": id, "method": "session/prompt", "params": prompt(&session, "x", &json!({})) }).to_string() + "\n")
                .collect();
            peer.send_bytes(lines.as_bytes()).await;
            let mut losers = Vec::new();
            for _ in 0..19 {
                losers.push(peer.take(is_reply).await);
            }
            finish(&live).await;
            let winner = peer.take(is_reply).await;
            // They were taken up in their order.
            assert_eq!((&winner["id"], &winner["result"]["status"]), (&json!(100), &json!("ok")));
            for loser in losers {
                assert_eq!(loser["error"]["data"]["kind"], "session_busy");
                assert_eq!(loser["error"]["data"]["messageId"], winner["result"]["messageId"]);
            }
            let told = peer.take_aside();
            let turns = events(&told).iter().filter(|event| event["type"] == "turn/start").count();
            assert_eq!(turns, 1);
        }
        leave(peer).await;
    }
}

#[tokio::test]
async fn of_prompts_sent_at_once_on_many_connections_exactly_one_wins() {
    for transport in [Transport::Unix, Transport::Tcp] {
        let stage = Stage::over(transport).await;
        let mut peers = Vec::new();
        for _ in 0..16 {
            peers.push(stage.peer().await);
        }
        for round in 0..10 {
            let live = stage.live();
            let sends = peers.iter_mut().map(|peer| peer.send_prompt("s", "x"));
            futures_util::future::join_all(sends).await;
            let mut refusals = Vec::new();
            let mut winner = None;
            // The winner's answer waits for the model; all others are told at once.
            for (at, peer) in peers.iter_mut().enumerate() {
                let first = peer.message().await;
                if first.get("error").is_some() {
                    refusals.push(first);
                } else {
                    assert!(winner.replace(at).is_none(), "round {round}: two have won");
                    assert_eq!(first["method"], "session.event", "{first}");
                }
            }
            assert_eq!(refusals.len(), 15);
            let winner = &mut peers[winner.unwrap()];
            finish(&live).await;
            let reply = winner.take(is_reply).await;
            assert!(
                refusals
                    .iter()
                    .all(|refused| refused["error"]["data"]["messageId"] == reply["result"]["messageId"])
            );
            winner.take_aside();
            // Who was refused hears nothing; who has won before, hears of the session.
            for peer in &mut peers {
                peer.call("session/unsubscribe", json!({ "sessionId": "s" })).await;
                peer.take_aside();
            }
        }
        for peer in peers {
            leave(peer).await;
        }
    }
}

#[tokio::test]
async fn first_prompts_of_an_unknown_session_share_one_creation() {
    let stage = Stage::new().await;
    let mut peers = Vec::new();
    for _ in 0..8 {
        peers.push(stage.peer_with(json!({ "whenBusy": "queue" })).await);
        stage.says(&["hi"]);
    }
    let sends = peers.iter_mut().map(|peer| peer.send_prompt("s", "x"));
    let ids = futures_util::future::join_all(sends).await;
    for (peer, id) in peers.iter_mut().zip(ids) {
        assert_eq!(peer.reply(id).await["result"]["status"], "ok");
        peer.call("session/unsubscribe", json!({ "sessionId": "s" })).await;
        peer.take_aside();
    }
    let read = peers[0].call("session/read", json!({ "sessionId": "s", "limit": 1000 })).await;
    let all = read["events"].as_array().unwrap();
    let count = |kind: &str| all.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("session/opened"), count("turn/start"), count("turn/end")), (1, 8, 8));
    for peer in peers {
        leave(peer).await;
    }
}

/// Takes the insert of a prompt that was queued, and gives back its id.
async fn inserted(peer: &mut Peer, text: &str) -> Value {
    let fits = |message: &Value| {
        let inserted = &message["params"]["event"]["data"]["inserted"][0];
        inserted.is_object() && text_of(inserted) == text
    };
    peer.take(fits).await["params"]["event"]["data"]["inserted"][0]["id"].take()
}

#[tokio::test]
async fn queued_prompts_run_first_in_first_out_and_the_status_changes_twice() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        let mut peer = stage.peer_with(json!({ "whenBusy": "queue" })).await;
        let mut requests = Vec::new();
        let mut messages = Vec::new();
        for text in ["one", "two", "three", "four"] {
            requests.push(peer.send_prompt("s", text).await);
            messages.push(inserted(&mut peer, text).await);
        }
        stage.model.request().await;
        let queue = peer.call("session/queue", json!({ "sessionId": "s" })).await;
        assert_eq!(queue["running"], messages[0]);
        let queued = json!([
            { "messageId": messages[1], "text": "two" },
            { "messageId": messages[2], "text": "three" },
            { "messageId": messages[3], "text": "four" },
        ]);
        assert_eq!(queue["queued"], queued);
        // A prompt that will not queue is refused meanwhile.
        let error = peer.refused("session/prompt", prompt("s", "no", &json!({ "whenBusy": "reject" }))).await;
        assert_eq!(error["data"]["messageId"], messages[0]);
        stage.says(&["2", "3", "4"]);
        finish(&live).await;
        for (request, message) in requests.iter().zip(&messages) {
            let reply = peer.reply(*request).await;
            assert_eq!((&reply["result"]["messageId"], &reply["result"]["status"]), (message, &json!("ok")));
        }
        let told = peer.take_aside();
        let asked = events(&told);
        let order: Vec<String> = asked
            .iter()
            .filter(|event| event["type"] == "user/message" && event["data"]["source"]["kind"] == "user")
            .map(|event| text_of(&event["data"]))
            .collect();
        assert_eq!(order, ["one", "two", "three", "four"]);
        let statuses: Vec<&Value> = told
            .iter()
            .filter(|message| message["method"] == "session.status")
            .map(|message| &message["params"]["status"])
            .collect();
        assert_eq!(statuses, ["running", "idle"]);
        let queue = peer.call("session/queue", json!({ "sessionId": "s" })).await;
        assert_eq!(queue, json!({ "queued": [] }));
        leave(peer).await;
    }
}

#[tokio::test]
async fn queued_prompts_outlive_the_daemon_and_run_before_the_next_one() {
    let mut stage = Stage::new().await;
    let _live = stage.live();
    let mut peer = stage.peer_with(json!({ "completion": "receipt", "whenBusy": "queue" })).await;
    for text in ["one", "two", "three"] {
        peer.prompt("s", text).await;
    }
    peer.leave_unread();
    drop(peer);
    stage.kill().await;

    stage.begin().await;
    stage.says(&["2", "3", "4"]);
    let mut peer = stage.peer().await;
    let queue = peer.call("session/queue", json!({ "sessionId": "s" })).await;
    let waiting: Vec<&Value> =
        queue["queued"].as_array().unwrap().iter().map(|queued| &queued["text"]).collect();
    assert_eq!(waiting, ["two", "three"]);
    // Looking did not open the log.
    assert_eq!(peer.call("server/status", json!({})).await["counts"]["sessionsLoaded"], 0);
    let id = peer.send_prompt("s", "four").await;
    assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    let told = peer.take_aside();
    let stored = events(&told);
    assert_eq!(stored[0]["type"], "session/opened", "the first event that the request appends");
    assert_eq!(stored[0]["data"]["recovered"]["closedTurn"], 1);
    let ends: Vec<&Value> = stored
        .iter()
        .filter(|event| event["type"] == "turn/end")
        .map(|event| &event["data"]["reason"]["kind"])
        .collect();
    assert_eq!(ends, ["interrupted", "completed", "completed", "completed"]);
    leave(peer).await;
}
