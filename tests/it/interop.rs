//! Others' programs: the official Python SDK as a client, `llmock` as a model server that judges who calls it.
//!
//! `DSHD_PEERS` names a Python environment that has both (.ci/run shows how to make one). Without it these tests say that
//! they were skipped; under `DSHD_CI` that is a failure.

mod llmock;

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::process::Command;

use self::llmock::Llmock;
use crate::support::{Daemon, Home, Peer, finish, of_type};

/// The environment of the others, or none.
fn peers() -> Option<PathBuf> {
    let Some(peers) = std::env::var_os("DSHD_PEERS") else {
        assert!(
            std::env::var_os("DSHD_CI").is_none(),
            "DSHD_CI needs DSHD_PEERS, an environment with the peers"
        );
        // Not by a macro, whose output of a test that passes is not shown.
        let told = writeln!(
            std::io::stderr(),
            "skipped: no DSHD_PEERS (.ci/run shows how to make an environment with the peers)"
        );
        told.unwrap();
        return None;
    };
    Some(peers.into())
}

#[tokio::test]
async fn the_official_python_sdk_works_as_its_users_use_it() {
    let Some(peers) = peers() else { return };
    let llmock = Llmock::start(&peers).await;
    let home = Home::new();
    let mut command = Command::new(peers.join("bin/python"));
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/sdk.py"))
        .arg(env!("CARGO_BIN_EXE_dshd"))
        .arg(home.path("sdk"))
        .arg(llmock.url("/anthropic"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path("home"))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true);
    let ran = finish(command, b"").await.expect_code(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.contains(" ok")).count(), 7, "{}", ran.stdout);
    llmock.assert_clean().await;
}

/// A daemon whose default route is the mock, on one of the wires.
struct Route {
    llmock: Llmock,
    daemon: Daemon,
    peer: Peer,
}

/// What a turn was: its outcome, and its events.
struct Turn {
    outcome: Value,
    events: Vec<Value>,
}

impl Turn {
    #[track_caller]
    fn assert_completed(&self) {
        assert_eq!(self.outcome["status"], "ok", "{}: {:#?}", self.outcome, self.events);
    }

    fn count(&self, kind: &str) -> usize {
        of_type(&self.events, kind).len()
    }

    /// The text of the last answer.
    fn answer(&self) -> String {
        let messages = of_type(&self.events, "assistant/message");
        let blocks = messages.last().unwrap()["data"]["message"]["content"].as_array().unwrap();
        blocks.iter().filter_map(|block| block["text"].as_str()).collect()
    }
}

impl Route {
    async fn start(peers: &std::path::Path, kind: &str, base: &str) -> Self {
        let llmock = Llmock::start(peers).await;
        let home = Home::new();
        home.configure(&format!(
            "default_provider = \"mock\"\ndefault_model = \"mock-1\"\n\n[providers.mock]\nkind = \"{kind}\"\n\
             base_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\nretry_base = \"800ms\"\nidle_timeout = \"700ms\"\n",
            llmock.url(base)
        ));
        let mut command = home.dshd(["serve"]);
        command.env("MOCK_KEY", "sk-mock");
        let daemon = Daemon::spawn(&home, command);
        let peer = daemon.peer().await;
        Self { llmock, daemon, peer }
    }

    /// A turn under a fault, or a scripted reply, in a session of its own.
    async fn turn(&mut self, session: &str, behaviors: Value) -> Turn {
        self.llmock.behave(behaviors).await;
        let outcome = self.peer.prompt(session, &format!("hello from {session}")).await;
        let event = |mut message: Value| message.pointer_mut("/params/event").map(Value::take);
        let events =
            self.peer.take_aside().into_iter().filter_map(event).filter(|event| event["seq"].is_u64());
        Turn { outcome, events: events.collect() }
    }

    async fn end(self) {
        self.llmock.assert_clean().await;
        self.peer.finish().await;
        assert!(self.daemon.stop().await.success());
    }
}

const TEXT: &str = "A plain answer, with a 🙂 in it.";

fn reply() -> Value {
    json!({ "type": "reply", "text": TEXT })
}

/// A turn of text, and turns of tools that end by themselves.
async fn turns(route: &mut Route) {
    let text = route.turn("text", json!([reply()])).await;
    text.assert_completed();
    assert_eq!(text.answer(), TEXT);
    let usage = &of_type(&text.events, "assistant/message")[0]["data"]["usage"];
    assert!(usage["totalTokens"].as_u64().unwrap() > 0, "{usage}");

    let call = json!({ "name": "bash", "arguments": { "command": "echo from-$((40 + 2))" } });
    let tool =
        route.turn("tool", json!([{ "type": "reply", "text": "I look.", "tool_calls": [call] }])).await;
    tool.assert_completed();
    let results = of_type(&tool.events, "tool/result");
    assert!(
        results[0]["data"]["message"]["content"][0]["text"].as_str().unwrap().contains("from-42"),
        "{results:?}"
    );
    assert!(!tool.answer().is_empty());

    // The mock chooses tool and arguments by itself.
    let alone = route.turn("alone", json!([])).await;
    alone.assert_completed();
    assert_eq!(alone.count("tool/call"), 1);
    let again = route.turn("alone", json!([reply()])).await;
    again.assert_completed();
    assert_eq!(again.answer(), TEXT, "a history with tools is taken");

    for kind in ["malformed_arguments", "unknown_tool"] {
        let turn = route.turn(kind, json!([{ "type": "tool_fault", "kind": kind }])).await;
        turn.assert_completed();
        let result = &of_type(&turn.events, "tool/result")[0]["data"];
        assert_eq!(result["message"]["isError"], true, "{kind}: {result}");
    }
}

/// What can be made again is, once and in time; what can't is not.
async fn faults(route: &mut Route) {
    let refusals = [
        json!({ "type": "fail", "status": 429, "retry_after": 1.2 }),
        json!({ "type": "fail", "status": 429 }),
        json!({ "type": "fail", "status": 500 }),
        json!({ "type": "fail", "status": 503, "retry_after": 0.4 }),
        json!({ "type": "fail", "status": 529 }),
    ];
    for (at, refusal) in refusals.into_iter().enumerate() {
        let turn = route.turn(&format!("refusal-{at}"), json!([refusal, reply()])).await;
        turn.assert_completed();
        assert_eq!(turn.answer(), TEXT, "{refusal}");
        assert_eq!((turn.count("llm/retry"), turn.count("llm/retry-started")), (1, 1), "{refusal}");
    }
    for kind in ["disconnect", "truncate", "malformed", "stall"] {
        for after in [0, 2] {
            let fault =
                json!({ "type": "stream_fault", "kind": kind, "after_chunks": after, "stall_seconds": 20.0 });
            // Long, so that the mock sees us leave before it has written everything.
            let long = json!({ "type": "reply", "text": "word ".repeat(300) });
            let turn = route.turn(&format!("{kind}-{after}"), json!([fault, long, reply()])).await;
            turn.assert_completed();
            assert_eq!(turn.answer(), TEXT, "{kind} after {after}");
            assert_eq!(turn.count("assistant/message"), 1, "{kind} after {after}");
            assert_eq!(turn.count("llm/retry"), 1, "{kind} after {after}");
        }
    }
    for status in [400, 401, 403, 404, 422] {
        let turn =
            route.turn(&format!("for-good-{status}"), json!([{ "type": "fail", "status": status }])).await;
        assert_eq!(turn.outcome["status"], "error", "{status}: {}", turn.outcome);
        assert_eq!(turn.outcome["reason"]["error"]["status"], status, "{}", turn.outcome);
        assert_eq!(turn.count("llm/retry"), 0, "{status}");
    }
}

/// Retries end. With full jitter the mock can't tell growing pauses from constant ones, so this is not judged.
async fn gives_up(route: &mut Route) {
    route.llmock.assert_clean().await;
    let turn = route.turn("down", json!([{ "type": "fail", "status": 503, "times": null }])).await;
    assert_eq!(turn.outcome["reason"]["error"]["code"], "SERVER", "{}", turn.outcome);
    assert_eq!(turn.count("llm/retry"), 5);
    route.llmock.reset().await;
    let up = route.turn("down", json!([reply()])).await;
    assert_eq!(up.answer(), TEXT, "the session goes on when the server is back");
}

#[tokio::test]
async fn the_chat_wire_is_spoken_well_by_a_strangers_verdict() {
    let Some(peers) = peers() else { return };
    let mut route = Route::start(&peers, "chat", "/v1").await;
    turns(&mut route).await;
    faults(&mut route).await;
    gives_up(&mut route).await;
    route.end().await;
}

#[tokio::test]
async fn the_messages_wire_is_spoken_well_by_a_strangers_verdict() {
    let Some(peers) = peers() else { return };
    let mut route = Route::start(&peers, "anthropic", "/anthropic").await;
    turns(&mut route).await;
    faults(&mut route).await;
    gives_up(&mut route).await;
    route.end().await;
}

#[tokio::test]
async fn the_responses_wire_is_spoken_well_by_a_strangers_verdict() {
    let Some(peers) = peers() else { return };
    let mut route = Route::start(&peers, "responses", "/v1").await;
    turns(&mut route).await;
    faults(&mut route).await;
    gives_up(&mut route).await;
    route.end().await;
}
