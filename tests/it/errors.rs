//! Each error of docs/protocol.md, Errors, provoked through the built program, with the facts that programs need.

use std::fs;

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, TRANSPORTS, Transport, leave, prompt};
use crate::support::Peer;

/// Awaits a refusal, checks code and kind, and gives back its data.
#[track_caller]
pub(crate) fn check<'a>(
    peer: &'a mut Peer,
    method: &'a str,
    params: Value,
    code: i64,
    kind: &'a str,
) -> impl Future<Output = Value> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let mut error = peer.refused(method, params).await;
        assert_eq!(
            (&error["code"], &error["data"]["kind"]),
            (&json!(code), &json!(kind)),
            "{error} ({caller})"
        );
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error} ({caller})");
        error["data"].take()
    }
}

#[tokio::test]
async fn before_initialize_only_the_door_is_open() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.connect().await;
        for (method, params) in [
            ("session/prompt", prompt("s", "hello", &json!({}))),
            ("session/create", json!({ "sessionId": "s", "cwd": stage.home.work() })),
            ("session/resume", json!({ "sessionId": "s" })),
            ("session/cancel", json!({ "sessionId": "s" })),
            ("session/subscribe", json!({ "sessionId": "s" })),
            ("session/unsubscribe", json!({ "sessionId": "s" })),
            ("session/read", json!({ "sessionId": "s" })),
            ("session/list", json!({})),
            ("session/queue", json!({ "sessionId": "s" })),
            ("session/wait", json!({ "sessionId": "s" })),
            ("session/close", json!({ "sessionId": "s" })),
            ("session/working-directory/get", json!({ "sessionId": "s" })),
            ("session/working-directory/set", json!({ "sessionId": "s", "path": "/" })),
            ("models/list", json!({})),
            ("server/status", json!({})),
            ("server/drain", json!({})),
        ] {
            check(&mut peer, method, params, -32002, "not_initialized").await;
        }
        assert_eq!(peer.call("server/ping", json!({})).await, json!({}));
        peer.initialize(stage.bind(&json!({}))).await;
        check(&mut peer, "session/read", json!({ "sessionId": "s" }), -32004, "session_not_found").await;
        leave(peer).await;
    }
}

#[tokio::test]
async fn wrong_parameters_are_named_by_their_path() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let text = json!([{ "type": "text", "text": "x" }]);
    for (method, params, path) in [
        ("session/prompt", json!({ "contentBlocks": text }), "sessionId"),
        ("session/prompt", json!({ "sessionId": "s" }), "contentBlocks"),
        ("session/prompt", json!({ "sessionId": "s", "contentBlocks": [] }), "contentBlocks"),
        (
            "session/prompt",
            json!({ "sessionId": "s", "contentBlocks": [{ "type": "text" }] }),
            "contentBlocks[0].text",
        ),
        (
            "session/prompt",
            json!({ "sessionId": "s", "contentBlocks": [{ "text": "x" }] }),
            "contentBlocks[0].type",
        ),
        (
            "session/prompt",
            json!({ "sessionId": "s", "contentBlocks": [{ "type": "video" }] }),
            "contentBlocks[0]",
        ),
        ("session/prompt", json!({ "sessionId": "s", "contentBlocks": "x" }), "contentBlocks"),
        ("session/prompt", prompt("s", "x", &json!({ "whenBusy": "later" })), "whenBusy"),
        ("session/prompt", prompt("s", "x", &json!({ "idempotencyKey": 7 })), "idempotencyKey"),
        ("session/prompt", prompt("", "x", &json!({})), "sessionId"),
        ("session/prompt", prompt("a\u{0}b", "x", &json!({})), "sessionId"),
        ("session/prompt", prompt("a\nb", "x", &json!({})), "sessionId"),
        ("session/prompt", prompt(&"x".repeat(257), "x", &json!({})), "sessionId"),
        ("session/prompt", prompt(&"x".repeat(10_000), "x", &json!({})), "sessionId"),
        ("session/read", json!({ "sessionId": "s", "limit": 0 }), "limit"),
        ("session/read", json!({ "sessionId": "s", "limit": 1001 }), "limit"),
        ("session/read", json!({ "sessionId": "s", "since": -2 }), "since"),
        ("session/list", json!({ "limit": 201 }), "limit"),
        ("session/list", json!({ "cursor": "nonsense" }), "cursor"),
        ("session/subscribe", json!({ "sessionId": "s", "since": 3 }), "epoch"),
        ("session/create", json!({ "sessionId": "s", "cwd": "relative" }), "cwd"),
        ("session/create", json!({ "sessionId": "s", "maxTokens": 1.5 }), "maxTokens"),
        ("session/wait", json!({ "sessionId": "s", "timeoutMs": -1 }), "timeoutMs"),
        ("session/working-directory/set", json!({ "sessionId": "s" }), "path"),
    ] {
        let data = check(&mut peer, method, params.clone(), -32602, "invalid_params").await;
        assert_eq!(data["path"], path, "{method} {params}");
    }
    // Nothing of all that has made a session.
    assert_eq!(peer.call("session/list", json!({})).await["sessions"], json!([]));
    check(&mut peer, "session/read", json!({ "sessionId": "s" }), -32004, "session_not_found").await;
    leave(peer).await;
}

#[tokio::test]
async fn an_unknown_session_is_told_by_whatever_needs_one() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    for method in ["resume", "cancel", "subscribe", "read", "queue", "wait", "close"] {
        let method = format!("session/{method}");
        check(&mut peer, &method, json!({ "sessionId": "nobody" }), -32004, "session_not_found").await;
    }
    // Letting go of what was never held is no mistake.
    assert_eq!(peer.call("session/unsubscribe", json!({ "sessionId": "nobody" })).await, json!({}));
    leave(peer).await;
}

#[tokio::test]
async fn a_second_initialize_changes_nothing() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        let again = json!({ "cwd": stage.home.path("home"), "model": "other" });
        check(&mut peer, "initialize", again, -32600, "already_initialized").await;
        let cwd = peer.call("session/working-directory/get", json!({ "sessionId": "s" })).await;
        assert_eq!(cwd["cwd"], json!(stage.home.work()));
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_busy_session_names_the_prompt_that_runs() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        let mut peer = stage.peer_with(json!({ "completion": "receipt" })).await;
        let running = peer.prompt("s", "first").await["messageId"].take();
        stage.model.request().await;
        let data =
            check(&mut peer, "session/prompt", prompt("s", "x", &json!({})), -32005, "session_busy").await;
        assert_eq!(data["sessionId"], "s");
        assert_eq!(data["messageId"], running);
        assert!(data["sinceMs"].as_u64().unwrap() > 1_600_000_000_000, "{data}");
        live.send(chat::text("hi") + &chat::finish("stop")).await;
        live.end().await;
        peer.event("turn/end").await;
        peer.take(|message| message["params"]["status"] == "idle").await;
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn over_the_limit_of_requests_in_flight_a_client_is_told_when_to_come_back_and_may_still_let_go() {
    let stage = Stage::with("", "[limits]\nin_flight = 2").await;
    let mut peer = stage.peer().await;
    let first = peer.send_prompt("a", "x").await;
    let second = peer.send_prompt("b", "x").await;
    let data = check(&mut peer, "session/prompt", prompt("c", "x", &json!({})), -32001, "overloaded").await;
    assert!(data["retryAfterMs"].as_u64().unwrap() > 0);
    check(&mut peer, "session/list", json!({}), -32001, "overloaded").await;
    for (method, params) in [
        ("server/ping", json!({})),
        ("server/status", json!({})),
        ("session/unsubscribe", json!({ "sessionId": "c" })),
        ("session/cancel", json!({ "sessionId": "a" })),
    ] {
        peer.call(method, params).await;
    }
    assert_eq!(peer.reply(first).await["result"]["status"], "aborted");
    peer.call("session/close", json!({ "sessionId": "b" })).await;
    assert_eq!(peer.reply(second).await["result"]["status"], "aborted");
    peer.call("session/list", json!({})).await;
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn the_requests_in_flight_of_all_connections_together_are_bounded() {
    let stage = Stage::with("", "[limits]\nin_flight = 1\nin_flight_total = 1").await;
    let _live = stage.live();
    let (mut a, mut b) = (stage.peer().await, stage.peer().await);
    let running = a.send_prompt("s", "x").await;
    stage.model.request().await;
    check(&mut b, "session/list", json!({}), -32001, "overloaded").await;
    a.call("session/cancel", json!({ "sessionId": "s" })).await;
    assert_eq!(a.reply(running).await["result"]["status"], "aborted");
    b.call("session/list", json!({})).await;
    a.take_aside();
    leave(a).await;
    leave(b).await;
}

#[tokio::test]
async fn a_known_session_is_not_created_again() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let made = peer.call("session/create", json!({ "sessionId": "s" })).await;
    assert_eq!(made["sessionId"], "s");
    assert_eq!(made["lastSeq"], -1);
    check(&mut peer, "session/create", json!({ "sessionId": "s" }), -32015, "session_exists").await;
    let made = peer.call("session/create", json!({})).await;
    assert!(!made["sessionId"].as_str().unwrap().is_empty());
    // Nobody has prompted them: no file.
    assert!(!stage.home.data().join("sessions").exists() || files(&stage) == 0);
    leave(peer).await;
}

fn files(stage: &Stage) -> usize {
    let mut count = 0;
    for shelf in fs::read_dir(stage.home.data().join("sessions")).unwrap() {
        count += fs::read_dir(shelf.unwrap().path()).unwrap().count();
    }
    count
}

#[tokio::test]
async fn a_provider_that_is_unknown_or_lacks_its_key_is_unavailable_and_never_replaced() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        for provider in ["nobody", "deepseek-official"] {
            let mut peer = stage.connect().await;
            let params = stage.bind(&json!({ "provider": provider }));
            check(&mut peer, "initialize", params, -32008, "provider_unavailable").await;
            // The handshake has not happened; a better one may follow.
            peer.initialize(stage.bind(&json!({}))).await;
            let create = json!({ "provider": provider });
            check(&mut peer, "session/create", create, -32008, "provider_unavailable").await;
            leave(peer).await;
        }
    }
}

#[tokio::test]
async fn limits_are_named_with_their_value() {
    let limits = "[limits]\nsubscriptions = 1\nconnections_per_uid = 3\nevent_bytes = \"8KiB\"";
    let stage = Stage::with("", limits).await;
    let mut peer = stage.peer().await;
    peer.call("session/create", json!({ "sessionId": "a" })).await;
    peer.call("session/subscribe", json!({ "sessionId": "a" })).await;
    let data =
        check(&mut peer, "session/create", json!({ "sessionId": "b" }), -32009, "limit_exceeded").await;
    assert_eq!((&data["limit"], &data["max"]), (&json!("subscriptions"), &json!(1)));
    peer.call("session/unsubscribe", json!({ "sessionId": "a" })).await;
    peer.call("session/create", json!({ "sessionId": "b" })).await;

    let long = prompt("a", &"x".repeat(9000), &json!({}));
    let data = check(&mut peer, "session/prompt", long, -32009, "limit_exceeded").await;
    assert_eq!((&data["limit"], &data["max"]), (&json!("event_bytes"), &json!(8192)));
    leave(peer).await;
}

#[tokio::test]
async fn a_connection_too_many_is_told_so_and_closed() {
    // Four more are kept for the owner, who this test is.
    let stage = Stage::with("", "[limits]\nconnections = 2").await;
    let mut peers = Vec::new();
    let refused = loop {
        let mut peer = stage.connect().await;
        let id = peer.send("server/ping", json!({})).await;
        let answer = peer.message().await;
        if answer["id"] != id {
            break (peer, answer);
        }
        peers.push(peer);
        assert!(peers.len() < 20, "no limit is met");
    };
    let (mut peer, answer) = refused;
    assert_eq!(peers.len(), 6);
    assert_eq!(answer["id"], json!(null), "{answer}");
    assert_eq!(answer["error"]["code"], -32009, "{answer}");
    assert_eq!(
        answer["error"]["data"],
        json!({ "kind": "limit_exceeded", "limit": "connections", "max": 2 })
    );
    peer.expect_eof().await;
    leave(peers.pop().unwrap()).await;
    // Its place is free once the daemon has seen it go.
    loop {
        let mut peer = stage.connect().await;
        let id = peer.send("server/ping", json!({})).await;
        let free = peer.message().await["id"] == id;
        if free {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn sessions_in_memory_are_bounded_by_those_that_run() {
    let stage = Stage::with("", "[limits]\nloaded_sessions = 2").await;
    let _lives = (stage.live(), stage.live());
    let mut peer = stage.peer_with(json!({ "completion": "receipt" })).await;
    peer.prompt("a", "x").await;
    peer.prompt("b", "x").await;
    let data =
        check(&mut peer, "session/prompt", prompt("c", "x", &json!({})), -32009, "limit_exceeded").await;
    assert_eq!((&data["limit"], &data["max"]), (&json!("loaded_sessions"), &json!(2)));
    peer.call("session/cancel", json!({ "sessionId": "a" })).await;
    stage.says(&["room"]);
    peer.prompt("c", "x").await;
    peer.take(|message| message["params"]["sessionId"] == "c" && message["params"]["status"] == "idle").await;
    peer.call("session/cancel", json!({ "sessionId": "b" })).await;
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_cursor_of_another_history_or_past_the_end_is_invalid() {
    let stage = Stage::new().await;
    stage.says(&["hi"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "hello").await;
    peer.take_aside();
    let read = peer.call("session/read", json!({ "sessionId": "s" })).await;
    let (epoch, last) = (read["epoch"].as_u64().unwrap(), read["lastSeq"].as_u64().unwrap());
    for (epoch_of, since) in [(epoch, last + 1), (epoch + 1, 3), (epoch + 1, 0)] {
        let params = json!({ "sessionId": "s", "since": since, "epoch": epoch_of });
        let data = check(&mut peer, "session/subscribe", params, -32011, "cursor_invalid").await;
        assert_eq!(data["epoch"], epoch);
        assert_eq!(data["lastSeq"], last);
    }
    let params = json!({ "sessionId": "s", "since": last, "epoch": epoch });
    assert_eq!(peer.call("session/subscribe", params).await["lastSeq"], last);
    leave(peer).await;
}

#[tokio::test]
async fn an_unknown_method_is_no_bad_frame() {
    for transport in TRANSPORTS {
        let stage = Stage::build(transport, "", "[limits]\nbad_frames = 3").await;
        let mut peer = stage.connect().await;
        for _ in 0..5 {
            check(&mut peer, "session/nonsense", json!({}), -32601, "unknown_method").await;
            check(&mut peer, "initialize", json!({ "cwd": 7 }), -32602, "invalid_params").await;
        }
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_picture_that_is_none_is_refused() {
    let stage = Stage::over(Transport::Unix).await;
    let mut peer = stage.peer().await;
    let image = json!({ "sessionId": "s", "contentBlocks": [{ "type": "image", "data": "AA==", "mimeType": "image/png" }] });
    check(&mut peer, "session/prompt", image, -32602, "invalid_params").await;
    leave(peer).await;
}
