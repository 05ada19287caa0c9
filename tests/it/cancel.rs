//! Stopping a turn: what ends, what stays, and in which order one is told.

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::processes::{lives, pid_in};
use crate::stage::{Stage, TRANSPORTS, events, leave, outline, prompt, text_of};

#[tokio::test]
async fn a_cancel_is_answered_when_the_turn_has_settled_and_its_processes_are_gone() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.runs("(sleep 300 & echo $! > child.pid); echo $$ > tool.pid; sleep 300");
        let mut peer = stage.peer().await;
        let running = peer.send_prompt("s", "x").await;
        let pids = [
            pid_in(&stage.home.work().join("tool.pid")).await,
            pid_in(&stage.home.work().join("child.pid")).await,
        ];
        assert!(pids.iter().all(|pid| lives(*pid)));
        let cancel = peer.send("session/cancel", json!({ "sessionId": "s" })).await;
        let mut told = Vec::new();
        while told.iter().filter(|message: &&Value| message.get("id").is_some()).count() < 2 {
            let message = peer.message().await;
            if message["id"] == cancel {
                assert!(pids.iter().all(|pid| !lives(*pid)), "{transport:?}: a process lives on");
            }
            told.push(message);
        }
        let words = outline(&told);
        let at = |word: &str| words.iter().position(|found| found == word).unwrap();
        for reply in [format!("reply {running}"), format!("reply {cancel}")] {
            assert!(
                at("tool/result") < at("step/end")
                    && at("step/end") < at("turn/end")
                    && at("turn/end") < at(&reply),
                "{words:?}"
            );
        }
        let reply = |id| told.iter().find(|message| message["id"] == id).unwrap();
        assert_eq!(reply(cancel)["result"], json!({ "cancelled": true }));
        assert_eq!(reply(running)["result"]["status"], "aborted");
        assert_eq!(
            reply(running)["result"]["reason"],
            json!({ "kind": "aborted", "reason": { "kind": "user" } })
        );
        stage.says(&["after"]);
        assert_eq!(peer.prompt("s", "and now").await["status"], "ok");
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn what_was_streamed_before_a_cancel_is_kept_as_an_interrupted_message() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        let mut peer = stage.peer().await;
        let running = peer.send_prompt("s", "x").await;
        live.send(chat::text("half of ")).await;
        live.send(chat::text("an answer")).await;
        let mut heard = String::new();
        while heard != "half of an answer" {
            let chunk = peer.event("assistant/chunk").await["event"]["data"]["chunk"].take();
            heard += chunk["text"].as_str().unwrap_or_default();
        }
        assert_eq!(
            peer.call("session/cancel", json!({ "sessionId": "s" })).await,
            json!({ "cancelled": true })
        );
        live.closed().await;
        assert_eq!(peer.reply(running).await["result"]["status"], "aborted");
        let told = peer.take_aside();
        let message = events(&told).into_iter().find(|event| event["type"] == "assistant/message").unwrap();
        assert_eq!(message["data"]["interrupted"], true);
        assert_eq!(text_of(&message["data"]["message"]), "half of an answer");
        assert_eq!(message["data"].get("usage"), None);
        // The model sees what it had said.
        stage.says(&["after"]);
        peer.prompt("s", "go on").await;
        assert!(stage.model.requests()[1].text().contains("half of an answer"));
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_cancel_right_behind_its_prompt_never_overtakes_it() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        for round in 0..30 {
            // The model has no answer for any of them.
            let session = format!("s{}", round % 3);
            let ask =
                json!({ "id": 100, "method": "session/prompt", "params": prompt(&session, "x", &json!({})) });
            let cancel = json!({ "id": 101, "method": "session/cancel", "params": { "sessionId": session } });
            peer.send_bytes(format!("{ask}\n{cancel}\n").as_bytes()).await;
            let cancelled = peer.reply(101).await;
            assert_eq!(
                cancelled["result"],
                json!({ "cancelled": true }),
                "{transport:?} {round}: {cancelled}"
            );
            let end = peer.reply(100).await;
            assert_eq!(end["result"]["status"], "aborted", "{transport:?} {round}");
            let told = peer.take_aside();
            assert_eq!(events(&told).last().unwrap()["type"], "turn/end");
            assert_eq!(told.last().unwrap()["params"]["status"], "idle");
        }
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_queued_prompt_is_taken_out_and_the_rest_goes_on() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        let mut peer = stage.peer_with(json!({ "whenBusy": "queue" })).await;
        let mut ids = Vec::new();
        let mut messages = Vec::new();
        for text in ["one", "two", "three"] {
            ids.push(peer.send_prompt("s", text).await);
            let insert = peer
                .take(|message| {
                    message["params"]["event"]["data"]["inserted"][0]["content"][0]["text"] == text
                })
                .await;
            messages.push(insert["params"]["event"]["data"]["inserted"][0]["id"].clone());
        }
        stage.model.request().await;
        let cancel = json!({ "sessionId": "s", "messageId": messages[1] });
        assert_eq!(peer.call("session/cancel", cancel.clone()).await, json!({ "cancelled": true }));
        let reply = peer.reply(ids[1]).await;
        assert_eq!(
            (&reply["result"]["status"], &reply["result"]["messageId"]),
            (&json!("aborted"), &messages[1])
        );
        let told = peer.take_aside();
        let splice = events(&told).into_iter().rfind(|event| event["type"] == "agent/inbox/spliced").unwrap();
        assert_eq!(
            splice["data"],
            json!({ "target": "next-turn", "start": 0, "removedCount": 1, "outcome": "canceled", "inserted": [] })
        );
        assert_eq!(
            peer.call("session/cancel", cancel).await,
            json!({ "cancelled": false }),
            "it is gone already"
        );
        stage.says(&["to three"]);
        live.send(chat::text("to one") + &chat::finish("stop")).await;
        live.end().await;
        for id in [ids[0], ids[2]] {
            assert_eq!(peer.reply(id).await["result"]["status"], "ok");
        }
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_cancel_of_the_running_turn_lets_the_queue_go_on() {
    let stage = Stage::new().await;
    let live = stage.live();
    let mut peer = stage.peer_with(json!({ "whenBusy": "queue" })).await;
    let first = peer.send_prompt("s", "one").await;
    stage.model.request().await;
    let second = peer.send_prompt("s", "two").await;
    stage.says(&["to two"]);
    let mut other = stage.peer().await;
    assert_eq!(other.call("session/cancel", json!({ "sessionId": "s" })).await, json!({ "cancelled": true }));
    live.closed().await;
    assert_eq!(peer.reply(first).await["result"]["status"], "aborted");
    assert_eq!(peer.reply(second).await["result"]["status"], "ok");
    other.expect_silence().await;
    peer.take_aside();
    leave(peer).await;
    leave(other).await;
}

#[tokio::test]
async fn there_is_nothing_to_cancel_where_nothing_runs() {
    let stage = Stage::new().await;
    stage.says(&["hi"]);
    let mut peer = stage.peer().await;
    let done = peer.prompt("s", "x").await;
    peer.take_aside();
    for params in [
        json!({ "sessionId": "s" }),
        json!({ "sessionId": "s", "messageId": done["messageId"] }),
        json!({ "sessionId": "s", "messageId": "unknown" }),
    ] {
        assert_eq!(peer.call("session/cancel", params).await, json!({ "cancelled": false }));
    }
    leave(peer).await;
}

#[tokio::test]
async fn a_close_cancels_waits_and_keeps_the_log() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.runs("echo $$ > tool.pid; sleep 300");
        let mut peer = stage.peer().await;
        let running = peer.send_prompt("s", "x").await;
        let pid = pid_in(&stage.home.work().join("tool.pid")).await;
        assert_eq!(peer.call("session/close", json!({ "sessionId": "s" })).await, json!({}));
        assert!(!lives(pid), "{transport:?}");
        let reply = peer.reply(running).await;
        assert_eq!(reply["result"]["status"], "aborted", "{reply}");
        let closed = peer.notification("session.closed").await;
        assert_eq!(closed, json!({ "sessionId": "s", "cause": "closed" }));
        peer.take_aside();
        stage.says(&["again"]);
        assert_eq!(peer.prompt("s", "again").await["status"], "ok");
        let told = peer.take_aside();
        assert_eq!(events(&told)[0]["type"], "session/opened");
        leave(peer).await;
    }
}
