//! The handshake, and what looks without changing: directories, lists, pages, waits, models, the daemon's state.

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, TRANSPORTS, Transport, leave, prompt};

#[tokio::test]
async fn a_handshake_says_what_answers_and_what_it_can_do() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.connect().await;
        let hello = peer.initialize(stage.bind(&json!({ "client": { "name": "it", "version": "1" } }))).await;
        let server = json!({ "name": "deepseek-harness-sdk-runtime", "version": env!("CARGO_PKG_VERSION") });
        assert_eq!(hello["serverInfo"], server);
        assert_eq!(hello["protocolVersion"], 1);
        assert_eq!(hello["route"], json!({ "provider": "fake", "model": "m" }));
        assert!(hello["connectionId"].is_string());
        assert!(hello["capabilities"].as_array().unwrap().contains(&json!("session/cancel")));
        assert_eq!(hello["limits"]["line_bytes"], 16 << 20);
        leave(peer).await;
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_handshake_is_named_and_another_may_follow() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.connect().await;
        let file = stage.home.work().join("notes.txt");
        for (params, path) in [
            (json!({ "cwd": "." }), "cwd"),
            (json!({ "cwd": "/no/such/directory" }), "cwd"),
            (json!({ "cwd": file }), "cwd"),
            (json!({ "cwd": 7 }), "cwd"),
            (json!({ "maxTokens": 0 }), "maxTokens"),
            (json!({ "maxTokens": -1 }), "maxTokens"),
            (json!({ "maxTokens": 1.5 }), "maxTokens"),
            (json!({ "maxTokens": 9_007_199_254_740_992_u64 }), "maxTokens"),
            (json!({ "maxTokens": "7" }), "maxTokens"),
            (json!({ "completion": "later" }), "completion"),
            (json!({ "whenBusy": 1 }), "whenBusy"),
            (json!({ "sessions": "some" }), "sessions"),
            (json!({ "deltas": "yes" }), "deltas"),
            (json!({ "onDisconnect": "x" }), "onDisconnect"),
            (json!({ "permissionMode": "root" }), "permissionMode"),
            (json!({ "client": { "version": "1" } }), "client.name"),
        ] {
            let error = peer.refused("initialize", params.clone()).await;
            assert_eq!(error["code"], -32602, "{params}: {error}");
            assert_eq!(error["data"]["path"], path, "{params}: {error}");
            assert!(!error["message"].as_str().unwrap().contains('\n'));
        }
        peer.initialize(stage.bind(&json!({ "maxTokens": 9_007_199_254_740_991_u64 }))).await;
        leave(peer).await;
    }
}

#[tokio::test]
async fn fields_that_clients_of_other_protocols_send_are_passed_over() {
    let stage = Stage::new().await;
    let mut peer = stage.connect().await;
    peer.initialize(stage.bind(&json!({ "protocolVersion": "2025-06-18", "capabilities": {} }))).await;
    leave(peer).await;
}

#[tokio::test]
async fn without_a_directory_one_may_look_but_make_no_session() {
    let stage = Stage::new().await;
    let mut peer = stage.connect().await;
    peer.initialize(json!({})).await;
    peer.call("session/list", json!({})).await;
    for (method, params) in [
        ("session/prompt", prompt("s", "x", &json!({}))),
        ("session/create", json!({ "sessionId": "s" })),
        ("session/working-directory/get", json!({ "sessionId": "s" })),
    ] {
        let error = peer.refused(method, params).await;
        assert_eq!(
            (&error["code"], &error["data"]["path"]),
            (&json!(-32602), &json!("cwd")),
            "{method}: {error}"
        );
    }
    peer.call("session/create", json!({ "sessionId": "s", "cwd": stage.home.work() })).await;
    leave(peer).await;
}

/// Once on a shared runtime a second client's handshake re-routed the first one's sessions.
#[tokio::test]
async fn a_handshake_binds_its_own_connection_alone() {
    let stage = Stage::new().await;
    let mut a = stage.peer().await;
    let mut b = stage.connect().await;
    let hello = b.initialize(json!({ "cwd": stage.home.path("home"), "model": "other" })).await;
    assert_eq!(hello["route"]["model"], "other");
    stage.says(&["to a", "to b"]);
    a.prompt("a", "x").await;
    let context = a.event("request/context").await;
    assert_eq!(context["event"]["data"]["model"], "m");
    assert_eq!(
        a.call("session/working-directory/get", json!({ "sessionId": "a" })).await["cwd"],
        json!(stage.home.work())
    );
    b.prompt("b", "x").await;
    assert_eq!(b.event("request/context").await["event"]["data"]["model"], "other");
    let asked: Vec<Value> =
        stage.model.requests().iter().map(|asked| asked.json()["model"].clone()).collect();
    assert_eq!(asked, ["m", "other"]);
    a.take_aside();
    b.take_aside();
    leave(a).await;
    leave(b).await;
}

#[tokio::test]
async fn a_session_has_a_directory_that_may_be_changed() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        let work = stage.home.work();
        let get = json!({ "sessionId": "s" });
        assert_eq!(peer.call("session/working-directory/get", get.clone()).await["cwd"], json!(work));
        let set = |path: &str| json!({ "sessionId": "s", "path": path });
        let cwd = peer.call("session/working-directory/set", set("src")).await;
        assert_eq!(cwd["cwd"], json!(work.join("src")));
        let cwd = peer.call("session/working-directory/set", set("..")).await;
        assert_eq!(cwd["cwd"], json!(work));
        for wrong in ["/no/such/directory", "missing", "notes.txt", ""] {
            let error = peer.refused("session/working-directory/set", set(wrong)).await;
            assert_eq!(
                (&error["code"], &error["data"]["path"]),
                (&json!(-32602), &json!("path")),
                "{wrong}: {error}"
            );
        }
        let inner = work.join("src/inner");
        std::fs::create_dir(&inner).unwrap();
        peer.call("session/working-directory/set", set(inner.to_str().unwrap())).await;
        std::fs::remove_dir(&inner).unwrap();
        // It has vanished: back to the first one.
        assert_eq!(peer.call("session/working-directory/get", get).await["cwd"], json!(work));
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn commands_run_in_the_directory_that_was_set() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    peer.call("session/working-directory/set", json!({ "sessionId": "s", "path": "src" })).await;
    stage.runs("pwd");
    stage.says(&["there"]);
    peer.prompt("s", "where?").await;
    let result = peer.event("tool/result").await;
    let text = crate::stage::text_of(&result["event"]["data"]["message"]);
    assert_eq!(text.trim(), stage.home.work().join("src").to_str().unwrap());
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn models_are_listed_with_what_they_can_do_and_cost() {
    let model = "[providers.fake.models.m]\ncontext_window = 1000\nprice_input = 0.5\nthinking = true";
    let stage = Stage::with("", model).await;
    let mut peer = stage.peer().await;
    let list = peer.call("models/list", json!({})).await;
    assert_eq!(list["defaultRoute"], json!({ "provider": "fake", "model": "m" }));
    let routes = list["routes"].as_array().unwrap();
    let fake = routes.iter().find(|route| route["provider"] == "fake").unwrap();
    assert_eq!(fake["ready"], true);
    let m = &fake["models"][0];
    assert_eq!((&m["model"], &m["contextWindow"]), (&json!("m"), &json!(1000)), "{m}");
    assert_eq!(m["prices"], json!({ "input": 0.5 }));
    assert!(m["capabilities"].as_array().unwrap().contains(&json!("thinking")));
    let keyless = routes.iter().find(|route| route["provider"] == "deepseek-official").unwrap();
    assert_eq!(keyless["ready"], false);
    assert!(!list.to_string().contains("sk-test"));
    leave(peer).await;
}

#[tokio::test]
async fn a_status_tells_of_connections_and_sessions() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.says(&["hi"]);
        let mut peer = stage.peer_with(json!({ "client": { "name": "it", "version": "1" } })).await;
        peer.prompt("s", "hello").await;
        peer.take_aside();
        let status = peer.call("server/status", json!({})).await;
        assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!((&status["protocolVersion"], &status["phase"]), (&json!(1), &json!("ready")));
        assert!(status["uptimeMs"].is_u64() && status["pid"].is_u64());
        assert_eq!(status["limits"]["in_flight"], 32);
        assert_eq!(status["counts"]["sessionsLoaded"], 1);
        assert_eq!(status["counts"]["turnsRunning"], 0);
        assert_eq!(status["counts"]["connections"], 1);
        let connection = &status["connections"][0];
        assert!(connection["peer"].is_string());
        assert_eq!(connection["subscriptions"], 1);
        for name in ["lagEvents", "lagBytes", "lastProgressMs"] {
            assert!(connection[name].is_u64(), "{name}: {connection}");
        }
        let session = &status["sessions"][0];
        assert_eq!((&session["sessionId"], &session["status"]), (&json!("s"), &json!("idle")));
        assert!(session["epoch"].is_u64() && session["lastSeq"].as_u64().unwrap() > 10);
        leave(peer).await;
    }
}

#[tokio::test]
async fn sessions_are_listed_newest_first_page_by_page() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let other = stage.home.path("home");
    for name in ["a", "b", "c", "d", "e"] {
        stage.says(&["hi"]);
        if name == "d" {
            peer.call("session/create", json!({ "sessionId": name, "cwd": other })).await;
        }
        peer.prompt(name, &format!("prompt of {name}")).await;
    }
    peer.take_aside();
    let mut found = Vec::new();
    let mut cursor = json!(null);
    loop {
        let mut params = json!({ "limit": 2 });
        if cursor.is_string() {
            params["cursor"] = cursor.take();
        }
        let mut page = peer.call("session/list", params).await;
        let sessions = page["sessions"].as_array().unwrap().clone();
        assert!((1..=2).contains(&sessions.len()));
        found.extend(sessions);
        cursor = page["nextCursor"].take();
        if cursor.is_null() {
            break;
        }
    }
    let mut names: Vec<&str> = found.iter().map(|session| session["sessionId"].as_str().unwrap()).collect();
    let times: Vec<u64> = found.iter().map(|session| session["updatedAt"].as_u64().unwrap()).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    let e = found.iter().find(|session| session["sessionId"] == "e").unwrap();
    assert_eq!((&e["title"], &e["status"]), (&json!("prompt of e"), &json!("idle")), "{e}");
    assert_eq!(e["cwd"], json!(stage.home.work()));
    assert!(e["createdAt"].as_u64().unwrap() <= e["updatedAt"].as_u64().unwrap());
    let there = peer.call("session/list", json!({ "cwd": other })).await;
    assert_eq!(there["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(there["sessions"][0]["sessionId"], "d");
    leave(peer).await;
}

#[tokio::test]
async fn a_log_is_read_page_by_page_without_following_it() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.says(&["hi"]);
        let mut peer = stage.peer().await;
        peer.prompt("s", "hello").await;
        let told = peer.take_aside();
        let told: Vec<Value> = crate::stage::events(&told).into_iter().cloned().collect();
        peer.call("session/unsubscribe", json!({ "sessionId": "s" })).await;
        let whole = peer.call("session/read", json!({ "sessionId": "s" })).await;
        assert_eq!(whole["events"], json!(told), "what is read is what was told");
        assert_eq!(whole["lastSeq"], told.len() - 1);
        assert_eq!(whole.get("nextSince"), None);
        let (mut pages, mut since) = (Vec::new(), json!(-1));
        while !since.is_null() {
            let params = json!({ "sessionId": "s", "since": since, "limit": 4 });
            let mut page = peer.call("session/read", params).await;
            let events = page["events"].as_array().unwrap().clone();
            since = page["nextSince"].take();
            if since.is_u64() {
                assert_eq!((events.len(), &since), (4, &events[3]["seq"]));
            }
            pages.extend(events);
        }
        assert_eq!(pages, told);
        let last = json!({ "sessionId": "s", "since": told.len() - 1 });
        assert_eq!(peer.call("session/read", last).await["events"], json!([]));
        stage.says(&["again"]);
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_page_is_at_most_256_kib_or_one_event() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    for _ in 0..3 {
        stage.model.push(chat::reply(&["y"]));
        peer.prompt("s", &"x".repeat(200 * 1024)).await;
    }
    peer.take_aside();
    let (mut since, mut seqs, mut pages) = (json!(-1), Vec::new(), 0);
    while !since.is_null() {
        let id = peer.send("session/read", json!({ "sessionId": "s", "since": since, "limit": 1000 })).await;
        let mut page = peer.reply(id).await;
        let events = page["result"]["events"].as_array().unwrap().clone();
        let size: usize = events.iter().map(|event| event.to_string().len()).sum();
        assert!(size <= 256 * 1024 || events.len() == 1, "{size} bytes, {} events", events.len());
        seqs.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
        since = page["result"]["nextSince"].take();
        pages += 1;
    }
    assert!(pages >= 6, "{pages}");
    assert!(seqs.iter().copied().eq(0..seqs.len() as u64));
    leave(peer).await;
}

#[tokio::test]
async fn a_wait_ends_with_the_turn_or_its_own_time() {
    let stage = Stage::new().await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let running = peer.send_prompt("s", "x").await;
    stage.model.request().await;
    let brief = peer.call("session/wait", json!({ "sessionId": "s", "timeoutMs": 20 })).await;
    assert_eq!(brief, json!({ "timedOut": true }));
    let waiting = peer.send("session/wait", json!({ "sessionId": "s" })).await;
    live.send(chat::text("hi") + &chat::finish("stop")).await;
    live.end().await;
    assert_eq!(peer.reply(waiting).await["result"], json!({}));
    peer.reply(running).await;
    assert_eq!(peer.call("session/wait", json!({ "sessionId": "s" })).await, json!({}));
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn shutdown_ends_a_connection_and_on_stdio_the_process() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        assert_eq!(peer.call("shutdown", json!({})).await, json!({}));
        // A process that ends may say so.
        assert!(peer.take_aside().iter().all(|message| message["method"] == "server.draining"));
        peer.expect_eof().await;
        match transport {
            Transport::Stdio => assert!(peer.exited().await.unwrap().success()),
            Transport::Unix | Transport::Tcp => {
                leave(stage.peer().await).await;
            }
        }
    }
}
