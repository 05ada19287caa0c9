//! Calls over real sockets: the request's bytes, deadlines, failures, replay.

mod pictures;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::{ModelConfig, Secret};
use crate::event::{Block, FailureCode, Message, Role, Source, SourceKind, ToolSpec};
use crate::provider::http::Key;
use crate::provider::model_server::{ModelServer, Reply, chat, data};
use crate::provider::test_sink::Recorder;
use crate::provider::{Finish, Images, Retry};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        images: Images::default(),
        model: "m".to_owned(),
        abilities: ModelConfig::default(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: Arc::new([]),
        max_tokens: None,
        reasoning_effort: None,
        place: None,
    }
}

fn message(role: Role, kind: SourceKind, text: &str) -> Message {
    Message::new(role, Source::of(kind), vec![Block::text(text)])
}

pub(super) fn prompt(text: &str) -> Message {
    message(Role::User, SourceKind::User, text)
}

pub(super) fn config(server: &ModelServer) -> ProviderConfig {
    ProviderConfig { base_url: Some(server.url() + "/v1/"), ..ProviderConfig::default() }
}

fn key() -> Key {
    Key::Present(Secret::new("sk-secret").unwrap())
}

pub(super) async fn call(
    config: &ProviderConfig,
    request: &ModelRequest,
) -> (Result<Completion, CallError>, Recorder) {
    let mut sink = Recorder::default();
    let chat = Chat::new("p", config, key().into());
    let done = tokio::time::timeout(PATIENCE, chat.call(request, &mut sink)).await.unwrap();
    (done, sink)
}

#[tokio::test]
async fn an_answer_arrives_with_its_usage_in_disjoint_counts() {
    let server = ModelServer::start().await;
    server.push(chat::reply(&["Hel", "lo"]));
    let (done, sink) = call(&config(&server), &request(vec![prompt("hi")])).await;
    let done = done.unwrap();
    assert_eq!(sink.blocks(), [Block::text("Hello")]);
    assert_eq!(done.finish, Finish::Stop);
    let usage = done.usage.unwrap();
    assert_eq!(
        (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.total_tokens),
        (6, 4, 2, 12)
    );
    let received = server.request().await;
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(received.header("authorization"), Some("Bearer sk-secret"));
    assert_eq!(
        received.text(),
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#
    );
}

#[tokio::test]
async fn one_connection_serves_many_calls() {
    let server = ModelServer::start().await;
    let (config, request) = (config(&server), request(vec![prompt("hi")]));
    let chat = Chat::new("p", &config, key().into());
    for _ in 0..3 {
        server.push(chat::reply(&["a"]));
        let mut sink = Recorder::default();
        tokio::time::timeout(PATIENCE, chat.call(&request, &mut sink)).await.unwrap().unwrap();
    }
    assert_eq!(server.connections(), 1);
}

/// A turn with thoughts and calls, played back: what came must go back byte for byte.
#[tokio::test]
async fn an_answer_goes_back_byte_for_byte_and_the_prefix_stays() {
    let server = ModelServer::start().await;
    let arguments = "{ \"command\" :\"ls \\u00e9\" ,\"n\":1.0e2}";
    let reply = Reply::stream()
        .send(chat::delta(r#"{"role":"assistant","content":"","reasoning_content":""}"#))
        .send(chat::reasoning("think 那"))
        .send(chat::reasoning(" on\n"))
        .send(chat::text("I look."))
        .send(chat::call(0, "call_1", "bash", arguments))
        .send(chat::finish("tool_calls"))
        .send(chat::DONE)
        .end();
    server.push(reply);
    server.push(chat::reply(&["done"]));
    let config = config(&server);
    let mut first = request(vec![message(Role::System, SourceKind::SystemPrompt, "be good"), prompt("hi")]);
    first.abilities.thinking = true;
    let (done, sink) = call(&config, &first).await;
    let mut source = Source::of(SourceKind::Model);
    source.provider = Some("p".to_owned());
    source.replay_state = done.unwrap().replay_state;
    let mut result = message(Role::Tool, SourceKind::Tool, "");
    result.tool_call_id = Some("call_1".to_owned());
    let mut second = first.clone();
    second.messages.push(Arc::new(Message::new(Role::Assistant, source, sink.blocks())));
    second.messages.push(Arc::new(result));
    call(&config, &second).await.0.unwrap();

    let (before, after) = (server.request().await, server.request().await);
    let messages =
        |text: &str| text[text.find("\"messages\"").unwrap()..text.find(",\"stream\"").unwrap()].to_owned();
    let (before, after) = (messages(before.text()), messages(after.text()));
    assert!(after.starts_with(before.strip_suffix(']').unwrap()));
    let call = format!(
        r#"{{"role":"assistant","content":"I look.","reasoning_content":"think 那 on\n","tool_calls":[{{"id":"call_1","type":"function","function":{{"name":"bash","arguments":{}}}}}]}}"#,
        serde_json::to_string(arguments).unwrap()
    );
    assert!(after.contains(&call), "{after}");
    assert!(
        after.ends_with(r#"{"role":"tool","tool_call_id":"call_1","content":"(no output)"}]"#),
        "{after}"
    );
}

#[test]
fn content_is_never_null_and_reasoning_of_a_call_is_never_left_out() {
    let call = Block::ToolCall { id: "c".to_owned(), name: "n".to_owned(), arguments: "{}".to_owned() };
    let assistant = Message::new(Role::Assistant, Source::of(SourceKind::Model), vec![call]);
    let mut request = request(vec![assistant]);
    request.abilities.thinking = true;
    let body: serde_json::Value = serde_json::from_slice(&request::body(&request, "p").unwrap()).unwrap();
    assert_eq!(body["messages"][0]["content"], "");
    assert_eq!(body["messages"][0]["reasoning_content"], "");
}

#[test]
fn thoughts_of_another_provider_go_only_to_a_model_that_thinks() {
    let blocks = vec![Block::Reasoning { text: "hm".to_owned() }, Block::text("a")];
    let mut source = Source::of(SourceKind::Model);
    source.provider = Some("other".to_owned());
    source.replay_state =
        Some(serde_json::from_str(r#"{"kind":"chat","version":1,"reasoning":"reasoning"}"#).unwrap());
    let mut request = request(vec![Message::new(Role::Assistant, source, blocks)]);
    let assistant = |request: &ModelRequest| {
        let body: serde_json::Value = serde_json::from_slice(&request::body(request, "p").unwrap()).unwrap();
        body["messages"][0].to_string()
    };
    assert_eq!(assistant(&request), r#"{"content":"a","role":"assistant"}"#);
    request.abilities.thinking = true;
    assert_eq!(assistant(&request), r#"{"content":"a","reasoning_content":"hm","role":"assistant"}"#);
}

#[test]
fn what_a_server_does_not_take_is_not_sent() {
    let tool = ToolSpec {
        name: "t".to_owned(),
        description: "d".to_owned(),
        parameters: serde_json::from_str("{\"type\": \"object\"}").unwrap(),
    };
    let mut request = request(vec![prompt("hi")]);
    request.tools = Arc::new([tool]);
    request.reasoning_effort = Some("max".to_owned());
    request.abilities = ModelConfig { stream_usage: false, ..ModelConfig::default() };
    let body = |request: &ModelRequest| String::from_utf8(request::body(request, "p").unwrap()).unwrap();
    let tools = r#""tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{"type": "object"}}}]"#;
    let messages = r#""messages":[{"role":"user","content":"hi"}],"stream":true"#;
    assert_eq!(body(&request), format!(r#"{{"model":"m",{tools},{messages}}}"#));
    request.abilities = ModelConfig {
        thinking: true,
        reasoning_effort: true,
        parallel_tool_calls: true,
        max_output: Some(9),
        ..ModelConfig::default()
    };
    assert_eq!(
        body(&request),
        format!(
            r#"{{"model":"m",{tools},{messages},"stream_options":{{"include_usage":true}},"max_tokens":9,"thinking":{{"type":"enabled"}},"reasoning_effort":"max","parallel_tool_calls":true}}"#
        )
    );
    request.abilities.max_completion_tokens = true;
    assert!(
        body(&request).contains(r#""max_completion_tokens":9,"#)
            && !body(&request).contains("\"max_tokens\"")
    );
    request.abilities.tools = false;
    request.reasoning_effort = Some("off".to_owned());
    assert!(!body(&request).contains("tool") && body(&request).contains(r#""thinking":{"type":"disabled"}"#));
}

#[tokio::test]
async fn without_a_key_nothing_is_sent() {
    let server = ModelServer::start().await;
    let chat = Chat::new("p", &config(&server), Key::Missing("help: dshd login p".to_owned()).into());
    let request = request(vec![prompt("hi")]);
    let mut sink = Recorder::default();
    let error = chat.call(&request, &mut sink).await.unwrap_err();
    assert_eq!((error.failure.code, error.retry), (FailureCode::MissingCredential, Retry::Never));
    assert!(error.failure.message.contains("dshd login p"));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_refusal_keeps_its_status_and_hides_the_key() {
    let server = ModelServer::start().await;
    server.push(Reply::status(401).json(r#"{"error":{"message":"bad key sk-secret"}}"#));
    let error = call(&config(&server), &request(vec![prompt("hi")])).await.0.unwrap_err();
    assert_eq!((error.failure.code, error.failure.status), (FailureCode::Auth, Some(401)));
    assert_eq!(error.failure.message, "the model refused the key (401, provider p): bad key [key]");
}

#[tokio::test]
async fn a_server_that_asks_for_a_pause_gets_it() {
    let server = ModelServer::start().await;
    server.push(Reply::status(429).header("retry-after", "2").text("slow down"));
    let error = call(&config(&server), &request(vec![prompt("hi")])).await.0.unwrap_err();
    assert_eq!(error.retry, Retry::After(Duration::from_secs(2)));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_transport_failure() {
    let server = ModelServer::start().await;
    let config = config(&server);
    drop(server);
    let error = call(&config, &request(vec![prompt("hi")])).await.0.unwrap_err();
    assert_eq!((error.failure.code, error.retry), (FailureCode::Transport, Retry::Backoff));
    assert!(error.failure.message.starts_with("cannot connect to the model"), "{}", error.failure.message);
}

async fn fails(config: &ProviderConfig, code: FailureCode) -> String {
    let (done, sink) = call(config, &request(vec![prompt("hi")])).await;
    let error = done.unwrap_err();
    assert_eq!((error.failure.code, error.retry), (code, Retry::Backoff), "{}", error.failure.message);
    sink.text()
}

#[tokio::test]
async fn silence_before_the_header_before_the_first_token_and_in_mid_answer_ends_in_time() {
    let server = ModelServer::start().await;
    let short = Duration::from_millis(50);
    let patient = config(&server);
    server.push(Reply::silence());
    let header = ProviderConfig { header_timeout: short, ..patient.clone() };
    fails(&header, FailureCode::Timeout).await;

    server.push(Reply::stream().send(chat::text("half")).stall());
    let idle = ProviderConfig { idle_timeout: short, ..patient.clone() };
    assert_eq!(fails(&idle, FailureCode::Timeout).await, "half");

    // Comments are life, but not a token.
    let comments = vec![b':'; 200].into_iter().flat_map(|byte| [byte, b'\n']).collect::<Vec<_>>();
    server.push(Reply::stream().drip(comments, Duration::from_millis(10)).stall());
    let first = ProviderConfig {
        first_token_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_secs(15),
        ..patient
    };
    fails(&first, FailureCode::Timeout).await;
}

#[tokio::test]
async fn comments_keep_a_slow_stream_alive() {
    let server = ModelServer::start().await;
    let comments = ": keep-alive\n\n".repeat(4);
    let reply = Reply::stream().send(chat::text("a")).drip(comments, Duration::from_millis(10));
    server.push(reply.send(chat::text("b")).send(chat::finish("stop")).send(chat::DONE).end());
    let config = ProviderConfig { idle_timeout: Duration::from_millis(300), ..config(&server) };
    let (done, sink) = call(&config, &request(vec![prompt("hi")])).await;
    done.unwrap();
    assert_eq!(sink.blocks(), [Block::text("ab")]);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_complete() {
    let server = ModelServer::start().await;
    let half = || Reply::stream().send(chat::text("half")).send(chat::call(0, "c", "bash", "{}"));
    for (reply, code) in [
        (half().end(), FailureCode::MalformedResponse),
        (half().send(chat::DONE).end(), FailureCode::MalformedResponse),
        (half().send("data: {\"choices\":[{\"del").end(), FailureCode::MalformedResponse),
        (half().send("data: not json\n\n").end(), FailureCode::MalformedResponse),
        (half().close(), FailureCode::Transport),
        (half().reset(), FailureCode::Transport),
    ] {
        server.push(reply);
        assert_eq!(fails(&config(&server), code).await, "half{}");
    }
    server.push(Reply::hang_up());
    fails(&config(&server), FailureCode::Transport).await;
    server.push(Reply::raw("SSH-2.0-OpenSSH\r\n").close());
    fails(&config(&server), FailureCode::Transport).await;
}

#[tokio::test]
async fn an_answer_that_says_nothing_is_a_failure() {
    let server = ModelServer::start().await;
    server.push(Reply::stream().send(chat::finish("stop")).send(chat::DONE).end());
    fails(&config(&server), FailureCode::EmptyResponse).await;
}

#[tokio::test]
async fn a_document_instead_of_a_stream_is_told() {
    let ok = |body: &str| Reply::status(200).json(body);
    let server = ModelServer::start().await;
    server.push(ok(r#"{"choices":[]}"#));
    fails(&config(&server), FailureCode::MalformedResponse).await;
    server.push(ok(r#"{"error":{"message":"overloaded","type":"overloaded_error"}}"#));
    fails(&config(&server), FailureCode::Server).await;
}

#[tokio::test]
async fn dropping_a_call_closes_its_stream() {
    let server = ModelServer::start().await;
    let (reply, live) = Reply::live();
    server.push(reply);
    let (config, request) = (config(&server), request(vec![prompt("hi")]));
    let chat = Chat::new("p", &config, key().into());
    let mut sink = Recorder::default();
    {
        let call = chat.call(&request, &mut sink);
        tokio::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("the call has ended"),
            () = async {
                server.request().await;
                live.send(chat::text("half")).await;
            } => {}
        }
    }
    live.closed().await;
}

#[tokio::test]
async fn a_sink_that_has_enough_ends_the_answer_as_too_long() {
    let server = ModelServer::start().await;
    server.push(Reply::stream().send(chat::text("half")).send(chat::text(&"x".repeat(100))).stall());
    let mut sink = Recorder::of_at_most(50);
    let request = request(vec![prompt("hi")]);
    let chat = Chat::new("p", &config(&server), key().into());
    let done = tokio::time::timeout(PATIENCE, chat.call(&request, &mut sink)).await.unwrap().unwrap();
    assert_eq!(done.finish, Finish::Length);
    sink.blocks();
}

#[tokio::test]
async fn text_in_pieces_of_a_byte_stays_whole() {
    let server = ModelServer::start().await;
    let bytes = chat::text("那🙂") + &chat::finish("stop") + chat::DONE;
    server.push(Reply::stream().drip(bytes, Duration::ZERO).end());
    let (done, sink) = call(&config(&server), &request(vec![prompt("hi")])).await;
    done.unwrap();
    assert_eq!(sink.blocks(), [Block::text("那🙂")]);
}

#[tokio::test]
async fn lone_surrogates_and_broken_bytes_become_replacement_characters() {
    let server = ModelServer::start().await;
    let mut broken = b"data: {\"choices\":[{\"delta\":{\"content\":\"x".to_vec();
    broken.extend_from_slice(b"\xff\"}}]}\n\n");
    let call_with = |arguments: &str| {
        chat::delta(&format!(
            r#"{{"tool_calls":[{{"index":0,"id":"c\ud800","function":{{"name":"bash","arguments":"{arguments}"}}}}]}}"#
        ))
    };
    let rest = chat::delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"d99c\"}"}}]}"#);
    let reply = Reply::stream()
        .send(chat::delta(r#"{"content":"a\ud99cb"}"#))
        .send(broken)
        .send(call_with(r#"{\"a\":\"\\u"#))
        .send(rest);
    server.push(reply.send(chat::finish("stop")).send(chat::DONE).end());
    let (done, sink) = call(&config(&server), &request(vec![prompt("hi")])).await;
    done.unwrap();
    let call = Block::ToolCall {
        id: "c\u{fffd}".to_owned(),
        name: "bash".to_owned(),
        arguments: r#"{"a":"\ufffd"}"#.to_owned(),
    };
    assert_eq!(sink.blocks(), [Block::text("a\u{fffd}bx\u{fffd}"), call]);
}

#[tokio::test]
async fn deep_nesting_breaks_nothing() {
    let server = ModelServer::start().await;
    let deep = "[".repeat(200_000);
    let deep =
        format!("{{\"choices\":[{{\"delta\":{{\"content\":\"a\",\"x\":{deep}{}}}}}]}}", "]".repeat(200_000));
    server.push(Reply::stream().send(data(&deep)).send(chat::finish("stop")).send(chat::DONE).end());
    let (done, sink) = call(&config(&server), &request(vec![prompt("hi")])).await;
    done.unwrap();
    assert_eq!(sink.blocks(), [Block::text("a")]);
}

#[tokio::test]
async fn a_server_that_answers_no_handshake_is_given_up_in_time() {
    let server = ModelServer::start().await;
    let base_url = Some(server.url().replace("http://", "https://"));
    let connect_timeout = Duration::from_millis(200);
    let config = ProviderConfig { base_url, connect_timeout, ..ProviderConfig::default() };
    fails(&config, FailureCode::Timeout).await;
}

#[tokio::test]
async fn an_address_that_is_none_is_told_by_its_key() {
    for (base_url, expected) in
        [(None, "set providers.p.base_url"), (Some("nonsense"), "providers.p.base_url is no address")]
    {
        let config = ProviderConfig { base_url: base_url.map(str::to_owned), ..ProviderConfig::default() };
        let error = call(&config, &request(vec![prompt("hi")])).await.0.unwrap_err();
        assert!(error.failure.message.contains(expected), "{}", error.failure.message);
        assert_eq!(error.retry, Retry::Never);
    }
}
