//! One prompt: what comes in which order, to whom, and in which bytes.

use serde_json::{Value, json};

use crate::model_server::{Reply, chat};
use crate::stage::{Stage, TRANSPORTS, Transport, events, leave, outline, prompt, text_of};
use crate::support::Peer;

const FIRST_TURN: [&str; 19] = [
    "session/opened",
    "permission/preset",
    "sandbox/mode",
    "approval/policy",
    "agent/inbox/spliced",
    "running",
    "turn/start",
    "agent/inbox/spliced",
    "step/start",
    "system/message",
    "user/message",
    "user/message",
    "request/header",
    "request/context",
    "session/title",
    "assistant/chunk",
    "assistant/message",
    "step/end",
    "turn/end",
];

#[tokio::test]
async fn a_settled_prompt_is_answered_after_all_its_events_in_their_order() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.says(&["hello to you"]);
        let mut peer = stage.peer().await;
        let id = peer.send_prompt("s", "hello").await;
        let mut told = Vec::new();
        while told.last().is_none_or(|last: &Value| last["id"] != id) {
            told.push(peer.message().await);
        }
        let reply = format!("reply {id}");
        let expected: Vec<&str> = FIRST_TURN.into_iter().chain(["idle", &reply]).collect();
        assert_eq!(outline(&told), expected, "{transport:?}");
        let reply = told.pop().unwrap();
        assert_eq!(
            (&reply["result"]["status"], &reply["result"]["reason"]),
            (&json!("ok"), &json!({ "kind": "completed" }))
        );
        let stored = events(&told);
        for (seq, event) in stored.iter().enumerate() {
            assert_eq!(event["seq"], seq);
        }
        assert_eq!(reply["result"]["messageId"], stored[4]["data"]["inserted"][0]["id"]);
        let epoch = &stored[0]["data"]["epoch"];
        assert!(told.iter().all(|message| message["params"].get("epoch").is_none_or(|other| other == epoch)));
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_receipt_follows_its_insert_and_the_turn_goes_on() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        let mut peer = stage.peer_with(json!({ "completion": "receipt" })).await;
        let id = peer.send_prompt("s", "hello").await;
        // The model has said nothing yet: the receipt does not wait for it.
        let mut receipt = peer.reply(id).await;
        let before = peer.take_aside();
        let insert =
            events(&before).into_iter().find(|event| event["type"] == "agent/inbox/spliced").unwrap();
        assert_eq!(receipt["result"].take(), json!({ "messageId": insert["data"]["inserted"][0]["id"] }));
        live.send(chat::text("hi") + &chat::finish("stop")).await;
        live.end().await;
        let end = peer.event("turn/end").await;
        assert_eq!(end["event"]["data"]["reason"]["kind"], "completed");
        peer.take(|message| message["params"]["status"] == "idle").await;
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn later_turns_repeat_nothing_that_has_not_changed() {
    let stage = Stage::new().await;
    stage.says(&["one", "two"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "first").await;
    peer.take_aside();
    peer.prompt("s", "second").await;
    let told = peer.take_aside();
    let expected = [
        "agent/inbox/spliced",
        "running",
        "turn/start",
        "agent/inbox/spliced",
        "step/start",
        "user/message",
        "assistant/chunk",
        "assistant/message",
        "step/end",
        "turn/end",
        "idle",
    ];
    assert_eq!(outline(&told), expected);
    assert_eq!(events(&told)[1]["data"]["turn"], 2);
    leave(peer).await;
}

#[tokio::test]
async fn a_connection_hears_of_its_own_sessions_alone() {
    let stage = Stage::new().await;
    stage.says(&["a secret", "for b"]);
    let (mut a, mut b) = (stage.peer().await, stage.peer().await);
    let mut all = stage.peer_with(json!({ "sessions": "all" })).await;
    a.prompt("a", "of a").await;
    let of_a = a.take_aside();
    b.expect_silence().await;
    b.prompt("b", "of b").await;
    let of_b = b.take_aside();
    assert!(of_b.iter().all(|message| message["params"]["sessionId"] == "b"));
    a.expect_silence().await;
    for (session, told) in [("a", of_a), ("b", of_b)] {
        let last = events(&told).last().unwrap()["seq"].clone();
        let mine = |message: &Value| message["params"]["sessionId"] == session;
        all.take(|message| mine(message) && message["params"]["event"]["seq"] == last).await;
        all.take(|message| mine(message) && message["params"]["status"] == "idle").await;
    }
    let heard = all.take_aside();
    assert!(heard.iter().any(|message| message["params"]["sessionId"] == "a"));
    for peer in [a, b, all] {
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_refused_prompt_subscribes_to_nothing() {
    let stage = Stage::new().await;
    let live = stage.live();
    let (mut a, mut b) = (stage.peer().await, stage.peer().await);
    let running = a.send_prompt("s", "x").await;
    stage.model.request().await;
    let error = b.refused("session/prompt", prompt("s", "y", &json!({}))).await;
    assert_eq!(error["data"]["kind"], "session_busy");
    live.send(chat::text("hi") + &chat::finish("stop")).await;
    live.end().await;
    a.reply(running).await;
    b.expect_silence().await;
    a.take_aside();
    leave(a).await;
    leave(b).await;
}

#[tokio::test]
async fn a_running_turn_delays_no_other_request() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        let mut peer = stage.peer().await;
        let running = peer.send_prompt("s", "x").await;
        stage.model.request().await;
        for (method, params) in [
            ("server/ping", json!({})),
            ("server/status", json!({})),
            ("session/list", json!({})),
            ("models/list", json!({})),
            ("session/queue", json!({ "sessionId": "s" })),
            ("session/read", json!({ "sessionId": "s" })),
            ("session/subscribe", json!({ "sessionId": "s" })),
            ("session/working-directory/get", json!({ "sessionId": "s" })),
        ] {
            peer.call(method, params).await;
        }
        stage.says(&["meanwhile"]);
        assert_eq!(peer.prompt("t", "x").await["status"], "ok");
        live.send(chat::text("hi") + &chat::finish("stop")).await;
        live.end().await;
        assert_eq!(peer.reply(running).await["result"]["status"], "ok");
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn line_separators_are_escaped_on_the_wire_and_kept_in_the_text() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let text = "before\u{2028}\u{2029}\u{85}after";
        stage.says(&[text]);
        let mut peer = stage.peer().await;
        let id = peer.send_prompt("s\u{e9}", text).await;
        let mut kept = 0;
        loop {
            let line = peer.line().await.unwrap();
            assert!(!line.contains(['\u{2028}', '\u{2029}']), "{line}");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["params"]["event"]["type"] == "assistant/message" {
                assert_eq!(text_of(&message["params"]["event"]["data"]["message"]), text);
                kept += 1;
            }
            if message["params"]["event"]["type"] == "user/message"
                && message["params"]["event"]["data"]["source"]["kind"] == "user"
            {
                assert_eq!(text_of(&message["params"]["event"]["data"]), text);
                kept += 1;
            }
            if message["id"] == id {
                break;
            }
        }
        assert_eq!(kept, 2);
        leave(peer).await;
    }
}

/// A lone surrogate in the history once made every later call of a session fail.
#[tokio::test]
async fn lone_surrogates_are_replaced_and_the_next_turn_works() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        let call = r#"{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"command\":\"echo \\ud99c\",\"description\":\"x\"}"}}]}"#;
        stage.model.push(
            Reply::stream().send(chat::delta(call)).send(chat::finish("tool_calls")).send(chat::DONE).end(),
        );
        stage.model.push(
            Reply::stream()
                .send(chat::delta(r#"{"content":"a\ud99cb"}"#))
                .send(chat::finish("stop"))
                .send(chat::DONE)
                .end(),
        );
        let request = r#"{"id":50,"method":"session/prompt","params":{"sessionId":"s","contentBlocks":[{"type":"text","text":"x\ud800y"}]}}"#;
        peer.send_line(request).await;
        assert_eq!(peer.reply(50).await["result"]["status"], "ok");
        let told = peer.take_aside();
        let said: Vec<String> = events(&told)
            .iter()
            .filter(|event| event["type"] == "assistant/message")
            .map(|event| text_of(&event["data"]["message"]))
            .collect();
        assert_eq!(said.last().unwrap(), "a\u{fffd}b");
        stage.says(&["fine"]);
        assert_eq!(peer.prompt("s", "again").await["status"], "ok");
        peer.take_aside();
        let asked = stage.model.requests();
        assert!(asked.iter().all(|request| !request.text().to_lowercase().contains("\\ud99c")
            && !request.text().contains("\\ud800")));
        assert!(asked[0].text().contains("x\u{fffd}y"));
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_session_may_have_any_name_without_control_characters() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let longest = "x".repeat(256);
    for name in ["../../escape", "/etc/passwd", "CON", ".", " ", "a\\b", "日本語🙂", &longest] {
        stage.says(&["hi"]);
        assert_eq!(peer.prompt(name, "x").await["status"], "ok", "{name}");
        let told = peer.take_aside();
        assert!(told.iter().all(|message| message["params"]["sessionId"] == name));
    }
    let list = peer.call("session/list", json!({})).await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 8);
    assert!(!stage.home.path("escape").exists());
    leave(peer).await;
}

#[tokio::test]
async fn on_stdout_there_are_frames_and_nothing_else_however_much_is_logged() {
    let stage = Stage::over(Transport::Stdio).await;
    stage.runs("echo to stderr >&2; echo to stdout");
    stage.says(&["done"]);
    let mut command = stage.home.dshd(["stdio"]);
    command.env("DSHD_LOG", "trace").stderr(std::process::Stdio::null());
    let mut peer = Peer::stdio(command);
    peer.initialize(stage.bind(&json!({}))).await;
    let id = peer.send_prompt("s", "x").await;
    peer.reply(id).await;
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn the_reasons_of_a_turn_become_a_status() {
    let stage = Stage::with("max_retries = 0", "").await;
    let mut peer = stage.peer().await;
    stage
        .model
        .push(Reply::stream().send(chat::text("cut")).send(chat::finish("length")).send(chat::DONE).end());
    let cut = peer.prompt("s", "x").await;
    assert_eq!((&cut["status"], &cut["reason"]["kind"]), (&json!("error"), &json!("max-tokens")));
    stage.model.push(Reply::status(401).json(r#"{"error":{"message":"bad key"}}"#));
    let failed = peer.prompt("s", "x").await;
    assert_eq!((&failed["status"], &failed["reason"]["kind"]), (&json!("error"), &json!("error")));
    let error = &failed["reason"]["error"];
    assert_eq!((&error["code"], &error["status"]), (&json!("AUTH"), &json!(401)), "{error}");
    // The slot is free.
    stage.says(&["fine"]);
    assert_eq!(peer.prompt("s", "x").await["status"], "ok");
    peer.take_aside();
    leave(peer).await;

    let stage = Stage::with("", "[sessions]\nmax_tokens_as_success = true").await;
    let mut peer = stage.peer().await;
    stage
        .model
        .push(Reply::stream().send(chat::text("cut")).send(chat::finish("length")).send(chat::DONE).end());
    let cut = peer.prompt("s", "x").await;
    assert_eq!((&cut["status"], &cut["reason"]["kind"]), (&json!("ok"), &json!("max-tokens")));
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_turn_outlives_its_client_or_ends_with_it_as_the_client_has_said() {
    for (on_disconnect, reason) in [("keep", "completed"), ("abort", "aborted")] {
        let stage = Stage::new().await;
        let live = stage.live();
        let mut watcher = stage.peer().await;
        watcher.call("session/create", json!({ "sessionId": "s" })).await;
        let mut peer = stage.peer_with(json!({ "onDisconnect": on_disconnect })).await;
        peer.send_prompt("s", "x").await;
        stage.model.request().await;
        peer.leave_unread();
        drop(peer);
        if on_disconnect == "keep" {
            live.send(chat::text("hi") + &chat::finish("stop")).await;
            live.end().await;
        } else {
            live.closed().await;
        }
        let end = watcher.event("turn/end").await;
        assert_eq!(end["event"]["data"]["reason"]["kind"], reason);
        watcher.take(|message| message["params"]["status"] == "idle").await;
        watcher.take_aside();
        stage.says(&["next"]);
        assert_eq!(watcher.prompt("s", "again").await["status"], "ok");
        watcher.take_aside();
        leave(watcher).await;
    }
}
