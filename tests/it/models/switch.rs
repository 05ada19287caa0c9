//! A session whose model is changed in mid-conversation, from wire to wire: what the one said goes to the other in the
//! other's form, and what only the one understands does not.

use serde_json::{Value, json};

use super::turn;
use crate::model_server::{ModelServer, Reply, WIRES, anthropic, chat, responses};
use crate::stage::leave;
use crate::support::{Daemon, Home};

const SEALED: &str = r#"{"id":"rs","type":"reasoning","encrypted_content":"sealed==","summary":[{"type":"summary_text","text":"hm"}]}"#;

/// An answer with a thought that only its own wire takes back, and a call.
fn thoughtful(kind: &str) -> Reply {
    let arguments = r#"{"command":"echo out"}"#;
    match kind {
        "chat" => Reply::stream()
            .send(chat::reasoning("by-chat"))
            .send(chat::call(0, "functions.bash:0", "bash", arguments))
            .send(chat::finish("tool_calls") + chat::DONE),
        "anthropic" => Reply::stream()
            .send(anthropic::start())
            .send(anthropic::block_start(
                0,
                r#"{"type":"thinking","thinking":"by-anthropic","signature":"signed=="}"#,
            ))
            .send(anthropic::block_stop(0))
            .send(anthropic::block_start(1, r#"{"type":"tool_use","id":"toolu_1","name":"bash","input":{}}"#))
            .send(anthropic::block_delta(
                1,
                &format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, json!(arguments)),
            ))
            .send(anthropic::block_stop(1))
            .send(anthropic::stop("tool_use")),
        _ => Reply::stream()
            .send(responses::created())
            .send(responses::done(0, SEALED))
            .send(responses::call(1, "call_1", "bash", arguments))
            .send(responses::completed()),
    }
    .end()
}

#[tokio::test]
async fn a_conversation_goes_on_with_another_model_on_another_wire() {
    let (home, server) = (Home::new(), ModelServer::start().await);
    let provider = |kind: &str| {
        format!(
            "[providers.by-{kind}]\nkind = \"{kind}\"\nbase_url = \"{}\"\ndefault_model = \"m\"\n\
             [providers.by-{kind}.models.m]\nthinking = true\n",
            server.url()
        )
    };
    let providers: String = WIRES.iter().map(|wire| provider(wire.kind)).collect();
    home.configure(&format!("default_provider = \"by-chat\"\n{providers}"));
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    let order = ["chat", "anthropic", "responses", "chat", "responses"];
    for (at, kind) in order.into_iter().enumerate() {
        let wire = WIRES.iter().find(|wire| wire.kind == kind).unwrap();
        if at > 0 {
            let change = json!({ "sessionId": "s", "provider": format!("by-{kind}"), "model": "m" });
            peer.call("session/update", change).await;
        }
        server.push(thoughtful(kind));
        server.push((wire.reply)(&["well"]));
        let (result, _) = turn(&mut peer, &format!("prompt {at}")).await;
        assert_eq!(result["status"], "ok", "{at} {kind}: {result}");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2 * order.len());
    let last_on = |kind: &str| {
        let at = order.iter().rposition(|other| *other == kind).unwrap();
        requests[2 * at + 1].text().to_owned()
    };
    let (chat, messages, items) = (last_on("chat"), last_on("anthropic"), last_on("responses"));
    assert!(chat.contains(r#""reasoning_content":"by-chat""#), "{chat}");
    assert!(!chat.contains("signed==") && !chat.contains("sealed=="), "{chat}");
    assert!(messages.contains(r#""signature":"signed==""#) && !messages.contains("by-chat"), "{messages}");
    assert!(messages.contains(r#""tool_use_id":"functions_bash_0""#), "{messages}");
    assert_eq!(items.matches(SEALED).count(), 2, "its own thoughts, of both times: {items}");
    assert!(!items.contains("by-chat") && !items.contains("signed=="), "{items}");
    for (body, history, call, result) in [
        (&chat, "messages", "tool_calls", "tool_call_id"),
        (&messages, "messages", "tool_use", "tool_result"),
        (&items, "input", "function_call", "function_call_output"),
    ] {
        let body: Value = serde_json::from_str(body).unwrap();
        let text = body[history].to_string();
        assert!(text.contains(call) && text.contains(result), "{text}");
        assert!(text.contains("prompt 0") && text.contains("echo out"), "{text}");
    }
    leave(peer).await;
}
