//! `session/update`: settings of a live session, from its next step on.

use serde_json::json;

use crate::model_server::chat;
use crate::stage::{Stage, leave};
use crate::support::of_type;

#[tokio::test]
async fn a_running_turn_takes_it_up_in_its_next_step_and_everybody_hears() {
    let mut stage = Stage::with("", "").await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let mut other = stage.peer_with(json!({ "sessions": "all", "deltas": false })).await;
    let id = peer.send_prompt("s", "begin").await;
    assert_eq!(stage.model.request().await.json()["model"], "m");
    let changes = json!({
        "sessionId": "s", "model": "m2", "permissionMode": "read-only", "title": "  a new\n title ",
        "maxTokens": 77,
    });
    assert_eq!(peer.call("session/update", changes).await, json!({}));
    let told = other.event("session/update").await;
    assert_eq!(
        told["event"]["data"],
        json!({ "model": "m2", "permissionMode": "read-only", "title": "a new title", "maxTokens": 77 })
    );
    // The first one is of the log's beginning.
    other.event("permission/preset").await;
    assert_eq!(other.event("permission/preset").await["event"]["data"]["preset"], "read-only");
    stage.says(&["done", "again"]);
    let call = chat::call(0, "call_1", "bash", r#"{"command":"echo hi","description":"x"}"#);
    live.send(call + &chat::finish("tool_calls")).await;
    live.end().await;
    assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    let second = stage.model.request().await.json();
    assert_eq!((&second["model"], &second["max_tokens"]), (&json!("m2"), &json!(77)));
    let context = second["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    assert!(context.contains("read-only"), "{context}");
    let log = stage.home.logged("s");
    let headers: Vec<_> = of_type(&log, "request/header")
        .iter()
        .map(|event| (event["data"]["reason"].clone(), event["data"]["header"]["config"]["model"].clone()))
        .collect();
    assert_eq!(headers, [(json!("initial"), json!("m")), (json!("change"), json!("m2"))]);
    let listed = peer.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["title"], "a new title");
    other.leave_unread();
    peer.take_aside();
    leave(peer).await;
    drop(other);
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    peer.prompt("s", "again").await;
    assert_eq!(stage.model.request().await.json()["model"], "m2");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_stored_session_is_changed_without_a_turn_and_an_unknown_one_is_not_made() {
    let mut stage = Stage::new().await;
    stage.says(&["one", "two"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "hello").await;
    stage.model.request().await;
    peer.take_aside();
    leave(peer).await;
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    peer.call("session/update", json!({ "sessionId": "s", "model": "later" })).await;
    let error = peer.refused("session/update", json!({ "sessionId": "nobody", "model": "x" })).await;
    assert_eq!(error["data"]["kind"], "session_not_found");
    leave(peer).await;
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    peer.prompt("s", "again").await;
    assert_eq!(stage.model.request().await.json()["model"], "later");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn what_can_not_be_is_refused() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    peer.call("session/create", json!({ "sessionId": "s" })).await;
    for (params, kind) in [
        (json!({ "sessionId": "s" }), "invalid_params"),
        (json!({ "sessionId": "s", "title": " \n" }), "invalid_params"),
        (json!({ "sessionId": "s", "permissionMode": "root" }), "invalid_params"),
        (json!({ "sessionId": "s", "budgetCost": -1 }), "invalid_params"),
        (json!({ "sessionId": "s", "provider": "nowhere" }), "provider_unavailable"),
    ] {
        let error = peer.refused("session/update", params.clone()).await;
        assert_eq!(error["data"]["kind"], kind, "{params}");
    }
    // A session that nobody has prompted yet keeps it for its log.
    peer.call("session/update", json!({ "sessionId": "s", "title": "named early", "budgetTokens": 9 })).await;
    stage.says(&["one"]);
    peer.prompt("s", "hello").await;
    let log = stage.home.logged("s");
    assert_eq!(
        of_type(&log, "session/update")[0]["data"],
        json!({ "title": "named early", "budgetTokens": 9 })
    );
    assert!(of_type(&log, "session/title").is_empty());
    peer.take_aside();
    leave(peer).await;
}
