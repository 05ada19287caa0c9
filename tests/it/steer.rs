//! A prompt for the turn that runs: it reaches the model before its next call, or becomes the next turn.

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, events, leave, outline, prompt, text_of};
use crate::support::{Peer, of_type};

const STEER: &str = "steer";

async fn steer(peer: &mut Peer, text: &str) -> u64 {
    peer.send("session/prompt", prompt("s", text, &json!({ "whenBusy": STEER }))).await
}

/// The splice that put a message into a list, whole `event`.
async fn inserted(peer: &mut Peer) -> Value {
    let fits = |message: &Value| {
        let event = &message["params"]["event"];
        event["type"] == "agent/inbox/spliced" && !event["data"]["inserted"].as_array().unwrap().is_empty()
    };
    let mut message = peer.take(fits).await;
    message["params"]["event"].take()
}

/// The texts of a request's messages, by role.
fn said(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages.map(|message| format!("{}: {}", message["role"].as_str().unwrap(), message["content"])).collect()
}

#[tokio::test]
async fn it_reaches_the_running_turn_before_its_next_model_call() {
    let stage = Stage::new().await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let first = peer.send_prompt("s", "begin").await;
    stage.model.request().await;
    let second = steer(&mut peer, "and mind the tests").await;
    inserted(&mut peer).await;
    let insert = inserted(&mut peer).await;
    assert_eq!((&insert["data"]["target"], &insert["data"]["start"]), (&json!("next-step"), &json!(0)));
    let queue = peer.call("session/queue", json!({ "sessionId": "s" })).await;
    assert_eq!(queue["queued"][0]["text"], "and mind the tests");
    stage.says(&["done, tests minded"]);
    let call = chat::call(0, "call_1", "bash", r#"{"command":"echo hi","description":"x"}"#);
    live.send(call + &chat::finish("tool_calls")).await;
    live.end().await;
    let asked = said(&stage.model.request().await.json());
    assert!(asked.last().unwrap().contains("and mind the tests"), "{asked:?}");
    assert!(asked[asked.len() - 2].starts_with("tool: "), "{asked:?}");
    let (one, two) = (peer.reply(first).await, peer.reply(second).await);
    assert_eq!(two["result"]["messageId"], insert["data"]["inserted"][0]["id"]);
    for reply in [&one, &two] {
        assert_eq!(reply["result"]["reason"]["kind"], "completed");
    }
    let told = peer.take_aside();
    let stored = events(&told);
    let claim = stored
        .iter()
        .position(|event| event["data"]["target"] == "next-step" && event["data"]["removedCount"] == 1);
    let heard = stored.iter().position(|event| event["data"]["id"] == two["result"]["messageId"]);
    assert_eq!(claim.unwrap() + 1, heard.unwrap(), "{:?}", outline(&told));
    assert_eq!(stored.iter().filter(|event| event["type"] == "turn/start").count(), 1);
    leave(peer).await;
}

#[tokio::test]
async fn a_final_answer_does_not_end_the_turn_while_it_waits() {
    let stage = Stage::new().await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let first = peer.send_prompt("s", "begin").await;
    stage.model.request().await;
    let second = steer(&mut peer, "one more thing").await;
    inserted(&mut peer).await;
    inserted(&mut peer).await;
    stage.says(&["that too"]);
    live.send(chat::text("all done") + &chat::finish("stop")).await;
    live.end().await;
    for id in [first, second] {
        assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    }
    let told = peer.take_aside();
    let words = outline(&told);
    assert_eq!(words.iter().filter(|word| *word == "step/start").count(), 2, "{words:?}");
    assert_eq!(words.iter().filter(|word| *word == "turn/end").count(), 1, "{words:?}");
    assert_eq!(words.iter().filter(|word| *word == "idle").count(), 1, "{words:?}");
    leave(peer).await;
}

#[tokio::test]
async fn it_becomes_the_next_turn_when_the_turn_ends_first() {
    let stage = Stage::new().await;
    let _live = stage.live();
    let mut peer = stage.peer().await;
    let first = peer.send_prompt("s", "begin").await;
    stage.model.request().await;
    let queued = peer.send("session/prompt", prompt("s", "third", &json!({ "whenBusy": "queue" }))).await;
    let second = steer(&mut peer, "second").await;
    for _ in 0..3 {
        inserted(&mut peer).await;
    }
    stage.says(&["two", "three"]);
    peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    assert_eq!(peer.reply(first).await["result"]["status"], "aborted");
    assert_eq!(peer.reply(second).await["result"]["status"], "ok");
    assert_eq!(peer.reply(queued).await["result"]["status"], "ok");
    let log = stage.home.logged("s");
    let answers: Vec<String> =
        of_type(&log, "assistant/message").iter().map(|event| text_of(&event["data"]["message"])).collect();
    assert_eq!(answers, ["two", "three"], "what was meant for the turn goes before what was queued");
    assert_eq!(of_type(&log, "turn/start").len(), 3);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn an_idle_agent_takes_it_as_an_ordinary_prompt() {
    let stage = Stage::new().await;
    stage.says(&["hello"]);
    let mut peer = stage.peer_with(json!({ "whenBusy": STEER })).await;
    assert_eq!(peer.prompt("s", "hi").await["status"], "ok");
    let told = peer.take_aside();
    assert_eq!(events(&told)[4]["data"]["target"], "next-turn");
    leave(peer).await;
}

#[tokio::test]
async fn it_can_be_taken_back_before_the_turn_has_it_and_its_key_is_kept() {
    let stage = Stage::new().await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let first = peer.send_prompt("s", "begin").await;
    stage.model.request().await;
    let params = prompt("s", "no, leave it", &json!({ "whenBusy": STEER, "idempotencyKey": "k" }));
    let second = peer.send("session/prompt", params.clone()).await;
    inserted(&mut peer).await;
    let message_id = inserted(&mut peer).await["data"]["inserted"][0]["id"].clone();
    let params_of_cancel = json!({ "sessionId": "s", "messageId": message_id });
    assert_eq!(peer.call("session/cancel", params_of_cancel.clone()).await["cancelled"], true);
    assert_eq!(peer.reply(second).await["result"]["status"], "aborted");
    assert_eq!(peer.call("session/cancel", params_of_cancel).await["cancelled"], false);
    let again = peer.call("session/prompt", params).await;
    assert_eq!((&again["messageId"], &again["status"]), (&message_id, &json!("aborted")));
    live.send(chat::text("done") + &chat::finish("stop")).await;
    live.end().await;
    assert_eq!(peer.reply(first).await["result"]["status"], "ok");
    let log = stage.home.logged("s");
    assert_eq!(of_type(&log, "step/start").len(), 1);
    assert_eq!(of_type(&log, "agent/inbox/spliced").last().unwrap()["data"]["outcome"], "canceled");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_crash_before_the_turn_has_it_keeps_it_for_the_next_life() {
    let mut stage = Stage::new().await;
    let _live = stage.live();
    let mut peer = stage.peer_with(json!({ "completion": "receipt", "whenBusy": STEER })).await;
    peer.prompt("s", "begin").await;
    stage.model.request().await;
    peer.prompt("s", "keep me").await;
    peer.leave_unread();
    stage.kill().await;
    drop(peer);
    stage.begin().await;
    let mut peer = stage.peer().await;
    let queue = peer.call("session/queue", json!({ "sessionId": "s" })).await;
    assert_eq!(queue["queued"][0]["text"], "keep me");
    stage.says(&["one", "two"]);
    assert_eq!(peer.prompt("s", "go on").await["status"], "ok");
    let log = stage.home.logged("s");
    let turns: Vec<String> = of_type(&log, "user/message")
        .iter()
        .filter(|event| event["data"]["source"]["kind"] == "user")
        .map(|event| text_of(&event["data"]))
        .collect();
    assert_eq!(turns, ["begin", "keep me", "go on"]);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn the_command_line_steers() {
    let stage = Stage::new().await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let first = peer.send_prompt("s", "begin").await;
    stage.model.request().await;
    inserted(&mut peer).await;
    let ran = stage.home.run(["prompt", "-q", "-s", "s", "--when-busy", "steer", "and this"]);
    let answered = async {
        inserted(&mut peer).await;
        stage.says(&["with this"]);
        live.send(chat::text("done") + &chat::finish("stop")).await;
        live.end().await;
    };
    let (ran, ()) = tokio::join!(ran, answered);
    assert!(ran.expect_code(0).stdout.contains("with this"));
    assert_eq!(peer.reply(first).await["result"]["status"], "ok");
    assert_eq!(of_type(&stage.home.logged("s"), "turn/start").len(), 1);
    peer.take_aside();
    leave(peer).await;
}
