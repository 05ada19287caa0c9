//! Calls over real sockets, and the bytes of requests.

mod pictures;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::{ModelConfig, Secret};
use crate::event::{Block, FailureCode, Message, Role, Source, SourceKind, ToolSpec};
use crate::provider::http::Key;
use crate::provider::model_server::{ModelServer, Reply, anthropic};
use crate::provider::test_sink::Recorder;
use crate::provider::{Finish, Images, Retry};

const PATIENCE: Duration = Duration::from_secs(20);

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        images: Images::default(),
        model: "m".to_owned(),
        abilities: ModelConfig::default(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: Arc::new([]),
        max_tokens: Some(100),
        reasoning_effort: None,
        place: None,
    }
}

fn message(role: Role, kind: SourceKind, text: &str) -> Message {
    Message::new(role, Source::of(kind), vec![Block::text(text)])
}

fn prompt(text: &str) -> Message {
    message(Role::User, SourceKind::User, text)
}

fn result(call: &str, text: &str, is_error: bool) -> Message {
    let mut result = message(Role::Tool, SourceKind::Tool, text);
    result.tool_call_id = Some(call.to_owned());
    result.is_error = Some(is_error);
    result
}

fn answered(replay_state: Option<&str>, blocks: Vec<Block>) -> Message {
    let mut source = Source::of(SourceKind::Model);
    source.provider = Some("p".to_owned());
    source.model = Some("m".to_owned());
    source.replay_state = replay_state.map(|state| serde_json::from_str(state).unwrap());
    Message::new(Role::Assistant, source, blocks)
}

fn a_call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

async fn answer_to(reply: Reply) -> (Result<Completion, CallError>, Recorder, ModelServer) {
    let server = ModelServer::start().await;
    server.push(reply);
    let config = ProviderConfig { base_url: Some(server.url()), ..ProviderConfig::default() };
    let adapter = Anthropic::new("p", &config, Key::Present(Secret::new("sk-secret").unwrap()).into());
    let mut sink = Recorder::default();
    let request = request(vec![prompt("hi")]);
    let done = tokio::time::timeout(PATIENCE, adapter.call(&request, &mut sink)).await.unwrap();
    (done, sink, server)
}

fn stream(events: &[String]) -> Reply {
    events.iter().fold(Reply::stream().send(anthropic::start()), |reply, event| reply.send(event.as_str()))
}

/// Without the marks of the cache.
fn messages_of(request: &ModelRequest) -> serde_json::Value {
    let body = String::from_utf8(request::body(request, "p").unwrap()).unwrap();
    let body = body.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    body["messages"].clone()
}

#[tokio::test]
async fn an_answer_arrives_with_its_usage_and_the_request_has_its_headers() {
    let (done, sink, server) = answer_to(anthropic::reply(&["Hel", "lo"])).await;
    let done = done.unwrap();
    assert_eq!(sink.blocks(), [Block::text("Hello")]);
    assert_eq!((done.finish, done.replay_state.is_none()), (Finish::Stop, true));
    let usage = done.usage.unwrap();
    assert_eq!(
        (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.total_tokens),
        (6, 4, 2, 12)
    );
    let received = server.request().await;
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/v1/messages"));
    assert_eq!(received.header("x-api-key"), Some("sk-secret"));
    assert_eq!(received.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(
        received.text(),
        r#"{"model":"m","max_tokens":100,"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}],"stream":true}"#
    );
}

#[tokio::test]
async fn thoughts_calls_pings_and_unknown_events_are_told_apart() {
    let thinking = r#"{"type":"thinking","thinking":"","signature":""}"#;
    let reply = stream(&[
        anthropic::event("ping", r#"{"type":"ping"}"#),
        anthropic::block_start(0, thinking),
        anthropic::block_delta(0, r#"{"type":"thinking_delta","thinking":"hm"}"#),
        anthropic::block_delta(0, r#"{"type":"signature_delta","signature":"sig"}"#),
        anthropic::block_stop(0),
        anthropic::block_start(1, r#"{"type":"redacted_thinking","data":"xyz"}"#),
        anthropic::block_stop(1),
        anthropic::event("news", r#"{"type":"news","index":7}"#),
        anthropic::block_start(2, r#"{"type":"tool_use","id":"toolu_1","name":"bash","input":{}}"#),
        anthropic::block_delta(2, r#"{"type":"input_json_delta","partial_json":""}"#),
        anthropic::block_delta(2, r#"{"type":"input_json_delta","partial_json":"{\"command\": \"l"}"#),
        anthropic::block_delta(2, r#"{"type":"input_json_delta","partial_json":"s\"}"}"#),
        anthropic::block_stop(2),
        anthropic::block_start(3, r#"{"type":"tool_use","id":"toolu_2","name":"now","input":{}}"#),
        anthropic::block_stop(3),
        anthropic::stop("tool_use"),
    ]);
    let (done, sink, _server) = answer_to(reply.end()).await;
    let blocks = [
        Block::Reasoning { text: "hm".to_owned() },
        a_call("toolu_1", "bash", r#"{"command": "ls"}"#),
        a_call("toolu_2", "now", "{}"),
    ];
    assert_eq!(sink.blocks(), blocks);
    let state = done.unwrap().replay_state.unwrap();
    assert_eq!(
        state.get(),
        r#"{"kind":"anthropic","version":1,"blocks":[{"type":"thinking","signature":"sig"},{"type":"redacted_thinking","data":"xyz"},{"type":"tool_use"},{"type":"tool_use"}]}"#
    );

    let replayed = messages_of(&request(vec![prompt("hi"), answered(Some(state.get()), blocks.into())]));
    assert_eq!(
        replayed[1]["content"],
        serde_json::json!([
            {"type":"thinking","thinking":"hm","signature":"sig"},
            {"type":"redacted_thinking","data":"xyz"},
            {"type":"tool_use","id":"toolu_1","name":"bash","input":{"command":"ls"}},
            {"type":"tool_use","id":"toolu_2","name":"now","input":{}},
        ])
    );
}

#[tokio::test]
async fn thoughts_of_which_only_the_signature_came_go_back_too() {
    let reply = stream(&[
        anthropic::block_start(0, r#"{"type":"thinking","thinking":""}"#),
        anthropic::block_delta(0, r#"{"type":"signature_delta","signature":"sig"}"#),
        anthropic::block_stop(0),
        anthropic::block_start(1, r#"{"type":"text","text":"a"}"#),
        anthropic::block_stop(1),
        anthropic::stop("end_turn"),
    ]);
    let (done, _, _server) = answer_to(reply.end()).await;
    let state = done.unwrap().replay_state.unwrap();
    let replayed = messages_of(&request(vec![answered(Some(state.get()), vec![Block::text("a")])]));
    assert_eq!(
        replayed[0]["content"],
        serde_json::json!([{"type":"thinking","thinking":"","signature":"sig"},{"type":"text","text":"a"}])
    );
}

#[test]
fn results_and_prompts_that_follow_each_other_are_one_message() {
    let blocks = vec![a_call("a", "x", "{ \"n\":1.0 }"), a_call("functions.b:1", "x", "{\"cut")];
    let mut request = request(vec![
        message(Role::System, SourceKind::SystemPrompt, "be good"),
        prompt("hi"),
        message(Role::User, SourceKind::RuntimeContext, "today"),
        answered(None, blocks),
        result("a", "", false),
        result("functions.b:1", "Error: no JSON", true),
        prompt("go on"),
    ]);
    request.tools = Arc::new([ToolSpec {
        name: "x".to_owned(),
        description: "d".to_owned(),
        parameters: serde_json::from_str("{\"type\":\"object\"}").unwrap(),
    }]);
    let body = String::from_utf8(request::body(&request, "p").unwrap()).unwrap();
    let cache = r#","cache_control":{"type":"ephemeral"}"#;
    let expected = [
        r#"{"model":"m","max_tokens":100,"#.to_owned(),
        format!(r#""system":[{{"type":"text","text":"be good"{cache}}}],"#),
        format!(r#""tools":[{{"name":"x","description":"d","input_schema":{{"type":"object"}}{cache}}}],"#),
        format!(
            r#""messages":[{{"role":"user","content":[{{"type":"text","text":"hi"}},{{"type":"text","text":"today"{cache}}}]}},"#
        ),
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"x","input":{ "n":1.0 }},"#
            .to_owned(),
        r#"{"type":"tool_use","id":"functions_b_1","name":"x","input":{"invalid_arguments":"{\"cut"}}]},"#
            .to_owned(),
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"(no output)"},"#
            .to_owned(),
        r#"{"type":"tool_result","tool_use_id":"functions_b_1","content":"Error: no JSON","is_error":true},"#
            .to_owned(),
        format!(r#"{{"type":"text","text":"go on"{cache}}}]}}],"stream":true}}"#),
    ];
    assert_eq!(body, expected.concat());
}

#[test]
fn thoughts_go_back_only_to_the_model_that_signed_them() {
    let state =
        r#"{"kind":"anthropic","version":1,"blocks":[{"type":"thinking","signature":"s"},{"type":"text"}]}"#;
    let blocks = || vec![Block::Reasoning { text: "hm".to_owned() }, Block::text("a")];
    let text_only = serde_json::json!([{"type":"text","text":"a"}]);
    let mut other_model = answered(Some(state), blocks());
    other_model.source.model = Some("other".to_owned());
    let other_content =
        answered(Some(state), vec![Block::text("a"), Block::Reasoning { text: "b".to_owned() }]);
    for message in [other_model, other_content, answered(None, blocks())] {
        assert_eq!(messages_of(&request(vec![message]))[0]["content"], text_only);
    }
}

#[test]
fn thinking_is_asked_for_where_the_model_takes_it() {
    let mut request = request(vec![prompt("hi")]);
    request.abilities = ModelConfig { thinking: true, reasoning_effort: true, ..ModelConfig::default() };
    let mut body = |effort: Option<&str>, max_tokens| -> serde_json::Value {
        request.reasoning_effort = effort.map(str::to_owned);
        request.max_tokens = max_tokens;
        serde_json::from_slice(&request::body(&request, "p").unwrap()).unwrap()
    };
    let high = body(Some("high"), None);
    assert_eq!(high["max_tokens"], 32_000);
    assert_eq!(high["thinking"], serde_json::json!({"type":"enabled","budget_tokens":16_384}));
    assert_eq!(high["output_config"], serde_json::json!({"effort":"high"}));
    assert_eq!(body(None, Some(2_000))["thinking"]["budget_tokens"], 1_999);
    assert_eq!(body(None, Some(1_000))["thinking"], serde_json::json!({"type":"disabled"}));
    let off = body(Some("off"), None);
    assert_eq!(off["thinking"], serde_json::json!({"type":"disabled"}));
    assert!(off.get("output_config").is_none());
    request.abilities.adaptive_thinking = true;
    request.max_tokens = None;
    let adaptive: serde_json::Value = serde_json::from_slice(&request::body(&request, "p").unwrap()).unwrap();
    assert_eq!(adaptive["thinking"], serde_json::json!({"type":"disabled"}));
    request.reasoning_effort = Some("max".to_owned());
    let adaptive: serde_json::Value = serde_json::from_slice(&request::body(&request, "p").unwrap()).unwrap();
    assert_eq!(adaptive["thinking"], serde_json::json!({"type":"adaptive"}));
    assert_eq!(adaptive["output_config"], serde_json::json!({"effort":"max"}));
}

/// A session whose model was changed while calls were running was refused: "expected `thinking`, but found `tool_use`".
#[test]
fn thinking_waits_for_the_next_prompt_after_calls_that_began_without_it() {
    let state = r#"{"kind":"anthropic","version":1,"blocks":[{"type":"thinking","signature":"s"},{"type":"tool_use"}]}"#;
    let others = || answered(None, vec![a_call("a", "x", "{}")]);
    let ours =
        || answered(Some(state), vec![Block::Reasoning { text: "hm".to_owned() }, a_call("a", "x", "{}")]);
    let later = || answered(None, vec![a_call("b", "x", "{}")]);
    let done = |call: &str| result(call, "x", false);
    for (messages, expected) in [
        (vec![prompt("hi"), others(), done("a")], "disabled"),
        (vec![prompt("hi"), others(), done("a"), prompt("and?")], "disabled"),
        (vec![prompt("hi"), ours(), done("a")], "enabled"),
        (vec![prompt("hi"), ours(), done("a"), later(), done("b")], "enabled"),
        (
            vec![prompt("hi"), others(), done("a"), answered(None, vec![Block::text("a")]), prompt("go")],
            "enabled",
        ),
    ] {
        let mut request = request(messages);
        request.max_tokens = None;
        request.abilities.thinking = true;
        let body: serde_json::Value = serde_json::from_slice(&request::body(&request, "p").unwrap()).unwrap();
        assert_eq!(body["thinking"]["type"], expected, "{body}");
    }
}

#[test]
fn the_marks_of_the_cache_are_four_at_most_and_move_with_the_conversation() {
    let turn = |n: u32| [prompt(&n.to_string()), answered(None, vec![Block::text("a")])];
    let mut request = request(
        [message(Role::System, SourceKind::SystemPrompt, "s")]
            .into_iter()
            .chain((0..3).flat_map(turn))
            .collect(),
    );
    request.messages.push(Arc::new(prompt("3")));
    request.tools = Arc::new([ToolSpec {
        name: "x".to_owned(),
        description: "d".to_owned(),
        parameters: serde_json::from_str("{}").unwrap(),
    }]);
    let body = String::from_utf8(request::body(&request, "p").unwrap()).unwrap();
    assert_eq!(body.matches("cache_control").count(), 4, "{body}");
    for marked in [r#""text":"2","cache_control""#, r#""text":"3","cache_control""#] {
        assert!(body.contains(marked), "{body}");
    }
}

#[tokio::test]
async fn stop_reasons_that_matter_are_told() {
    for (reason, finish) in [
        ("end_turn", Finish::Stop),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("refusal", Finish::ContentFilter),
        ("pause_turn", Finish::Pause),
        ("whatever", Finish::Stop),
    ] {
        let text = anthropic::block_start(0, r#"{"type":"text","text":"a"}"#);
        let (done, _, _server) = answer_to(stream(&[text, anthropic::stop(reason)]).end()).await;
        assert_eq!(done.unwrap().finish, finish, "{reason}");
    }
}

#[tokio::test]
async fn errors_inside_a_stream_have_codes() {
    let error = |kind: &str| {
        let data = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"boom"}}}}"#);
        anthropic::event("error", &data)
    };
    for (kind, code, retry) in [
        ("overloaded_error", FailureCode::Server, Retry::Backoff),
        ("rate_limit_error", FailureCode::RateLimit, Retry::Backoff),
        ("invalid_request_error", FailureCode::InvalidRequest, Retry::Never),
    ] {
        let (done, _, _server) = answer_to(stream(&[error(kind)]).stall()).await;
        let failure = done.unwrap_err();
        assert_eq!((failure.failure.code, failure.retry), (code, retry));
        assert!(failure.failure.message.contains("boom"));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_complete() {
    let begun = || {
        stream(&[
            anthropic::block_start(0, r#"{"type":"text","text":""}"#),
            anthropic::text(0, "half"),
            anthropic::block_stop(0),
            anthropic::block_start(1, r#"{"type":"tool_use","id":"a","name":"x","input":{}}"#),
        ])
    };
    let stray = anthropic::text(9, "x");
    let stop_only = anthropic::event("message_stop", r#"{"type":"message_stop"}"#);
    for (reply, code) in [
        (begun().end(), FailureCode::MalformedResponse),
        (begun().send(stop_only).end(), FailureCode::MalformedResponse),
        (begun().send(stray).end(), FailureCode::MalformedResponse),
        (begun().close(), FailureCode::Transport),
    ] {
        let (done, sink, _server) = answer_to(reply).await;
        assert_eq!(done.unwrap_err().failure.code, code);
        assert_eq!(sink.text(), "half");
    }
    let (done, _, _server) = answer_to(stream(&[anthropic::stop("end_turn")]).end()).await;
    assert_eq!(done.unwrap_err().failure.code, FailureCode::EmptyResponse);
}

#[tokio::test]
async fn a_stop_reason_completes_although_the_last_event_is_missing() {
    let text = anthropic::block_start(0, r#"{"type":"text","text":"a"}"#);
    let delta = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let (done, sink, _server) =
        answer_to(stream(&[text, anthropic::event("message_delta", delta)]).close()).await;
    assert_eq!(done.unwrap().usage.unwrap().output_tokens, 1);
    assert_eq!(sink.blocks(), [Block::text("a")]);
}

#[tokio::test]
async fn lone_surrogates_become_replacement_characters() {
    let reply = stream(&[
        anthropic::block_start(0, r#"{"type":"text","text":""}"#),
        anthropic::block_delta(0, r#"{"type":"text_delta","text":"a\ud800"}"#),
        anthropic::block_start(1, r#"{"type":"tool_use","id":"a","name":"x","input":{}}"#),
        anthropic::block_delta(1, r#"{"type":"input_json_delta","partial_json":"{\"n\":\"\\ud8"}"#),
        anthropic::block_delta(1, r#"{"type":"input_json_delta","partial_json":"00\"}"}"#),
        anthropic::stop("tool_use"),
    ]);
    let (done, sink, _server) = answer_to(reply.end()).await;
    done.unwrap();
    assert_eq!(sink.blocks(), [Block::text("a\u{fffd}"), a_call("a", "x", r#"{"n":"\ufffd"}"#)]);
}
