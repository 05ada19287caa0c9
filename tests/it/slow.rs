//! Readers at any pace: who reads slowly gets less of what is transient and all of what is not; who stops reading costs
//! the others nothing; who writes without reading is answered when it reads.

mod company;
mod pace;

use serde_json::{Value, json};

use crate::stage::{Stage, events};
use crate::support::Peer;

/// The numbered events that a subscriber is told up to `last`, and the text that it was told before each message.
#[derive(Debug, Default, PartialEq)]
struct Told {
    events: Vec<Value>,
    frames: usize,
    text: String,
}

impl Told {
    /// Takes a message of the session. Says whether it is the event `last`.
    fn take(&mut self, message: &Value, last: u64) -> bool {
        let event = &message["params"]["event"];
        if event["transient"] == true {
            self.frames += 1;
            if event["data"]["chunk"]["type"] == "text-delta" {
                self.text.push_str(event["data"]["chunk"]["text"].as_str().unwrap());
            }
        }
        self.events.extend(events(std::slice::from_ref(message)).into_iter().cloned());
        event["seq"] == last
    }

    /// Reads on to the event `last`.
    async fn read_to(&mut self, peer: &mut Peer, last: u64) {
        while {
            let message = peer.message().await;
            !self.take(&message, last)
        } {}
    }

    fn assert_dense(&self, from: u64) {
        let seqs: Vec<u64> = self.events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (from..from + seqs.len() as u64).collect::<Vec<_>>());
    }
}

/// A peer that follows the session from its start.
async fn follower(stage: &Stage, session: &str) -> Peer {
    let mut peer = stage.peer().await;
    peer.call("session/subscribe", json!({ "sessionId": session, "since": -1 })).await;
    peer
}

/// Where a session is: its epoch and its last event.
async fn position(peer: &mut Peer, session: &str) -> (u64, u64) {
    let read = peer.call("session/read", json!({ "sessionId": session, "limit": 1 })).await;
    (read["epoch"].as_u64().unwrap(), read["lastSeq"].as_u64().unwrap())
}
