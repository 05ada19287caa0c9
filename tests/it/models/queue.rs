//! Calls that wait for each other: `concurrency` of a provider.

use serde_json::json;

use crate::model_server::chat;
use crate::stage::{Stage, leave};

const ONE: &str = "concurrency = 1";
const DEBUG: &str = "[log]\nlevel = \"dshd::provider=debug\"";

/// The prompt that a request carries last.
fn prompt_of(request: &crate::model_server::Received) -> String {
    let body = request.json();
    let prompts = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    let texts: Vec<&str> = prompts.filter_map(|message| message["content"].as_str()).collect();
    texts.iter().find(|text| text.starts_with("prompt ")).map(ToString::to_string).unwrap()
}

#[tokio::test]
async fn calls_wait_their_turn_first_come_first_served_and_a_cancelled_one_leaves_the_queue() {
    let stage = Stage::with(ONE, DEBUG).await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let mut running = Vec::new();
    for (at, session) in ["a", "b", "c", "d"].into_iter().enumerate() {
        running.push(peer.send_prompt(session, &format!("prompt {session}")).await);
        match at.checked_sub(1) {
            None => assert_eq!(prompt_of(&stage.model.request().await), "prompt a"),
            Some(before) => {
                let line = stage.daemon().wait_for_line(&format!("before={before}"));
                assert!(line.contains("a call waits for its turn") && line.contains("fake"), "{line}");
            }
        }
    }
    peer.call("session/cancel", json!({ "sessionId": "c" })).await;
    assert_eq!(peer.reply(running[2]).await["result"]["status"], "aborted");
    assert_eq!(stage.model.requests().len(), 1, "one call at once");

    stage.says(&["to b", "to d"]);
    live.send(chat::text("to a") + &chat::finish("stop") + chat::DONE).await;
    live.end().await;
    for (at, session) in [(0, "a"), (1, "b"), (3, "d")] {
        let reply = peer.reply(running[at]).await;
        assert_eq!(reply["result"]["status"], "ok", "{session}: {reply}");
    }
    let asked: Vec<String> = stage.model.requests().iter().map(prompt_of).collect();
    assert_eq!(asked, ["prompt a", "prompt b", "prompt d"]);
    stage.daemon().wait_for_line("a call has its turn");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_wait_in_the_queue_ends() {
    let stage = Stage::with("concurrency = 1\nqueue_timeout = \"200ms\"", "").await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let first = peer.send_prompt("a", "prompt a").await;
    stage.model.request().await;
    let second = peer.prompt("b", "prompt b").await;
    let error = &second["reason"]["error"];
    assert_eq!(error["code"], "TIMEOUT", "{second}");
    assert!(error["message"].as_str().unwrap().contains("providers.fake.concurrency"), "{error}");
    live.send(chat::text("to a") + &chat::finish("stop")).await;
    live.end().await;
    assert_eq!(peer.reply(first).await["result"]["status"], "ok");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_in_mid_answer_gives_its_place_to_the_next() {
    let stage = Stage::with(ONE, DEBUG).await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let first = peer.send_prompt("a", "prompt a").await;
    live.send(chat::text("half")).await;
    peer.event("assistant/chunk").await;
    let second = peer.send_prompt("b", "prompt b").await;
    stage.daemon().wait_for_line("before=0");
    stage.says(&["to b"]);
    peer.call("session/cancel", json!({ "sessionId": "a" })).await;
    assert_eq!(peer.reply(first).await["result"]["status"], "aborted");
    assert_eq!(peer.reply(second).await["result"]["status"], "ok");
    peer.take_aside();
    leave(peer).await;
}
