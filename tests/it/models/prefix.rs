//! What providers' caches bill by: each request of a session begins with all of the one before, byte for byte; after a
//! restart and after the session has left memory too.

use serde_json::value::RawValue;
use std::collections::BTreeMap;

use crate::model_server::{Received, Reply, WIRES, Wire, anthropic, chat, responses};
use crate::stage::{Stage, leave};
use crate::support::Peer;

/// Marks of the cache move with the conversation; they are no part of what is cached.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
const ARGUMENTS: &str = r#"{"command":  "printf 'h\u00e9🙂\"'",  "description":"x"}"#;
const SEALED: &str = r#"{"id":"rs_0","type":"reasoning","encrypted_content":"gAA=","summary":[{"type":"summary_text",  "text":"h\u00e9"}]}"#;

/// An answer with thoughts, text and two calls, as the wire's own servers write it.
fn thoughtful(wire: &Wire) -> Reply {
    match wire.kind {
        "chat" => Reply::stream()
            .send(chat::reasoning("hé"))
            .send(chat::text("I look.\n"))
            .send(chat::call(0, "call_a", "bash", ARGUMENTS))
            .send(chat::call(1, "call_b", "bash", "{\"command\":\"cut"))
            .send(chat::finish("tool_calls") + chat::DONE)
            .end(),
        "anthropic" => Reply::stream()
            .send(anthropic::start())
            .send(anthropic::block_start(0, r#"{"type":"thinking","thinking":"","signature":""}"#))
            .send(anthropic::block_delta(0, r#"{"type":"thinking_delta","thinking":"hé"}"#))
            .send(anthropic::block_delta(0, r#"{"type":"signature_delta","signature":"sig=="}"#))
            .send(anthropic::block_stop(0))
            .send(anthropic::block_start(1, r#"{"type":"redacted_thinking","data":"xyz"}"#))
            .send(anthropic::block_stop(1))
            .send(anthropic::block_start(2, r#"{"type":"text","text":""}"#))
            .send(anthropic::text(2, "I look.\n"))
            .send(anthropic::block_stop(2))
            .send(call_block(3, "call_a", ARGUMENTS))
            .send(call_block(4, "call_b", "{\"command\":\"cut"))
            .send(anthropic::stop("tool_use"))
            .end(),
        _ => Reply::stream()
            .send(responses::created())
            .send(responses::done(0, SEALED))
            .send(responses::text(1, "I look.\n"))
            .send(responses::done(1, &responses::message(1, "I look.\n")))
            .send(responses::call(2, "call_a", "bash", ARGUMENTS))
            .send(responses::call(3, "call_b", "bash", "{\"command\":\"cut"))
            .send(responses::completed())
            .end(),
    }
}

fn call_block(index: u32, id: &str, arguments: &str) -> String {
    let block = format!(r#"{{"type":"tool_use","id":"{id}","name":"bash","input":{{}}}}"#);
    let json = serde_json::to_string(arguments).unwrap();
    anthropic::block_start(index, &block)
        + &anthropic::block_delta(index, &format!(r#"{{"type":"input_json_delta","partial_json":{json}}}"#))
        + &anthropic::block_stop(index)
}

/// A body up to the end of its history, without marks.
fn prefix(wire: &Wire, request: &Received) -> String {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&request.body).unwrap();
    let history = members[wire.history].get();
    let end = request.text().find(history).unwrap() + history.len() - "]".len();
    request.text()[..end].replace(MARK, "")
}

async fn turn(stage: &Stage, wire: &Wire, peer: &mut Peer, session: &str) {
    stage.model.push((wire.reply)(&["so it ", "is\n"]));
    let result = peer.prompt(session, "and?").await;
    assert_eq!(result["status"], "ok", "{}: {result}", wire.kind);
    peer.take_aside();
}

#[tokio::test]
async fn each_request_begins_with_the_one_before_byte_for_byte_over_restarts_and_evictions() {
    for wire in &WIRES {
        let tables = "[providers.fake.models.m]\nthinking = true\n[limits]\nloaded_sessions = 1";
        let mut stage = Stage::speaking(wire, "", tables).await;
        let mut peer = stage.peer().await;
        stage.model.push(thoughtful(wire));
        turn(&stage, wire, &mut peer, "s").await;
        turn(&stage, wire, &mut peer, "s").await;
        // Another session takes the only place in memory.
        turn(&stage, wire, &mut peer, "other").await;
        turn(&stage, wire, &mut peer, "s").await;
        leave(peer).await;
        stage.stop().await;
        stage.begin().await;
        let mut peer = stage.peer().await;
        stage.model.push((wire.calls)(&[("call_c", "bash", r#"{"command":"true","description":"x"}"#)]));
        turn(&stage, wire, &mut peer, "s").await;
        leave(peer).await;

        let mut prefixes: Vec<String> =
            stage.model.requests().iter().map(|request| prefix(wire, request)).collect();
        assert_eq!(prefixes.len(), 7);
        prefixes.remove(3);
        for (at, pair) in prefixes.windows(2).enumerate() {
            let (before, now) = (&pair[0], &pair[1]);
            assert!(now.len() > before.len(), "{} {at}", wire.kind);
            let same = before.bytes().zip(now.bytes()).take_while(|(a, b)| a == b).count();
            let from = before.len().min(same.saturating_sub(80));
            let (was, is) = (&before.as_bytes()[from..], &now.as_bytes()[from..]);
            assert_eq!(
                same,
                before.len(),
                "{} {at}:\n{}\n{}",
                wire.kind,
                String::from_utf8_lossy(was),
                String::from_utf8_lossy(is)
            );
        }
    }
}

/// What was thought goes back as it came, wherever the wire wants it.
#[tokio::test]
async fn thoughts_and_arguments_go_back_as_they_came_after_a_restart() {
    for wire in &WIRES {
        let mut stage = Stage::speaking(wire, "", "[providers.fake.models.m]\nthinking = true").await;
        let mut peer = stage.peer().await;
        stage.model.push(thoughtful(wire));
        turn(&stage, wire, &mut peer, "s").await;
        leave(peer).await;
        stage.kill().await;
        stage.begin().await;
        let mut peer = stage.peer().await;
        turn(&stage, wire, &mut peer, "s").await;
        leave(peer).await;
        let requests = stage.model.requests();
        let body = requests.last().unwrap().text();
        let quoted = serde_json::to_string(ARGUMENTS).unwrap();
        let expected: &[&str] = match wire.kind {
            "chat" => &[r#""reasoning_content":"hé""#, &quoted, r#""id":"call_b""#],
            "anthropic" => &[
                r#"{"type":"thinking","thinking":"hé","signature":"sig=="},{"type":"redacted_thinking","data":"xyz"}"#,
                ARGUMENTS,
                r#"{"invalid_arguments":"{\"command\":\"cut"}"#,
            ],
            _ => &[SEALED, &quoted, r#""call_id":"call_b""#],
        };
        for part in expected {
            assert!(body.contains(part), "{}: {part} is not in {body}", wire.kind);
        }
    }
}
