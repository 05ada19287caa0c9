//! Idempotency keys: the same prompt sent twice runs once, over cuts and restarts too.

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, TRANSPORTS, leave, prompt};

fn keyed(text: &str) -> Value {
    prompt("s", text, &json!({ "idempotencyKey": "k1" }))
}

#[tokio::test]
async fn a_key_that_comes_again_gets_the_first_outcome_and_starts_nothing() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.says(&["once"]);
        let mut peer = stage.peer().await;
        let first = peer.call("session/prompt", keyed("x")).await;
        peer.take_aside();
        let again = peer.call("session/prompt", keyed("x")).await;
        assert_eq!(again, first);
        peer.expect_silence().await;
        assert_eq!(stage.model.requests().len(), 1);
        let error = peer.refused("session/prompt", keyed("other")).await;
        assert_eq!(
            (&error["code"], &error["data"]["path"]),
            (&json!(-32602), &json!("idempotencyKey")),
            "{error}"
        );
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_key_that_comes_again_while_its_turn_runs_waits_for_the_same_end() {
    let stage = Stage::new().await;
    let live = stage.live();
    let (mut a, mut b) = (stage.peer().await, stage.peer_with(json!({ "completion": "receipt" })).await);
    let first = a.send("session/prompt", keyed("x")).await;
    stage.model.request().await;
    let second = a.send("session/prompt", keyed("x")).await;
    let receipt = b.call("session/prompt", keyed("x")).await;
    live.send(chat::text("hi") + &chat::finish("stop")).await;
    live.end().await;
    let first = a.reply(first).await["result"].take();
    assert_eq!(a.reply(second).await["result"], first);
    assert_eq!(receipt, json!({ "messageId": first["messageId"] }));
    assert_eq!(stage.model.requests().len(), 1);
    a.take_aside();
    b.call("session/unsubscribe", json!({ "sessionId": "s" })).await;
    b.take_aside();
    leave(a).await;
    leave(b).await;
}

#[tokio::test]
async fn a_key_outlives_the_daemon() {
    for gently in [true, false] {
        let mut stage = Stage::new().await;
        stage.says(&["once"]);
        let mut peer = stage.peer().await;
        let first = peer.call("session/prompt", keyed("x")).await;
        peer.take_aside();
        leave(peer).await;
        if gently {
            stage.stop().await;
        } else {
            stage.kill().await;
        }
        stage.begin().await;
        let mut peer = stage.peer().await;
        assert_eq!(peer.call("session/prompt", keyed("x")).await, first, "gently: {gently}");
        assert_eq!(stage.model.requests().len(), 1);
        let error = peer.refused("session/prompt", keyed("other")).await;
        assert_eq!(error["data"]["path"], "idempotencyKey");
        peer.take_aside();
        leave(peer).await;
    }
}

/// The client loses its connection in the first turn and sends the same again.
#[tokio::test]
async fn a_retry_after_a_cut_is_not_a_second_prompt() {
    let stage = Stage::new().await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    peer.send("session/prompt", keyed("x")).await;
    stage.model.request().await;
    peer.leave_unread();
    drop(peer);
    let mut peer = stage.peer().await;
    let retried = peer.send("session/prompt", keyed("x")).await;
    let busy = peer.refused("session/prompt", prompt("s", "x", &json!({}))).await;
    assert_eq!(busy["data"]["kind"], "session_busy");
    live.send(chat::text("hi") + &chat::finish("stop")).await;
    live.end().await;
    let reply = peer.reply(retried).await;
    assert_eq!(reply["result"]["status"], "ok", "{reply}");
    assert_eq!(reply["result"]["messageId"], busy["data"]["messageId"]);
    assert_eq!(stage.model.requests().len(), 1);
    peer.call("session/unsubscribe", json!({ "sessionId": "s" })).await;
    peer.take_aside();
    leave(peer).await;
}
