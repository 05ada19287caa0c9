//! Tool calls as models write them, well and badly, and how they go back.

use serde_json::json;

use super::{all, joined, turn, whole};
use crate::model_server::chat;
use crate::stage::{Stage, leave, text_of};

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
