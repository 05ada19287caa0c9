//! The quirk table through the daemon: however a server writes its calls, they run once with what was meant, or not at all
//! and the model is told; and the session goes on.

use serde_json::{Value, json};

use super::{all, turn, whole};
use crate::model_server::{Reply, WIRES, chat, data};
use crate::stage::{Stage, leave, text_of};

/// Calls as a delta of the chat wire.
fn delta(calls: &str) -> String {
    chat::delta(&format!(r#"{{"tool_calls":[{calls}]}}"#))
}

fn finish() -> String {
    chat::finish("tool_calls")
}

/// A server's habit, and what its calls print.
type Row = (&'static str, Vec<String>, &'static [&'static str]);

fn rows() -> Vec<Row> {
    let one = r#"{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"command\":\"echo one\"}"}}"#;
    let two = r#"{"index":0,"id":"b","function":{"name":"bash","arguments":"{\"command\":\"echo two\"}"}}"#;
    let without = |name: &str, text: &str| text.replace(name, "");
    vec![
        ("no index", vec![delta(&without(r#""index":0,"#, one)), finish()], &["one"]),
        (
            "no index, two calls",
            vec![delta(&without(r#""index":0,"#, &format!("{one},{two}"))), finish()],
            &["one", "two"],
        ),
        ("index 0 for both", vec![delta(one), delta(two), finish()], &["one", "two"]),
        ("no id", vec![delta(&without(r#""id":"a","#, one)), finish()], &["one"]),
        (
            "one id for both",
            vec![
                delta(one),
                delta(&two.replace("\"b\"", "\"a\"").replace("\"index\":0", "\"index\":1")),
                finish(),
            ],
            &["one", "two"],
        ),
        (
            "the call beside the finish reason",
            vec![data(&format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{one}]}},"finish_reason":"tool_calls"}}]}}"#
            ))],
            &["one"],
        ),
        (
            "arguments as an object",
            vec![
                delta(
                    r#"{"index":0,"id":"a","function":{"name":"bash","arguments":{"command":"echo one"}}}"#,
                ),
                finish(),
            ],
            &["one"],
        ),
        (
            "null for what is optional",
            vec![
                delta(
                    r#"{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"command\":\"echo one\",\"description\":null}"}}"#,
                ),
                finish(),
            ],
            &["one"],
        ),
        ("finish: stop", vec![delta(one), chat::finish("stop")], &["one"]),
        ("finish: function_call", vec![delta(one), chat::finish("function_call")], &["one"]),
        ("finish: eos", vec![delta(one), chat::finish("eos")], &["one"]),
        ("finish: nothing, then the end", vec![delta(one), chat::finish("")], &["one"]),
        ("usage after the finish", vec![delta(one), finish(), chat::usage()], &["one"]),
        (
            "names and ids that are emptied later",
            vec![
                delta(r#"{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"command\":"}}"#),
                delta(r#"{"index":0,"id":"","function":{"name":"","arguments":"\"echo one\"}"}}"#),
                finish(),
            ],
            &["one"],
        ),
    ]
}

#[tokio::test]
async fn calls_run_once_with_what_was_meant_however_a_server_writes_them() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    for (habit, parts, printed) in rows() {
        stage.model.push(whole(parts));
        stage.says(&["done"]);
        let (result, told) = turn(&mut peer, habit).await;
        assert_eq!(result["status"], "ok", "{habit}: {result}");
        let results = all(&told, "tool/result");
        let texts: Vec<String> =
            results.iter().map(|result| text_of(&result["message"]).trim().to_owned()).collect();
        assert_eq!(texts, printed, "{habit}");
        assert_paired(&stage.model.requests().last().unwrap().json(), habit);
    }
    leave(peer).await;
}

/// Every call of the history has an id of its own and one result.
#[track_caller]
fn assert_paired(body: &Value, habit: &str) {
    let messages = body["messages"].as_array().unwrap();
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message["role"].as_str().unwrap() {
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap();
                let at = open.iter().position(|known| *known == id);
                open.remove(at.unwrap_or_else(|| panic!("{habit}: a result of no call: {message}")));
            }
            role => {
                assert!(open.is_empty(), "{habit}: {open:?} have no result before {role}");
                let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                open.extend(calls.iter().map(|call| call["id"].as_str().unwrap()));
                let mut ids = open.clone();
                ids.dedup();
                assert_eq!(ids.len(), open.len(), "{habit}: {open:?}");
            }
        }
    }
    assert!(open.is_empty(), "{habit}: {open:?} have no result");
}

#[tokio::test]
async fn a_call_in_the_text_is_text_and_does_not_run() {
    for leaked in [
        r#"<tool_call>{"name":"bash","arguments":{"command":"touch ran"}}</tool_call>"#,
        r#"{"name":"bash","arguments":{"command":"touch ran"}}"#,
        "<｜tool▁calls▁begin｜>bash",
    ] {
        let stage = Stage::new().await;
        stage.says(&[leaked]);
        let mut peer = stage.peer().await;
        let (result, told) = turn(&mut peer, "x").await;
        assert_eq!(result["status"], "ok");
        assert!(all(&told, "tool/call").is_empty() && !stage.home.work().join("ran").exists());
        assert_eq!(text_of(&all(&told, "assistant/message")[0]["message"]), leaked);
        stage.daemon().wait_for_line("looks like a tool call");
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_nameless_call_is_no_answer_and_is_asked_for_again() {
    let stage = Stage::new().await;
    stage.model.push(whole([
        delta(r#"{"index":0,"id":"a","function":{"arguments":"{\"command\":\"touch ran\"}"}}"#),
        finish(),
    ]));
    stage.says(&["I see"]);
    let mut peer = stage.peer().await;
    let (result, told) = turn(&mut peer, "x").await;
    assert_eq!(result["status"], "ok", "{result}");
    assert_eq!(all(&told, "assistant/attempt")[0]["failure"]["code"], "MALFORMED_RESPONSE");
    assert!(!stage.home.work().join("ran").exists());
    leave(peer).await;
}

#[tokio::test]
async fn wrong_arguments_run_nothing_on_any_wire_and_the_model_is_told() {
    let deep = format!("{{\"command\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    let wrong = [
        "{\"command\":\"touch ran",
        "",
        "[]",
        "{\"command\":[\"touch\",\"ran\"]}",
        "{\"cmd\":\"touch ran\"}",
        &deep,
    ];
    for wire in &WIRES {
        let stage = Stage::speaking(wire, "", "").await;
        let mut peer = stage.peer().await;
        for arguments in wrong {
            stage.model.push((wire.calls)(&[("c", "bash", arguments)]));
            stage.model.push((wire.reply)(&["I see"]));
            let (result, told) = turn(&mut peer, "x").await;
            assert_eq!(result["status"], "ok", "{} {arguments}: {result}", wire.kind);
            let told = &all(&told, "tool/result")[0];
            assert_eq!(
                (&told["message"]["isError"], &told["error"]["code"]),
                (&json!(true), &json!("INVALID_ARGS")),
                "{} {arguments}: {told}",
                wire.kind
            );
        }
        assert!(!stage.home.work().join("ran").exists());
        leave(peer).await;
    }
}

/// A lone surrogate was stored, and every later request refused.
#[tokio::test]
async fn half_a_character_in_arguments_does_not_stay_in_the_session() {
    let stage = Stage::new().await;
    stage.model.push(whole([
        delta(
            r#"{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"command\":\"echo \\ud99c\"}"}}"#,
        ),
        finish(),
    ]));
    stage.says(&["one", "two"]);
    let mut peer = stage.peer().await;
    assert_eq!(turn(&mut peer, "x").await.0["status"], "ok");
    assert_eq!(turn(&mut peer, "y").await.0["status"], "ok");
    for request in stage.model.requests() {
        assert!(!request.text().to_lowercase().contains("\\ud99c"), "{}", request.text());
    }
    leave(peer).await;
}

#[tokio::test]
async fn an_answer_whose_output_limit_was_reached_before_a_word_ends_the_turn() {
    for wire in &WIRES {
        let stage = Stage::speaking(wire, "", "").await;
        let cut = match wire.kind {
            "chat" => whole([chat::finish("length")]),
            "anthropic" => Reply::stream()
                .send(crate::model_server::anthropic::start())
                .send(crate::model_server::anthropic::stop("max_tokens"))
                .end(),
            _ => Reply::stream()
                .send(crate::model_server::responses::end(
                    "incomplete",
                    r#""incomplete_details":{"reason":"max_output_tokens"},"#,
                ))
                .end(),
        };
        stage.model.push(cut);
        let mut peer = stage.peer().await;
        let (result, _) = turn(&mut peer, "x").await;
        assert_eq!(result["reason"]["kind"], "max-tokens", "{}: {result}", wire.kind);
        stage.model.push((wire.reply)(&["on we go"]));
        assert_eq!(turn(&mut peer, "y").await.0["status"], "ok", "{}", wire.kind);
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_paused_answer_is_asked_to_go_on() {
    use crate::model_server::anthropic;
    let wire = &WIRES[1];
    let stage = Stage::speaking(wire, "", "").await;
    let paused = Reply::stream().send(anthropic::start());
    let paused = paused.send(anthropic::block_start(0, r#"{"type":"text","text":"first half, "}"#));
    stage.model.push(paused.send(anthropic::block_stop(0) + &anthropic::stop("pause_turn")).end());
    stage.model.push((wire.reply)(&["second half"]));
    let mut peer = stage.peer().await;
    let (result, told) = turn(&mut peer, "x").await;
    assert_eq!(result["status"], "ok", "{result}");
    let texts: Vec<String> =
        all(&told, "assistant/message").iter().map(|event| text_of(&event["message"])).collect();
    assert_eq!(texts, ["first half, ", "second half"]);
    let asked = stage.model.requests()[1].json();
    assert_eq!(asked["messages"].as_array().unwrap().last().unwrap()["role"], "assistant");
    leave(peer).await;
}
