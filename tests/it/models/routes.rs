//! Several providers at once: who is asked, who is refused, what `dshd models` says.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, Reply, WIRES};
use crate::stage::leave;
use crate::support::{Daemon, Home};

/// A home with a provider for each wire, each with a server of its own.
async fn three() -> (Home, Vec<ModelServer>) {
    let (home, mut servers, mut config) = (Home::new(), Vec::new(), String::new());
    for wire in &WIRES {
        let server = ModelServer::start().await;
        let _ = writeln!(
            config,
            "[providers.by-{0}]\nkind = \"{0}\"\nbase_url = \"{1}/base\"\ndefault_model = \"m-{0}\"\nmax_retries = 0",
            wire.kind,
            server.url()
        );
        servers.push(server);
    }
    home.configure(&format!("default_provider = \"by-chat\"\n{config}"));
    (home, servers)
}

#[tokio::test]
async fn each_session_is_asked_of_the_provider_that_it_was_made_for() {
    let (home, servers) = three().await;
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    let paths = ["/base/chat/completions", "/base/v1/messages", "/base/responses"];
    for ((wire, server), path) in WIRES.iter().zip(&servers).zip(paths) {
        let provider = format!("by-{}", wire.kind);
        peer.call("session/create", json!({ "sessionId": wire.kind, "provider": provider })).await;
        server.push((wire.reply)(&["hi"]));
        assert_eq!(peer.prompt(wire.kind, "x").await["status"], "ok", "{}", wire.kind);
        let request = server.request().await;
        assert_eq!(request.path, path);
        assert_eq!(request.json()["model"], format!("m-{}", wire.kind));
        peer.call(
            "session/create",
            json!({ "sessionId": format!("{}-2", wire.kind), "provider": provider, "model": "other" }),
        )
        .await;
        server.push((wire.reply)(&["hi"]));
        peer.prompt(&format!("{}-2", wire.kind), "x").await;
        assert_eq!(server.request().await.json()["model"], "other");
    }
    // Who names none gets the default one.
    servers[0].push((WIRES[0].reply)(&["hi"]));
    assert_eq!(peer.prompt("nobody's", "x").await["status"], "ok");
    assert_eq!(servers[0].requests().len(), 3);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn usage_is_told_in_the_same_disjoint_counts_on_every_wire() {
    let (home, servers) = three().await;
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    for (wire, server) in WIRES.iter().zip(&servers) {
        let provider = format!("by-{}", wire.kind);
        peer.call("session/create", json!({ "sessionId": wire.kind, "provider": provider })).await;
        server.push((wire.reply)(&["hi"]));
        peer.prompt(wire.kind, "x").await;
        let told = peer.take_aside();
        let usage = &super::all(&told, "assistant/message")[0]["usage"];
        let expected = json!({ "inputTokens": 6, "outputTokens": 2, "cacheReadTokens": 4, "cacheWriteTokens": 0, "totalTokens": 12 });
        assert_eq!(*usage, expected, "{}", wire.kind);
    }
    leave(peer).await;
}

#[tokio::test]
async fn a_provider_without_a_default_model_wants_one_named() {
    let home = Home::new();
    let server = ModelServer::start().await;
    home.configure(&format!(
        "[providers.openai]\nbase_url = \"{}\"\nmax_retries = 0\n[providers.openai.models.listed]\n",
        server.url()
    ));
    let bare = Home::new();
    for (home, is_bare) in [(&home, false), (&bare, true)] {
        let mut command = home.dshd(["serve"]);
        command.env("OPENAI_API_KEY", "sk-test");
        let daemon = Daemon::spawn(home, command);
        let mut peer = daemon.peer().await;
        let params = json!({ "sessionId": "s", "provider": "openai" });
        if is_bare {
            let error = peer.refused("session/create", params).await;
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("providers.openai.default_model"), "{error}");
        } else {
            peer.call("session/create", params).await;
            server.push((WIRES[0].reply)(&["hi"]));
            assert_eq!(peer.prompt("s", "x").await["status"], "ok");
            assert_eq!(server.request().await.json()["model"], "listed", "the first that is listed");
            peer.take_aside();
        }
        leave(peer).await;
    }
    // The default provider must have one, or nothing starts.
    bare.configure("default_provider = \"openai\"\n");
    let ran = bare.run(["config", "check"]).await.expect_code(78);
    assert!(ran.stderr.contains("set default_model, or providers.openai.default_model"), "{}", ran.stderr);
}

#[tokio::test]
async fn models_are_listed_and_each_is_tried() {
    let (home, servers) = three().await;
    for (wire, server) in WIRES.iter().zip(&servers).skip(1) {
        server.push((wire.reply)(&["ok"]));
    }
    servers[0].push(Reply::status(404).json(r#"{"error":{"message":"no such model"}}"#));
    let listed = home.run(["models"]).await.expect_code(0).stdout;
    for wire in &WIRES {
        assert!(listed.contains(&format!("by-{}", wire.kind)), "{listed}");
    }
    let ran = home.run(["models", "--check", "--json"]).await.expect_code(1);
    let document: Value = ran.json();
    let checks = document["checks"].as_array().unwrap();
    let of = |name: &str| checks.iter().find(|check| check["provider"] == name).unwrap();
    assert_eq!(of("by-anthropic")["ok"], true, "{document:#}");
    assert_eq!(of("by-responses")["ok"], true);
    assert_eq!(of("by-chat")["ok"], false);
    assert!(of("by-chat")["message"].as_str().unwrap().contains("no such model"), "{document:#}");
    assert!(checks.iter().all(|check| check["provider"] != "scripted" && check["provider"] != "openai"));
    assert_eq!(servers[2].request().await.path, "/base/responses");
}
