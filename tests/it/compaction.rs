//! Conversations longer than their model's window: what is cut, what is summarised, and that they go on.

use serde_json::{Value, json};

use crate::model_server::{Received, Reply, chat};
use crate::stage::{Stage, leave, text_of};
use crate::support::{Daemon, Home, of_type};

/// A model without tools that reads 3,000 tokens: what is over 2,250 is too long.
const SMALL: &str = "[providers.fake.models.m]\ncontext_window = 3000\ntools = false";

/// A whole answer whose size nobody counts.
fn says(text: &str) -> Reply {
    Reply::stream().send(chat::text(text)).send(chat::finish("stop")).send(chat::DONE).end()
}

/// About 600 tokens that name themselves.
fn long(name: &str) -> String {
    format!("{name} {}", "x".repeat(2400))
}

fn too_long() -> Reply {
    Reply::status(400).json(
        r#"{"error":{"message":"This model's maximum context length is 9 tokens","code":"context_length_exceeded"}}"#,
    )
}

/// The messages of a request, each as its role and its content's text.
fn messages(request: &Value) -> Vec<(String, String)> {
    let of = |message: &Value| {
        let content =
            message["content"].as_str().map_or_else(|| message["content"].to_string(), str::to_owned);
        (message["role"].as_str().unwrap().to_owned(), content)
    };
    request["messages"].as_array().unwrap().iter().map(of).collect()
}

/// Two turns that fill the window, on session `s`.
async fn fill(stage: &Stage, peer: &mut crate::support::Peer) {
    for name in ["one", "two"] {
        stage.model.push(says(&"y".repeat(1200)));
        assert_eq!(peer.prompt("s", &long(name)).await["status"], "ok");
        stage.model.request().await;
    }
}

#[tokio::test]
async fn what_was_said_is_summarised_and_a_restart_changes_no_byte() {
    let mut stage = Stage::with("", SMALL).await;
    let mut peer = stage.peer().await;
    fill(&stage, &mut peer).await;
    stage.model.push(says("SUMMARY OF ONE"));
    stage.model.push(says("ok"));
    assert_eq!(peer.prompt("s", &long("three")).await["status"], "ok");
    let asked = stage.model.request().await.json();
    assert!(asked.get("tools").is_none(), "{asked}");
    let asked = messages(&asked);
    assert!(asked[1].1.contains("[user] one") && asked[1].1.contains("[agent] yyy"), "{asked:?}");
    let sent = stage.model.request().await;
    let seen = messages(&sent.json());
    let begins: Vec<(&str, &str)> =
        seen.iter().map(|(role, text)| (role.as_str(), &text[..text.len().min(8)])).collect();
    assert_eq!(begins[0].0, "system");
    assert_eq!(
        begins[1..],
        [
            ("user", "The 3 me"),
            ("user", "two xxxx"),
            ("assistant", "yyyyyyyy"),
            ("user", "three xx"),
            ("user", "The work"),
        ]
    );
    assert!(seen[1].1.contains("SUMMARY OF ONE"), "{seen:?}");
    let log = stage.home.logged("s");
    let summary = of_type(&log, "compaction/summary")[0];
    let replacing = log.iter().find(|event| event["surfaceOp"]["op"] == "replace").unwrap();
    assert_eq!(replacing["data"]["source"]["kind"], "compaction");
    assert_eq!(replacing["sourceEventSeqs"], summary["data"]["shadowedSeqs"]);
    assert_eq!(replacing["surfaceOp"]["startSeq"], summary["data"]["shadowedRange"]["start"]);
    assert!(summary["data"]["shadowedTokenCount"].as_u64().unwrap() > 900, "{summary}");
    let order: Vec<&str> = log
        .iter()
        .filter_map(|event| event["type"].as_str().filter(|kind| kind.starts_with("compaction/")))
        .collect();
    assert_eq!(order, ["compaction/start", "compaction/summary", "compaction/end"]);
    // The session leaves memory, then the daemon ends: both lives begin with what the one before had sent.
    peer.call("session/close", json!({ "sessionId": "s" })).await;
    let after_close = asks_on(&stage, &mut peer, &sent).await;
    leave(peer).await;
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    asks_on(&stage, &mut peer, &after_close).await;
    leave(peer).await;
}

/// Prompts once more: the request begins with all messages of the one before, byte for byte.
async fn asks_on(stage: &Stage, peer: &mut crate::support::Peer, before: &Received) -> Received {
    stage.model.push(says("fine"));
    assert_eq!(peer.prompt("s", "more").await["status"], "ok");
    peer.take_aside();
    let next = stage.model.request().await;
    let messages = before.text().split_once(r#""messages":["#).unwrap().1;
    let end = messages.rfind(']').unwrap();
    assert!(next.text().contains(&messages[..end]), "\n{}\n{}", before.text(), next.text());
    next
}

#[tokio::test]
async fn a_result_larger_than_the_window_is_cut_and_stays_cut_after_a_restart() {
    let mut stage = Stage::with("", "[providers.fake.models.m]\ncontext_window = 12000").await;
    let mut peer = stage.peer().await;
    stage.runs("head -c 45000 /dev/zero | tr '\\0' x");
    stage.says(&["short enough"]);
    assert_eq!(peer.prompt("s", "print much").await["status"], "ok");
    stage.model.request().await;
    let sent = messages(&stage.model.request().await.json());
    let result = &sent.iter().find(|(role, _)| role == "tool").unwrap().1;
    assert!(result.starts_with("xxx") && result.contains("were cut to make room"), "{result}");
    assert!(result.len() < 25_000, "{}", result.len());
    let log = stage.home.logged("s");
    let (results, calls) = (of_type(&log, "tool/result"), of_type(&log, "tool/call"));
    assert_eq!((results.len(), calls.len()), (2, 1));
    assert_eq!(results[1]["sourceEventSeqs"], json!([results[0]["seq"]]));
    assert!(of_type(&log, "compaction/summary").is_empty());
    peer.take_aside();
    leave(peer).await;
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    stage.says(&["fine"]);
    peer.prompt("s", "more").await;
    let again = messages(&stage.model.request().await.json());
    assert_eq!(again[..sent.len()], sent[..]);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_summary_that_fails_does_not_end_the_turn() {
    let stage = Stage::with("", SMALL).await;
    let mut peer = stage.peer().await;
    fill(&stage, &mut peer).await;
    stage.model.push(Reply::status(401).json("{}"));
    stage.model.push(says("all the same"));
    assert_eq!(peer.prompt("s", &long("three")).await["status"], "ok");
    let log = stage.home.logged("s");
    let end = of_type(&log, "compaction/end")[0];
    assert!(end["data"]["error"].as_str().unwrap().starts_with("AUTH: "), "{end}");
    assert!(log.iter().all(|event| event["surfaceOp"]["op"] != "replace"));
    assert_eq!(
        text_of(&of_type(&log, "assistant/message").last().unwrap()["data"]["message"]),
        "all the same"
    );
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_cancel_while_it_is_summarised_loses_nothing() {
    let stage = Stage::with("", SMALL).await;
    let mut peer = stage.peer().await;
    fill(&stage, &mut peer).await;
    let live = stage.live();
    let third = peer.send_prompt("s", &long("three")).await;
    stage.model.request().await;
    live.send(chat::text("half a summ")).await;
    assert_eq!(peer.call("session/cancel", json!({ "sessionId": "s" })).await["cancelled"], true);
    assert_eq!(peer.reply(third).await["result"]["status"], "aborted");
    let log = stage.home.logged("s");
    assert_eq!(of_type(&log, "compaction/end")[0]["data"]["error"], "it was cancelled");
    stage.model.push(says("SUMMARY"));
    stage.model.push(says("done"));
    assert_eq!(peer.prompt("s", "go on").await["status"], "ok");
    stage.model.request().await;
    let seen = messages(&stage.model.request().await.json());
    assert!(seen.iter().any(|(_, text)| text.starts_with("three ")), "{seen:?}");
    assert!(seen.iter().any(|(_, text)| text.contains("SUMMARY")), "{seen:?}");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_crash_while_it_is_summarised_is_closed_with_the_turn() {
    let mut stage = Stage::with("", SMALL).await;
    let mut peer = stage.peer().await;
    fill(&stage, &mut peer).await;
    let _live = stage.live();
    peer.send_prompt("s", &long("three")).await;
    stage.model.request().await;
    peer.leave_unread();
    stage.kill().await;
    drop(peer);
    stage.begin().await;
    let mut peer = stage.peer().await;
    stage.model.push(says("SUMMARY"));
    stage.model.push(says("done"));
    assert_eq!(peer.prompt("s", "go on").await["status"], "ok");
    let log = stage.home.logged("s");
    let kinds: Vec<&str> = log.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let opened = kinds.iter().rposition(|kind| *kind == "session/opened").unwrap();
    assert_eq!(kinds[opened + 1..opened + 4], ["compaction/end", "step/end", "turn/end"]);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn instructions_that_were_summarised_in_mid_turn_are_told_again() {
    let stage = Stage::with("", "[providers.fake.models.m]\ncontext_window = 12000").await;
    std::fs::write(stage.home.work().join("AGENTS.md"), "use tabs").unwrap();
    let mut peer = stage.peer().await;
    stage.model.push(says(&"y".repeat(1200)));
    peer.prompt("s", &long("one")).await;
    // The provider counts more than we would: the next step has no room.
    let full = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9000,\"completion_tokens\":9,\"total_tokens\":9009}}\n\n";
    let call = chat::call(0, "call_1", "bash", r#"{"command":"echo hi","description":"x"}"#);
    stage
        .model
        .push(Reply::stream().send(call).send(chat::finish("tool_calls")).send(full).send(chat::DONE).end());
    stage.model.push(says("SUMMARY"));
    stage.model.push(says("done"));
    assert_eq!(peer.prompt("s", "two").await["status"], "ok");
    let sent = messages(&stage.model.requests().pop().unwrap().json());
    assert!(sent.iter().any(|(_, text)| text.contains("SUMMARY")), "{sent:?}");
    let (last, before) = (&sent[sent.len() - 1].1, &sent[sent.len() - 2].1);
    assert!(before.ends_with("use tabs"), "{sent:?}");
    assert!(last.starts_with("The working directory is "), "{sent:?}");
    assert_eq!(sent.iter().filter(|(_, text)| text.ends_with("use tabs")).count(), 1);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_provider_that_finds_it_too_long_is_asked_once_more_after_a_summary() {
    let stage = Stage::with("", "[providers.fake.models.m]\ntools = false").await;
    let mut peer = stage.peer().await;
    fill(&stage, &mut peer).await;
    stage.model.push(too_long());
    stage.model.push(says("SUMMARY"));
    stage.model.push(says("now it fits"));
    assert_eq!(peer.prompt("s", "three").await["status"], "ok");
    stage.model.request().await;
    stage.model.request().await;
    let seen = messages(&stage.model.request().await.json());
    assert!(seen[1].1.contains("SUMMARY"), "{seen:?}");
    assert!(seen.last().unwrap().1.starts_with("The working directory"), "told again: {seen:?}");
    // What is still too long then is an error, and no endless loop.
    stage.model.push(too_long());
    stage.model.push(says("SUMMARY"));
    stage.model.push(too_long());
    let reply = peer.prompt("s", &long("four")).await;
    assert_eq!(reply["reason"]["error"]["code"], "CONTEXT_WINDOW_EXCEEDED");
    peer.take_aside();
    leave(peer).await;
}

/// What the model sees, as anybody can build it from the log: appended messages, and those that replace others.
#[derive(Default)]
struct Surface(Vec<(u64, Value)>);

impl Surface {
    fn take(&mut self, event: &Value) {
        let seq = event["seq"].as_u64().unwrap();
        let message = match event["type"].as_str().unwrap() {
            "user/message" => event["data"].clone(),
            "system/message" | "assistant/message" | "tool/result" => event["data"]["message"].clone(),
            _ => return,
        };
        if event["surfaceOp"]["op"] == "replace" {
            let gone: Vec<u64> = event["sourceEventSeqs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|seq| seq.as_u64().unwrap())
                .collect();
            let at = self.0.iter().position(|(seq, _)| gone.contains(seq)).unwrap();
            self.0.retain(|(seq, _)| !gone.contains(seq));
            self.0.insert(at, (seq, message));
        } else {
            self.0.push((seq, message));
        }
    }

    /// The instructions are there, the newest prompt is, each call has its results behind it, and all of it is short.
    fn check(&self, newest: &str, bytes_max: usize) {
        assert_eq!(self.0[0].1["role"], "system");
        let is_newest =
            |message: &Value| message["source"]["kind"] == "user" && text_of(message).starts_with(newest);
        assert!(self.0.iter().any(|(_, message)| is_newest(message)), "the prompt {newest} is gone");
        let mut open: Vec<String> = Vec::new();
        for (_, message) in &self.0 {
            if message["role"] == "tool" {
                let id = message["toolCallId"].as_str().unwrap();
                let at = open.iter().position(|other| other == id).expect("a result behind its call");
                open.remove(at);
            } else {
                assert!(open.is_empty(), "without result: {open:?}");
                let calls = message["content"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|block| block["type"] == "tool-call");
                open.extend(calls.map(|block| block["id"].as_str().unwrap().to_owned()));
            }
        }
        assert!(open.is_empty(), "without result: {open:?}");
        let bytes: usize = self.0.iter().map(|(_, message)| message["content"].to_string().len()).sum();
        assert!(bytes <= bytes_max, "{bytes}");
    }
}

/// Each turn is about a window long: 60 of them.
#[tokio::test]
async fn a_conversation_of_many_windows_goes_on() {
    let home = Home::new();
    home.scripted(
        &[
            r#"{"prompt":"Write the summary now","parts":[{"text":"What was said, in short."}]}"#,
            r#"{"step":1,"parts":[{"text":"I look."},{"tool":"bash","arguments":{"command":"head -c 30000 /dev/zero | tr '\\0' x","description":"Print much"}},{"tool":"bash","arguments":{"command":"echo done","description":"Print little"}}]}"#,
            r#"{"parts":[{"text":"answered ","repeat":300}]}"#,
        ],
        "[providers.scripted.models.small]\ncontext_window = 12000",
    );
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.connect().await;
    peer.initialize(json!({ "cwd": home.work(), "model": "small", "provider": "scripted", "deltas": false }))
        .await;
    for turn in 0..60 {
        let text = format!("prompt {turn}: {}", "z".repeat(4000));
        let reply = peer.prompt("s", &text).await;
        assert_eq!(reply["status"], "ok", "{reply}");
        peer.take_aside();
    }
    let log = home.logged("s");
    let mut surface = Surface::default();
    let (mut turn, mut checked) = (0, 0);
    for event in &log {
        match event["type"].as_str().unwrap() {
            "turn/start" => turn = event["data"]["turn"].as_u64().unwrap(),
            "assistant/message" => {
                surface.check(&format!("prompt {}:", turn - 1), 4 * 12_000);
                checked += 1;
            }
            _ => {}
        }
        surface.take(event);
    }
    assert_eq!(checked, 120);
    let summaries = of_type(&log, "compaction/summary").len();
    assert!(summaries > 5, "{summaries}");
    leave(peer).await;
}
