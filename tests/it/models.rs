//! What model servers do, right and wrong, and what becomes of the turn: each through a real HTTP socket whose bytes the
//! test owns.

mod access;
mod calls;
mod faults;
mod front;
mod prefix;
mod queue;
mod quirks;
mod routes;
mod stream;
mod switch;

use serde_json::{Value, json};

use crate::model_server::{Reply, chat};
use crate::stage::events;
use crate::support::Peer;

/// One prompt and its end: the reply's result, and what was told before it.
async fn turn(peer: &mut Peer, text: &str) -> (Value, Vec<Value>) {
    let result = peer.prompt("s", text).await;
    (result, peer.take_aside())
}

/// The data of the stored events of a type.
fn all(told: &[Value], kind: &str) -> Vec<Value> {
    events(told).iter().filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

/// The deltas of an attempt, joined by block.
fn joined(told: &[Value], attempt: u64) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for message in told {
        let event = &message["params"]["event"];
        if event["type"] != "assistant/chunk" || event["data"]["attempt"] != attempt {
            continue;
        }
        assert_eq!((&event["transient"], event.get("seq")), (&json!(true), None), "{event}");
        let chunk = &event["data"]["chunk"];
        let index = usize::try_from(chunk["index"].as_u64().unwrap()).unwrap();
        if chunk["type"] == "block-start" {
            assert_eq!(index, blocks.len(), "blocks begin in order");
            blocks.push(String::new());
        }
        blocks[index] += chunk["text"].as_str().or(chunk["arguments"].as_str()).unwrap_or_default();
    }
    blocks
}

fn whole(parts: impl IntoIterator<Item = String>) -> Reply {
    parts.into_iter().fold(Reply::stream(), Reply::send).send(chat::DONE).end()
}
