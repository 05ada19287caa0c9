//! What model servers do wrong, and what becomes of the turn: each through a real HTTP socket whose bytes the test owns.

use std::time::Duration;

use serde_json::{Value, json};

use crate::model_server::{Reply, chat, data};
use crate::stage::{Stage, TRANSPORTS, Transport, events, leave, outline, text_of};
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

#[tokio::test]
async fn characters_survive_being_cut_into_bytes() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let bytes = chat::text("那🙂é") + &chat::finish("stop") + chat::DONE;
        stage.model.push(Reply::stream().drip(bytes, Duration::from_millis(1)).end());
        let mut peer = stage.peer().await;
        let (result, told) = turn(&mut peer, "x").await;
        assert_eq!(result["status"], "ok");
        assert_eq!(text_of(&all(&told, "assistant/message")[0]["message"]), "那🙂é");
        assert_eq!(joined(&told, 1), ["那🙂é"]);
        leave(peer).await;
    }
}

#[tokio::test]
async fn the_whole_grammar_of_event_streams_is_read() {
    let stage = Stage::new().await;
    let bytes = [
        ": keep-alive\n\n",
        ":\r\n\r\n: OPENROUTER PROCESSING\n\n\n",
        "event: message\ndata:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n",
        "id: 7\r\ndata: {\"choices\":[{\"index\":0,\r\ndata: \"delta\":{\"content\":\"b\"}}]}\r\n\r\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"c\"}}]}\r\r",
        ": x\n",
    ]
    .concat();
    stage.model.push(
        Reply::stream().send(bytes).send(chat::finish("stop")).send(chat::usage()).send(chat::DONE).end(),
    );
    let mut peer = stage.peer().await;
    let (result, told) = turn(&mut peer, "x").await;
    assert_eq!(result["status"], "ok", "{result}");
    assert_eq!(text_of(&all(&told, "assistant/message")[0]["message"]), "abc");
    leave(peer).await;
}

#[tokio::test]
async fn later_pieces_of_a_call_do_not_overwrite_its_id_and_name() {
    let stage = Stage::new().await;
    let piece = |id: &str, name: &str, arguments: &str| {
        chat::delta(&format!(
            r#"{{"tool_calls":[{{"index":0,"id":{id},"type":"function","function":{{"name":{name},"arguments":{}}}}}]}}"#,
            json!(arguments)
        ))
    };
    stage.model.push(whole([
        piece("\"call_a\"", "\"bash\"", ""),
        piece("null", "null", "{\"command\":\"echo whole\","),
        piece("\"\"", "\"\"", "\"description\":\"x\"}"),
        chat::finish("tool_calls"),
    ]));
    stage.says(&["done"]);
    let mut peer = stage.peer().await;
    let (_, told) = turn(&mut peer, "x").await;
    let call = &all(&told, "tool/call")[0];
    assert_eq!((&call["callId"], &call["name"]), (&json!("call_a"), &json!("bash")));
    assert_eq!(text_of(&all(&told, "tool/result")[0]["message"]).trim(), "whole");
    leave(peer).await;
}

#[tokio::test]
async fn a_piece_without_index_belongs_to_the_only_open_call_and_to_none_of_two() {
    let stage = Stage::new().await;
    let open = |index: u32, command: &str| chat::call(index, &format!("c{index}"), "bash", command);
    let rest =
        chat::delta(r#"{"tool_calls":[{"function":{"arguments":"echo one\",\"description\":\"x\"}"}}]}"#);
    stage.model.push(whole([open(0, "{\"command\":\""), rest.clone(), chat::finish("tool_calls")]));
    stage.says(&["done"]);
    let mut peer = stage.peer().await;
    let (_, told) = turn(&mut peer, "x").await;
    assert_eq!(text_of(&all(&told, "tool/result")[0]["message"]).trim(), "one");

    for _ in 0..2 {
        stage.model.push(whole([
            open(0, "{\"command\":\"touch ran; "),
            open(1, "{\"command\":\"touch ran; "),
            rest.clone(),
            chat::finish("tool_calls"),
        ]));
    }
    let (result, told) = turn(&mut peer, "y").await;
    assert_eq!(result["status"], "error", "{result}");
    assert_eq!(result["reason"]["error"]["code"], "MALFORMED_RESPONSE", "{result}");
    assert!(all(&told, "tool/call").is_empty());
    assert!(!stage.home.work().join("ran").exists());
    leave(peer).await;
}

#[tokio::test]
async fn an_answer_without_finish_is_no_answer_and_its_calls_do_not_run() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let cut = || {
            Reply::stream().send(chat::text("I will ")).send(chat::call(
                0,
                "c",
                "bash",
                r#"{"command":"touch ran","description":"x"}"#,
            ))
        };
        stage.model.push(cut().close());
        stage.model.push(cut().end());
        let mut peer = stage.peer().await;
        let (result, told) = turn(&mut peer, "x").await;
        assert_eq!(
            (&result["status"], &result["reason"]["kind"]),
            (&json!("error"), &json!("error")),
            "{result}"
        );
        let attempts = all(&told, "assistant/attempt");
        assert_eq!(attempts.len(), 2, "it is asked once more");
        for attempt in &attempts {
            assert_eq!(attempt["text"], "I will ", "{attempt}");
            assert!(attempt["failure"]["code"].is_string());
        }
        assert!(all(&told, "assistant/message").is_empty() && all(&told, "tool/call").is_empty());
        assert!(!stage.home.work().join("ran").exists());
        // None of it goes back to the model.
        stage.says(&["fine"]);
        assert_eq!(turn(&mut peer, "again").await.0["status"], "ok");
        assert!(!stage.model.requests()[2].text().contains("I will"));
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_given_up_and_asked_again() {
    let stage = Stage::with("idle_timeout = \"300ms\"", "").await;
    stage.model.push(Reply::stream().send(chat::reasoning("thinking about")).stall());
    stage.says(&["the answer"]);
    let mut peer = stage.peer().await;
    let (result, told) = turn(&mut peer, "x").await;
    assert_eq!(result["status"], "ok", "{result}");
    let attempt = &all(&told, "assistant/attempt")[0];
    assert_eq!(attempt["failure"]["code"], "TIMEOUT", "{attempt}");
    assert_eq!(joined(&told, 2), ["the answer"]);
    assert_eq!(text_of(&all(&told, "assistant/message")[0]["message"]), "the answer");
    leave(peer).await;
}

#[tokio::test]
async fn a_server_that_never_answers_is_asked_again() {
    let stage = Stage::with("header_timeout = \"300ms\"\nmax_retries = 1", "").await;
    stage.model.push(Reply::silence());
    stage.says(&["the answer"]);
    let mut peer = stage.peer().await;
    let (result, told) = turn(&mut peer, "x").await;
    assert_eq!(result["status"], "ok", "{result}");
    assert_eq!(all(&told, "llm/retry")[0]["failure"]["code"], "TIMEOUT");
    // Again and again: it ends.
    stage.model.push(Reply::silence());
    stage.model.push(Reply::silence());
    let (result, told) = turn(&mut peer, "y").await;
    assert_eq!(result["reason"]["error"]["code"], "TIMEOUT", "{result}");
    assert_eq!(all(&told, "llm/retry").len(), 1);
    leave(peer).await;
}

#[tokio::test]
async fn comments_keep_a_slow_model_alive() {
    let stage = Stage::with("idle_timeout = \"500ms\"", "").await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let running = peer.send_prompt("s", "x").await;
    stage.model.request().await;
    for _ in 0..8 {
        live.send(": keep-alive\n\n").await;
        // Real time is what this is about: the sum is longer than the idle timeout.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    live.send(chat::text("at last") + &chat::finish("stop") + chat::DONE).await;
    live.end().await;
    assert_eq!(peer.reply(running).await["result"]["status"], "ok");
    assert!(all(&peer.take_aside(), "llm/retry").is_empty());
    leave(peer).await;
}

#[tokio::test]
async fn reasoning_of_a_step_with_calls_goes_back_after_a_restart_too() {
    let mut stage = Stage::with("", "[providers.fake.models.m]\nthinking = true").await;
    let arguments = r#"{"command":"echo hi",  "description":"x"}"#;
    stage.model.push(whole([
        chat::reasoning("first I "),
        chat::reasoning("think"),
        chat::call(0, "call_é", "bash", arguments),
        chat::finish("tool_calls"),
    ]));
    stage.says(&["done"]);
    let mut peer = stage.peer().await;
    let (_, told) = turn(&mut peer, "x").await;
    let step = told.iter().position(|message| message["params"]["event"]["type"] == "step/end").unwrap();
    assert_eq!(joined(&told[..step], 1), ["first I think", arguments]);
    leave(peer).await;
    stage.stop().await;

    stage.begin().await;
    stage.says(&["again"]);
    let mut peer = stage.peer().await;
    assert_eq!(turn(&mut peer, "y").await.0["status"], "ok");
    let asked = stage.model.requests()[2].json();
    let calling = asked["messages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|message| message["tool_calls"].is_array())
        .unwrap();
    assert_eq!(calling["reasoning_content"], "first I think", "{asked}");
    assert_eq!(calling["tool_calls"][0]["id"], "call_é");
    assert_eq!(calling["tool_calls"][0]["function"]["arguments"], arguments, "byte for byte");
    let first = stage.model.requests()[1].json();
    let (before, now) = (first["messages"].as_array().unwrap(), asked["messages"].as_array().unwrap());
    assert_eq!(before[..], now[..before.len()], "the prefix is what caches bill by");
    leave(peer).await;
}

#[tokio::test]
async fn arguments_that_are_no_json_run_nothing_and_the_model_is_told() {
    for arguments in ["{\"command\":\"touch ran", "", "[]", "{\"description\":\"touch ran\"}"] {
        let stage = Stage::new().await;
        stage.model.push(chat::calls(&[("c", "bash", arguments)]));
        stage.says(&["I see"]);
        let mut peer = stage.peer().await;
        let (result, told) = turn(&mut peer, "x").await;
        assert_eq!(result["status"], "ok", "{arguments}: {result}");
        let results = all(&told, "tool/result");
        assert_eq!(results[0]["message"]["isError"], true, "{arguments}");
        let again = stage.model.requests()[1].json();
        let last = again["messages"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["role"], &last["tool_call_id"]), (&json!("tool"), &json!("c")));
        assert!(!stage.home.work().join("ran").exists());
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_call_of_an_unknown_tool_is_an_error_to_the_model() {
    let stage = Stage::new().await;
    stage.model.push(chat::calls(&[("c", "teleport", "{}")]));
    stage.says(&["I see"]);
    let mut peer = stage.peer().await;
    let (result, told) = turn(&mut peer, "x").await;
    assert_eq!(result["status"], "ok");
    assert_eq!(all(&told, "tool/result")[0]["message"]["isError"], true);
    leave(peer).await;
}

#[tokio::test]
async fn a_busy_server_is_asked_again_and_each_retry_is_told() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.model.push(Reply::status(503).json(r#"{"error":{"message":"overloaded"}}"#));
        stage
            .model
            .push(Reply::status(429).header("retry-after", "0").json(r#"{"error":{"message":"slow down"}}"#));
        stage.model.push(Reply::hang_up());
        stage.says(&["at last"]);
        let mut peer = stage.peer().await;
        let (result, told) = turn(&mut peer, "x").await;
        assert_eq!(result["status"], "ok", "{result}");
        let (retries, started) = (all(&told, "llm/retry"), all(&told, "llm/retry-started"));
        let codes: Vec<&Value> = retries.iter().map(|retry| &retry["failure"]["code"]).collect();
        assert_eq!(codes, ["SERVER", "RATE_LIMIT", "TRANSPORT"]);
        assert_eq!(retries[0]["failure"]["status"], 503);
        for (at, (retry, started)) in retries.iter().zip(&started).enumerate() {
            assert_eq!(
                started,
                &json!({ "retryId": retry["retryId"], "turn": 1, "step": 1, "retry": at + 1 })
            );
            assert_eq!((&retry["retry"], &retry["maxRetries"]), (&json!(at + 1), &json!(5)));
            assert!(retry["delayMs"].is_u64() && retry["provider"] == "fake");
        }
        assert!(all(&told, "assistant/attempt").is_empty());
        assert_eq!(stage.model.requests().len(), 4);
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_refusal_that_no_retry_mends_is_not_retried() {
    let rows = [
        (401, r#"{"error":{"message":"bad key"}}"#, "AUTH"),
        (402, r#"{"error":{"message":"Insufficient Balance"}}"#, "QUOTA"),
        (400, r#"{"error":{"message":"wrong field"}}"#, "INVALID_REQUEST"),
    ];
    for (status, body, code) in rows {
        let stage = Stage::new().await;
        stage.model.push(Reply::status(status).json(body));
        let mut peer = stage.peer().await;
        let (result, told) = turn(&mut peer, "x").await;
        let error = &result["reason"]["error"];
        assert_eq!((&error["code"], &error["status"]), (&json!(code), &json!(status)), "{error}");
        assert!(!error["message"].as_str().unwrap().contains("sk-test"));
        let attempt = &all(&told, "assistant/attempt")[0];
        assert_eq!(attempt["failure"], *error);
        assert_eq!(stage.model.requests().len(), 1);
        leave(peer).await;
    }
}

#[tokio::test]
async fn text_that_breaks_off_is_voided_and_asked_for_again() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage
            .model
            .push(Reply::stream().send(chat::text("half of ")).pause(Duration::from_millis(50)).reset());
        stage.says(&["the whole"]);
        let mut peer = stage.peer().await;
        let (result, told) = turn(&mut peer, "x").await;
        assert_eq!(result["status"], "ok", "{result}");
        let words = outline(&told);
        let from = words.iter().position(|word| word == "assistant/chunk").unwrap();
        let expected = [
            "assistant/chunk",
            "assistant/attempt",
            "llm/retry",
            "llm/retry-started",
            "assistant/chunk",
            "assistant/message",
            "step/end",
            "turn/end",
            "idle",
        ];
        assert_eq!(words[from..], expected);
        let attempt = &all(&told, "assistant/attempt")[0];
        assert_eq!(
            (&attempt["text"], &attempt["failure"]["code"]),
            (&json!("half of "), &json!("TRANSPORT"))
        );
        assert_eq!(
            (joined(&told, 1), joined(&told, 2)),
            (vec!["half of ".to_owned()], vec!["the whole".to_owned()])
        );
        leave(peer).await;
    }
}

#[tokio::test]
async fn usage_counts_each_token_once() {
    let stage = Stage::new().await;
    stage.says(&["hi"]);
    let mut peer = stage.peer().await;
    let (_, told) = turn(&mut peer, "x").await;
    let usage = json!({ "inputTokens": 6, "outputTokens": 2, "cacheReadTokens": 4, "cacheWriteTokens": 0, "totalTokens": 12 });
    assert_eq!(all(&told, "assistant/message")[0]["usage"], usage);
    leave(peer).await;
}

#[tokio::test]
async fn joined_deltas_are_the_content_of_each_block() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let arguments = r#"{"command":"true","description":"x"}"#;
        let mut parts: Vec<String> = (0..200).map(|n| chat::reasoning(&format!("r{n} "))).collect();
        parts.extend((0..300).map(|n| chat::text(&format!("t{n}\"\\\n🙂 "))));
        parts.extend([chat::call(0, "c", "bash", arguments), chat::finish("tool_calls")]);
        stage.model.push(whole(parts));
        stage.says(&["end"]);
        let mut peer = stage.peer().await;
        let (_, told) = turn(&mut peer, "x").await;
        let end = told
            .iter()
            .position(|message| message["params"]["event"]["type"] == "assistant/message")
            .unwrap();
        let content = told[end]["params"]["event"]["data"]["message"]["content"].as_array().unwrap();
        let texts: Vec<&str> = content
            .iter()
            .map(|block| block["text"].as_str().or(block["arguments"].as_str()).unwrap())
            .collect();
        assert_eq!(joined(&told[..end], 1), texts);
        assert_eq!(texts.len(), 3);
        leave(peer).await;
    }
}

#[tokio::test]
async fn who_wants_no_deltas_gets_none() {
    let stage = Stage::new().await;
    stage.says(&["hi"]);
    let mut peer = stage.peer_with(json!({ "deltas": false })).await;
    let (_, told) = turn(&mut peer, "x").await;
    assert!(told.iter().all(|message| message["params"]["event"]["type"] != "assistant/chunk"));
    assert_eq!(text_of(&all(&told, "assistant/message")[0]["message"]), "hi");
    leave(peer).await;
}

#[tokio::test]
async fn who_comes_in_the_middle_first_gets_the_text_so_far() {
    for transport in [Transport::Unix, Transport::Tcp] {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        let mut first = stage.peer().await;
        let running = first.send_prompt("s", "x").await;
        live.send(chat::text("text ") + &chat::text("so far")).await;
        let mut heard = String::new();
        while heard != "text so far" {
            heard += first.event("assistant/chunk").await["event"]["data"]["chunk"]["text"]
                .as_str()
                .unwrap_or_default();
        }
        let mut late = stage.peer().await;
        let subscribed = late.call("session/subscribe", json!({ "sessionId": "s" })).await;
        assert_eq!(subscribed["status"], "running");
        let start = late.event("assistant/chunk").await;
        assert_eq!(
            start["event"]["data"]["chunk"],
            json!({ "type": "block-start", "index": 0, "blockType": "text" })
        );
        let delta = late.event("assistant/chunk").await;
        assert_eq!(
            delta["event"]["data"]["chunk"],
            json!({ "type": "text-delta", "index": 0, "text": "text so far" })
        );
        live.send(chat::text(", and more") + &chat::finish("stop") + chat::DONE).await;
        live.end().await;
        first.reply(running).await;
        late.event("turn/end").await;
        late.take(|message| message["params"]["status"] == "idle").await;
        first.take_aside();
        late.take_aside();
        leave(first).await;
        leave(late).await;
    }
}

#[tokio::test]
async fn an_empty_answer_is_retried_and_then_an_error() {
    let stage = Stage::with("max_retries = 1", "").await;
    for _ in 0..2 {
        stage.model.push(whole([data(
            r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}"#,
        )]));
    }
    let mut peer = stage.peer().await;
    let (result, told) = turn(&mut peer, "x").await;
    assert_eq!(result["reason"]["error"]["code"], "EMPTY_RESPONSE", "{result}");
    assert_eq!(all(&told, "llm/retry").len(), 1);
    leave(peer).await;
}
