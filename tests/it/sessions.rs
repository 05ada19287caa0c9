//! Sessions outlive connections, closings and processes; their logs are whole, or said not to be.

mod damage;
mod delete;
mod gone;
mod listing;
mod lives;
mod memory;
mod retain;
mod sharing;

use serde_json::{Value, json};

use crate::support::Peer;

/// Answers in one step.
const ANSWER: &str = r#"{"parts":[{"text":"done"}]}"#;

/// Says something, then nothing for ever.
const STALL: &str = r#"{"prompt":"stall","parts":[{"text":"on it"},{"stall":true}]}"#;

/// Runs a command that ends once there is a file `go` in the workspace, then answers.
const WAIT_FOR_GO: &str = r#"{"prompt":"go","step":1,"parts":[{"tool":"bash","arguments":{"command":"until [ -e go ]; do sleep 0.02; done"}}]}"#;

/// All events of a session, read page by page.
async fn read_all(peer: &mut Peer, session: &str) -> Vec<Value> {
    let mut events = Vec::new();
    let mut since = json!(-1);
    loop {
        let params = json!({ "sessionId": session, "since": since, "limit": 1000 });
        let page = peer.call("session/read", params).await;
        events.extend(page["events"].as_array().unwrap().iter().cloned());
        match page.get("nextSince") {
            Some(next) => since = next.clone(),
            None => return events,
        }
    }
}

/// Takes the stored events of a session that were put aside.
fn seen(peer: &mut Peer, session: &str) -> Vec<Value> {
    let of_session = |message: &Value| message["params"]["sessionId"] == session;
    let events = peer.take_aside().into_iter().filter(of_session);
    events
        .filter_map(|mut message| message.pointer_mut("/params/event").map(Value::take))
        .filter(|event| event["seq"].is_u64())
        .collect()
}

/// The texts of the prompts whose turns ran, in their order.
fn prompts_run(events: &[Value]) -> Vec<&str> {
    let by_user =
        |event: &&Value| event["type"] == "user/message" && event["data"]["source"]["kind"] == "user";
    events.iter().filter(by_user).map(|event| event["data"]["content"][0]["text"].as_str().unwrap()).collect()
}

fn prompt(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "contentBlocks": [{ "type": "text", "text": text }] })
}

fn queued(session: &str, text: &str) -> Value {
    let mut params = prompt(session, text);
    params["whenBusy"] = json!("queue");
    params
}
