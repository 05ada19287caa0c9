//! What fails on the way to a model, and what becomes of the turn.

use std::time::Duration;

use serde_json::{Value, json};

use super::{all, joined, turn, whole};
use crate::model_server::{Reply, chat, data};
use crate::stage::{Stage, TRANSPORTS, leave, outline, text_of};

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
