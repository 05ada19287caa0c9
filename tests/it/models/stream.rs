//! What arrives of an answer: bytes, text in flight, usage.

use std::time::Duration;

use serde_json::json;

use super::{all, joined, turn, whole};
use crate::model_server::{Reply, chat};
use crate::stage::{Stage, TRANSPORTS, Transport, leave, text_of};

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
