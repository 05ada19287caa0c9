//! Whole conversations, line by line, as tests/transcripts/ has them: ids, times, epochs and places replaced by names.
//!
//! With `DSHD_BLESS=1` the files are written anew; read the difference before you commit it.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, TRANSPORTS, Transport, leave, prompt};
use crate::support::Peer;

/// What is said on one connection after another, in order.
struct Record {
    lines: Vec<String>,
    names: Names,
}

/// Names of what differs from run to run, in the order of appearance.
struct Names {
    place: String,
    known: HashMap<String, String>,
}

impl Record {
    fn new(stage: &Stage) -> Self {
        let place = stage.home.work().parent().unwrap().to_str().unwrap().to_owned();
        Self { lines: Vec::new(), names: Names { place, known: HashMap::new() } }
    }

    async fn send(&mut self, peer: &mut Peer, id: u64, method: &str, params: Value) {
        let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        peer.send_line(&request.to_string()).await;
        self.names.replace(&mut request);
        self.lines.push(format!("> {request}"));
    }

    /// Takes down what comes, up to the first message that fits.
    async fn until(&mut self, peer: &mut Peer, fits: impl Fn(&Value) -> bool) {
        loop {
            let message = peer.message().await;
            let last = fits(&message);
            self.take(message);
            if last {
                return;
            }
        }
    }

    async fn until_reply(&mut self, peer: &mut Peer, id: u64) {
        self.until(peer, |message| message["id"] == id).await;
    }

    async fn until_event(&mut self, peer: &mut Peer, kind: &str) {
        self.until(peer, |message| message["params"]["event"]["type"] == kind).await;
    }

    /// How much of a text one delta has is a matter of luck: deltas in a row are one.
    fn take(&mut self, mut message: Value) {
        self.names.replace(&mut message);
        if let Some(last) = self.lines.last_mut()
            && let Some(before) = last.strip_prefix("< ")
        {
            let mut before: Value = serde_json::from_str(before).unwrap();
            if join(&mut before, &message) {
                *last = format!("< {before}");
                return;
            }
        }
        self.lines.push(format!("< {message}"));
    }

    fn note(&mut self, what: &str) {
        self.lines.push(format!("# {what}"));
    }

    /// Compares with the file, or writes it.
    #[track_caller]
    fn check(self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name);
        let text = self.lines.join("\n") + "\n";
        if std::env::var("DSHD_BLESS").is_ok_and(|value| value == "1") {
            std::fs::write(&path, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        for (at, (found, expected)) in text.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{name}, line {}", at + 1);
        }
        assert_eq!(text.lines().count(), expected.lines().count(), "{name}: more or fewer lines");
    }
}

/// Appends a delta to the same block's delta before it.
fn join(before: &mut Value, next: &Value) -> bool {
    let parts = |message: &Value| {
        let mut data = message["params"]["event"]["data"].clone();
        let chunk = data["chunk"].as_object_mut()?;
        let key = ["text", "arguments"].into_iter().find(|key| chunk.contains_key(*key))?;
        let text = chunk.remove(key)?.as_str()?.to_owned();
        // The first piece of a call has its name.
        chunk.remove("id");
        chunk.remove("name");
        Some((key, data, text))
    };
    match (parts(before), parts(next)) {
        (Some((key, data, text)), Some((next_key, next_data, more)))
            if (key, &data) == (next_key, &next_data) =>
        {
            before["params"]["event"]["data"]["chunk"][key] = json!(text + &more);
            true
        }
        _ => false,
    }
}

impl Names {
    fn name(&mut self, kind: &str, of: &str) -> Value {
        let count = self.known.values().filter(|name| name.starts_with(kind)).count();
        json!(self.known.entry(of.to_owned()).or_insert_with(|| format!("{kind}{}", count + 1)))
    }

    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            Value::String(text) if is_uuid(text) => *value = self.name("ID", &text.clone()),
            Value::String(text) => *text = text.replace(&self.place, "/PLACE"),
            Value::Object(members) => {
                let kind =
                    members.get("source").and_then(|source| source["kind"].as_str()).unwrap_or_default();
                let long = matches!(kind, "system-prompt" | "runtime-context");
                for (key, value) in members.iter_mut() {
                    match (key.as_str(), &*value) {
                        ("time" | "sinceMs", Value::Number(_)) => *value = json!(0),
                        ("epoch", Value::Number(epoch)) => *value = self.name("EPOCH", &epoch.to_string()),
                        ("version", _) => *value = json!("VERSION"),
                        ("limits" | "capabilities" | "connectionId" | "tools", _) => *value = json!("…"),
                        ("content" | "sections", Value::Array(parts)) if long => {
                            let names =
                                parts.iter().map(|part| part.get("name").unwrap_or(&part["type"]).clone());
                            *value = names.collect();
                        }
                        _ if key == "source" && long => {
                            if let Some(sections) = value.get_mut("sections") {
                                let names =
                                    sections.as_array().unwrap().iter().map(|part| part["name"].clone());
                                *sections = names.collect();
                            }
                        }
                        _ => self.replace(value),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[tokio::test]
async fn a_simple_turn() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.model.push(chat::reply(&["echo: ", "hello"]));
        let mut peer = stage.connect().await;
        let mut record = Record::new(&stage);
        record.send(&mut peer, 1001, "initialize", stage.bind(&json!({}))).await;
        record.until_reply(&mut peer, 1001).await;
        record.send(&mut peer, 1002, "session/prompt", prompt("s1", "hello", &json!({}))).await;
        record.until_reply(&mut peer, 1002).await;
        leave(peer).await;
        record.check("simple.jsonl");
    }
}

#[tokio::test]
async fn a_turn_with_a_tool() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.runs("echo hi; echo err >&2; exit 3");
        stage.says(&["done"]);
        let mut peer = stage.connect().await;
        let mut record = Record::new(&stage);
        record
            .send(&mut peer, 1001, "initialize", stage.bind(&json!({ "permissionMode": "full-access" })))
            .await;
        record.until_reply(&mut peer, 1001).await;
        record.send(&mut peer, 1002, "session/prompt", prompt("s1", "run it", &json!({}))).await;
        record.until_reply(&mut peer, 1002).await;
        leave(peer).await;
        record.check("tool-bash.jsonl");
    }
}

#[tokio::test]
async fn prompts_that_overlap() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        stage.says(&["to the third"]);
        let mut peer = stage.connect().await;
        let mut record = Record::new(&stage);
        record.send(&mut peer, 1001, "initialize", stage.bind(&json!({}))).await;
        record.until_reply(&mut peer, 1001).await;
        record.send(&mut peer, 1002, "session/prompt", prompt("s1", "first", &json!({}))).await;
        record.until_event(&mut peer, "session/title").await;
        record.send(&mut peer, 1003, "session/prompt", prompt("s1", "second", &json!({}))).await;
        record.until_reply(&mut peer, 1003).await;
        record
            .send(&mut peer, 1004, "session/prompt", prompt("s1", "third", &json!({ "whenBusy": "queue" })))
            .await;
        record.until_event(&mut peer, "agent/inbox/spliced").await;
        record.send(&mut peer, 1005, "session/queue", json!({ "sessionId": "s1" })).await;
        record.until_reply(&mut peer, 1005).await;
        live.send(chat::text("to the first") + &chat::finish("stop") + chat::DONE).await;
        live.end().await;
        // Replies may come in any order, and the first one while the third prompt's turn runs.
        let mut replies = Vec::new();
        while replies.len() < 2 {
            let message = peer.message().await;
            if message.get("id").is_some() {
                replies.push(message);
            } else {
                record.take(message);
            }
        }
        replies.sort_by_key(|reply| reply["id"].as_u64());
        record.note("the replies, the first of which may come earlier");
        for reply in replies {
            record.take(reply);
        }
        leave(peer).await;
        record.check("overlap.jsonl");
    }
}

#[tokio::test]
async fn a_session_that_goes_on_after_a_restart() {
    for transport in TRANSPORTS {
        let mut stage = Stage::over(transport).await;
        stage.says(&["one", "two"]);
        let mut record = Record::new(&stage);
        for (turn, text) in [(1, "first"), (2, "second")] {
            let mut peer = stage.connect().await;
            record.send(&mut peer, 1001, "initialize", stage.bind(&json!({}))).await;
            record.until_reply(&mut peer, 1001).await;
            if turn == 2 {
                record.send(&mut peer, 1002, "session/resume", json!({ "sessionId": "s1" })).await;
                record.until_reply(&mut peer, 1002).await;
            }
            record.send(&mut peer, 1003, "session/prompt", prompt("s1", text, &json!({}))).await;
            record.until_reply(&mut peer, 1003).await;
            leave(peer).await;
            if turn == 1 {
                stage.stop().await;
                record.note("the daemon is stopped and started again");
                if transport != Transport::Stdio {
                    stage.begin().await;
                }
            }
        }
        record.check("resume.jsonl");
    }
}

#[tokio::test]
async fn a_turn_that_a_crash_cuts_short() {
    for transport in TRANSPORTS {
        let mut stage = Stage::over(transport).await;
        let live = stage.live();
        let mut record = Record::new(&stage);
        let mut peer = stage.connect().await;
        record.send(&mut peer, 1001, "initialize", stage.bind(&json!({}))).await;
        record.until_reply(&mut peer, 1001).await;
        record.send(&mut peer, 1002, "session/prompt", prompt("s1", "first", &json!({}))).await;
        live.send(chat::text("half of an answer")).await;
        record
            .until(&mut peer, |message| message["params"]["event"]["data"]["chunk"]["text"].is_string())
            .await;
        peer.leave_unread();
        if transport == Transport::Stdio {
            peer.child().kill().await.unwrap();
        }
        stage.kill().await;
        drop(peer);
        record.note("the daemon is killed and started again");
        if transport != Transport::Stdio {
            stage.begin().await;
        }
        stage.says(&["two"]);
        let mut peer = stage.connect().await;
        record.send(&mut peer, 1001, "initialize", stage.bind(&json!({}))).await;
        record.until_reply(&mut peer, 1001).await;
        record.send(&mut peer, 1002, "session/prompt", prompt("s1", "second", &json!({}))).await;
        record.until_reply(&mut peer, 1002).await;
        leave(peer).await;
        record.check("crash.jsonl");
    }
}
