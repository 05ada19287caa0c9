//! Calls over real sockets, and the bytes of requests.

mod pictures;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::{ModelConfig, Secret};
use crate::event::{Block, FailureCode, Message, Role, Source, SourceKind, ToolSpec};
use crate::provider::http::Key;
use crate::provider::model_server::{ModelServer, Reply, responses};
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

fn result(call: &str, text: &str) -> Message {
    let mut result = message(Role::Tool, SourceKind::Tool, text);
    result.tool_call_id = Some(call.to_owned());
    result
}

fn answered(replay_state: Option<&str>, blocks: Vec<Block>) -> Message {
    let mut source = Source::of(SourceKind::Model);
    source.provider = Some("p".to_owned());
    source.model = Some("m".to_owned());
    source.replay_state = replay_state.map(|state| serde_json::from_str(state).unwrap());
    Message::new(Role::Assistant, source, blocks)
}

pub(super) fn a_call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn thought(text: &str) -> Block {
    Block::Reasoning { text: text.to_owned() }
}

pub(super) async fn answer_to(reply: Reply) -> (Result<Completion, CallError>, Recorder, ModelServer) {
    let server = ModelServer::start().await;
    server.push(reply);
    let config = ProviderConfig { base_url: Some(server.url() + "/v1"), ..ProviderConfig::default() };
    let adapter = Responses::new("p", &config, Key::Present(Secret::new("sk-secret").unwrap()).into());
    let mut sink = Recorder::default();
    let request = request(vec![prompt("hi")]);
    let done = tokio::time::timeout(PATIENCE, adapter.call(&request, &mut sink)).await.unwrap();
    (done, sink, server)
}

pub(super) fn stream(events: &[String]) -> Reply {
    events.iter().fold(Reply::stream().send(responses::created()), |reply, event| reply.send(event.as_str()))
}

fn body_of(request: &ModelRequest) -> String {
    String::from_utf8(request::body(request, "p").unwrap()).unwrap()
}

fn input_of(messages: Vec<Message>) -> serde_json::Value {
    let body: serde_json::Value = serde_json::from_str(&body_of(&request(messages))).unwrap();
    body["input"].clone()
}

#[tokio::test]
async fn an_answer_arrives_with_its_usage_in_disjoint_counts() {
    let (done, sink, server) = answer_to(responses::reply(&["Hel", "lo"])).await;
    let done = done.unwrap();
    assert_eq!(sink.blocks(), [Block::text("Hello")]);
    assert_eq!((done.finish, done.replay_state.is_none()), (Finish::Stop, true));
    let usage = done.usage.unwrap();
    assert_eq!(
        (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.total_tokens),
        (6, 4, 2, 12)
    );
    let received = server.request().await;
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/v1/responses"));
    assert_eq!(received.header("authorization"), Some("Bearer sk-secret"));
    assert_eq!(
        received.text(),
        r#"{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],"stream":true,"store":false,"max_output_tokens":100}"#
    );
}

#[tokio::test]
async fn thoughts_go_back_sealed_and_byte_for_byte_among_texts_and_calls() {
    let raw = r#"{"id":"rs_0","type":"reasoning","encrypted_content":"gAA==","summary":[{"type":"summary_text","text":"h\u00e9"},  {"type":"summary_text","text":"m"}]}"#;
    let hidden = r#"{"id":"rs_2","type":"reasoning","encrypted_content":"gBB==","summary":[]}"#;
    let said = r#"{"id":"msg_1","type":"message","role":"assistant","phase":"commentary","status":"in_progress","content":[]}"#;
    let reply = stream(&[
        responses::added(0, r#"{"id":"rs_0","type":"reasoning","summary":[]}"#),
        responses::summary(0, 0, "h"),
        responses::summary(0, 0, "é"),
        responses::summary(0, 1, "m"),
        responses::done(0, raw),
        responses::added(1, said),
        responses::text(1, "I look"),
        responses::done(1, &responses::message(1, "I look")),
        responses::done(2, hidden),
        responses::call(3, "call_é", "bash", r#"{"command":  "l"}"#),
        responses::call(4, "call_b", "now", "{}"),
        responses::completed(),
    ]);
    let (done, sink, _server) = answer_to(reply.end()).await;
    let done = done.unwrap();
    let blocks = [
        thought("hé\n\nm"),
        Block::text("I look"),
        a_call("call_é", "bash", r#"{"command":  "l"}"#),
        a_call("call_b", "now", "{}"),
    ];
    assert_eq!((sink.blocks().as_slice(), done.finish), (blocks.as_slice(), Finish::Stop));
    let state = done.replay_state.unwrap();

    let history = vec![prompt("hi"), answered(Some(state.get()), blocks.into()), result("call_é", "")];
    let body = body_of(&request(history));
    let expected = [
        r#""input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},"#,
        raw,
        r#",{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look"}],"phase":"commentary"},"#,
        hidden,
        r#",{"type":"function_call","call_id":"call_é","name":"bash","arguments":"{\"command\":  \"l\"}"},"#,
        r#"{"type":"function_call","call_id":"call_b","name":"now","arguments":"{}"},"#,
        r#"{"type":"function_call_output","call_id":"call_é","output":"(no output)"}],"stream":true"#,
    ];
    assert!(body.contains(&expected.concat()), "{body}");
}

#[test]
fn thoughts_go_back_only_to_the_model_that_thought_them_and_only_before_what_they_led_to() {
    let state = r#"{"kind":"responses","version":1,"items":[{"type":"reasoning","raw":{"id":"rs","type":"reasoning"}},{"type":"message"}]}"#;
    let blocks = || vec![thought("hm"), Block::text("a")];
    let text_only = serde_json::json!([{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}]);
    let mut other_model = answered(Some(state), blocks());
    other_model.source.model = Some("other".to_owned());
    let mut other_provider = answered(Some(state), blocks());
    other_provider.source.provider = Some("other".to_owned());
    let swapped = answered(Some(state), vec![Block::text("a"), thought("hm")]);
    for message in [other_model, other_provider, swapped, answered(None, blocks())] {
        assert_eq!(input_of(vec![message]), text_only);
    }
    let ours = input_of(vec![answered(Some(state), blocks())]);
    assert_eq!(ours[0], serde_json::json!({"id":"rs","type":"reasoning"}));
    let alone = r#"{"kind":"responses","version":1,"items":[{"type":"reasoning","raw":{"id":"rs"}}]}"#;
    assert_eq!(input_of(vec![answered(Some(alone), vec![thought("hm")])]), serde_json::json!([]));
}

#[test]
fn the_whole_request_in_its_order() {
    let mut request = request(vec![
        message(Role::System, SourceKind::SystemPrompt, "be good"),
        prompt("hi"),
        message(Role::User, SourceKind::RuntimeContext, "today"),
        answered(None, vec![a_call("a", "x", "{\"cut")]),
        result("a", "Error: no JSON"),
    ]);
    request.tools = Arc::new([ToolSpec {
        name: "x".to_owned(),
        description: "d".to_owned(),
        parameters: serde_json::from_str("{\"type\":\"object\"}").unwrap(),
    }]);
    request.abilities = ModelConfig {
        thinking: true,
        reasoning_effort: true,
        parallel_tool_calls: true,
        ..ModelConfig::default()
    };
    request.reasoning_effort = Some("high".to_owned());
    let expected = [
        r#"{"model":"m","instructions":"be good","#,
        r#""tools":[{"type":"function","name":"x","description":"d","parameters":{"type":"object"},"strict":false}],"#,
        r#""input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},"#,
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"today"}]},"#,
        r#"{"type":"function_call","call_id":"a","name":"x","arguments":"{\"cut"},"#,
        r#"{"type":"function_call_output","call_id":"a","output":"Error: no JSON"}],"#,
        r#""stream":true,"store":false,"max_output_tokens":100,"reasoning":{"effort":"high","summary":"auto"},"#,
        r#""include":["reasoning.encrypted_content"],"parallel_tool_calls":true}"#,
    ];
    assert_eq!(body_of(&request), expected.concat());
    request.reasoning_effort = Some("off".to_owned());
    request.abilities.reasoning_summary = false;
    assert!(body_of(&request).contains(r#""reasoning":{"effort":"none"},"#));
    request.abilities = ModelConfig { tools: false, ..ModelConfig::default() };
    let plain = body_of(&request);
    assert!(
        !plain.contains("reasoning") && !plain.contains("include") && !plain.contains("tools"),
        "{plain}"
    );
}

#[tokio::test]
async fn an_answer_ends_for_the_reason_that_is_told() {
    let text = || responses::text(0, "a");
    for (end, finish) in [
        (responses::completed(), Finish::Stop),
        (
            responses::end("incomplete", r#""incomplete_details":{"reason":"max_output_tokens"},"#),
            Finish::Length,
        ),
        (
            responses::end("incomplete", r#""incomplete_details":{"reason":"content_filter"},"#),
            Finish::ContentFilter,
        ),
        (responses::end("incomplete", r#""incomplete_details":{"reason":"whatever"},"#), Finish::Length),
        (responses::end("incomplete", ""), Finish::Length),
    ] {
        let (done, sink, _server) = answer_to(stream(&[text(), end.clone()]).end()).await;
        let done = done.unwrap();
        assert_eq!(done.finish, finish, "{end}");
        assert_eq!((sink.blocks(), done.usage.unwrap().total_tokens), (vec![Block::text("a")], 12));
    }
}

#[tokio::test]
async fn a_refusal_is_text_that_blocks_and_goes_back_as_one() {
    let delta = responses::event(
        "response.refusal.delta",
        r#""item_id":"msg_0","output_index":0,"content_index":0,"delta":"I won't""#,
    );
    let (done, sink, _server) = answer_to(stream(&[delta, responses::completed()]).end()).await;
    let done = done.unwrap();
    assert_eq!((sink.blocks(), done.finish), (vec![Block::text("I won't")], Finish::ContentFilter));
    let state = done.replay_state.unwrap();
    assert_eq!(
        input_of(vec![answered(Some(state.get()), sink.blocks())])[0]["content"],
        serde_json::json!([{"type":"refusal","refusal":"I won't"}])
    );
}

#[tokio::test]
async fn errors_inside_a_stream_have_codes() {
    let error = |code: &str| {
        let members = format!(r#""code":"{code}","message":"boom","param":null"#);
        let nested = format!(r#""error":{{"type":"x","code":"{code}","message":"boom"}}"#);
        let failed =
            format!(r#""response":{{"status":"failed","error":{{"code":"{code}","message":"boom"}}}}"#);
        [
            responses::event("error", &members),
            responses::event("error", &nested),
            responses::event("response.failed", &failed),
            format!("data: {{{nested}}}\n\n"),
        ]
    };
    for (kind, code, retry) in [
        ("server_error", FailureCode::Server, Retry::Backoff),
        ("server_is_overloaded", FailureCode::Server, Retry::Backoff),
        ("rate_limit_exceeded", FailureCode::RateLimit, Retry::Backoff),
        ("context_length_exceeded", FailureCode::ContextWindowExceeded, Retry::Never),
        ("insufficient_quota", FailureCode::Quota, Retry::Never),
        ("invalid_prompt", FailureCode::InvalidRequest, Retry::Never),
    ] {
        for event in error(kind) {
            let (done, _, _server) = answer_to(stream(std::slice::from_ref(&event)).stall()).await;
            let failure = done.unwrap_err();
            assert_eq!((failure.failure.code, failure.retry), (code, retry), "{event}");
            assert!(failure.failure.message.contains("boom"), "{event}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_complete() {
    let begun =
        || stream(&[responses::text(0, "half"), responses::added(1, &responses::call_item(1, "a", "x", ""))]);
    for (reply, code) in [
        (begun().end(), FailureCode::MalformedResponse),
        (begun().send("data: [DONE]\n\n").end(), FailureCode::MalformedResponse),
        (begun().send(responses::end("cancelled", "")).end(), FailureCode::MalformedResponse),
        (begun().send("data: {\"type\":\n\n").end(), FailureCode::MalformedResponse),
        (begun().close(), FailureCode::Transport),
    ] {
        let (done, sink, _server) = answer_to(reply).await;
        assert_eq!(done.unwrap_err().failure.code, code);
        assert_eq!(sink.text(), "half");
    }
    let (done, _, _server) = answer_to(stream(&[responses::completed()]).end()).await;
    assert_eq!(done.unwrap_err().failure.code, FailureCode::EmptyResponse);
}
