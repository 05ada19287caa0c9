//! The scripted provider, called as any other.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::ModelConfig;
use crate::event::{Block, Source, ToolSpec};
use crate::provider::test_sink::Recorder;
use crate::provider::{Finish, Images};

fn message(role: Role, kind: SourceKind, text: &str) -> Arc<Message> {
    Arc::new(Message::new(role, Source::of(kind), vec![Block::text(text)]))
}

fn prompt(text: &str) -> Arc<Message> {
    message(Role::User, SourceKind::User, text)
}

fn request(messages: Vec<Arc<Message>>) -> ModelRequest {
    let glob = ToolSpec {
        name: "glob".to_owned(),
        description: String::new(),
        parameters: serde_json::from_str("{}").unwrap(),
    };
    ModelRequest {
        images: Images::default(),
        model: "m".to_owned(),
        abilities: ModelConfig::default(),
        messages,
        tools: Arc::new([glob]),
        max_tokens: None,
        reasoning_effort: None,
        place: None,
    }
}

fn scripted(script: &str) -> (Scripted, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script.jsonl");
    std::fs::write(&path, script).unwrap();
    (Scripted { path: Some(path), keyless: true, attempts: Mutex::default() }, dir)
}

async fn play(model: &Scripted, messages: &[Arc<Message>]) -> Result<(Vec<Block>, Completion), CallError> {
    let mut sink = Recorder::default();
    let request = request(messages.to_vec());
    let call = model.call(&request, &mut sink);
    let completion = tokio::time::timeout(Duration::from_secs(5), call).await.unwrap()?;
    Ok((sink.blocks(), completion))
}

fn said(blocks: &[Block]) -> String {
    blocks.iter().map(|block| if let Block::Text { text } = block { text.as_str() } else { "" }).collect()
}

#[tokio::test]
async fn without_a_script_the_directory_is_listed_and_the_missing_model_is_told() {
    let model = Scripted { path: None, keyless: true, attempts: Mutex::default() };
    let mut messages = vec![prompt("hi")];
    let (blocks, _) = play(&model, &messages).await.unwrap();
    let [Block::ToolCall { id, name, arguments }] = &blocks[..] else { panic!("{blocks:?}") };
    assert!(!id.is_empty());
    assert_eq!(name, "glob");
    assert_eq!(arguments, r#"{"pattern":"*"}"#);

    messages.push(Arc::new(Message::new(Role::Assistant, Source::of(SourceKind::Model), blocks.clone())));
    messages.push(message(Role::Tool, SourceKind::Tool, "Cargo.toml\nsrc/lib.rs"));
    let (blocks, completion) = play(&model, &messages).await.unwrap();
    let text = said(&blocks);
    assert!(text.contains("The working directory holds:\n\n- Cargo.toml\n- src/\n"), "{text}");
    assert!(text.ends_with(concat!(
        "no model was called: no key is set. help: dshd login deepseek | export DEEPSEEK_API_KEY=… | ",
        "a local model: dshd config init --provider openai-compatible --base-url http://127.0.0.1:11434/v1\n"
    )));
    assert_eq!(completion.finish, Finish::Stop);
}

#[tokio::test]
async fn without_a_tool_or_with_a_failing_one_the_missing_model_is_still_told() {
    let model = Scripted { path: None, keyless: true, attempts: Mutex::default() };
    let mut failed =
        Message::new(Role::Tool, Source::of(SourceKind::Tool), vec![Block::text("Error: no such place")]);
    failed.is_error = Some(true);
    let answer = message(Role::Assistant, SourceKind::Model, "");
    let (blocks, _) = play(&model, &[prompt("hi"), answer, Arc::new(failed)]).await.unwrap();
    assert!(said(&blocks).contains("Error: no such place") && said(&blocks).contains("no model was called"));

    let mut request = request(vec![prompt("hi")]);
    request.tools = Arc::new([]);
    let mut sink = Recorder::default();
    model.call(&request, &mut sink).await.unwrap();
    assert!(said(&sink.blocks()).contains("no model was called"));
}

#[tokio::test]
async fn a_script_says_everything_that_a_model_may_say() {
    let (model, _dir) = scripted(concat!(
        "# a comment\n\n",
        r#"{"parts":[{"reasoning":"hm"},{"text":["a","b"],"repeat":2,"delayMs":0},{"tool":"bash","id":"c1","arguments":{"a":1}},{"tool":"read","id":"c2","arguments":"not json"}],"finish":"length","usage":{"inputTokens":1,"outputTokens":2,"cacheReadTokens":3}}"#,
    ));
    let (blocks, completion) = play(&model, &[prompt("hi")]).await.unwrap();
    let call = |id: &str, name: &str, arguments: &str| Block::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let expected = [
        Block::Reasoning { text: "hm".to_owned() },
        Block::text("abab"),
        call("c1", "bash", r#"{"a":1}"#),
        call("c2", "read", "not json"),
    ];
    assert_eq!(blocks, expected);
    assert_eq!(completion.finish, Finish::Length);
    assert_eq!(completion.usage.unwrap().total_tokens, 6);
}

#[tokio::test]
async fn the_first_line_whose_conditions_hold_is_played() {
    let (model, _dir) = scripted(concat!(
        "{\"turn\":2,\"parts\":[{\"text\":\"second turn\"}]}\n",
        "{\"prompt\":\"magic\",\"step\":2,\"parts\":[{\"text\":\"second step\"}]}\n",
        "{\"prompt\":\"magic\",\"parts\":[{\"text\":\"abracadabra\"}]}\n",
        "{\"parts\":[{\"text\":\"else\"}]}\n",
    ));
    let answer = message(Role::Assistant, SourceKind::Model, "a");
    for (messages, expected) in [
        (vec![prompt("magic!")], "abracadabra"),
        (vec![prompt("magic!"), answer.clone()], "second step"),
        (vec![prompt("plain")], "else"),
        (vec![prompt("magic"), answer, prompt("magic")], "second turn"),
    ] {
        assert_eq!(said(&play(&model, &messages).await.unwrap().0), expected);
    }
}

#[tokio::test]
async fn every_failure_can_be_played_and_the_next_attempt_may_succeed() {
    for code in FailureCode::NAMED {
        let code = code.as_text();
        let (model, _dir) = scripted(&format!(
            "{{\"attempt\":1,\"parts\":[{{\"fail\":\"{code}\",\"message\":\"m\",\"status\":418}}]}}\n{{\"parts\":[{{\"text\":\"ok\"}}]}}\n"
        ));
        let messages = [prompt("hi")];
        let error = play(&model, &messages).await.unwrap_err();
        assert_eq!((error.failure.code.as_text(), error.failure.status), (code, Some(418)));
        assert_eq!(said(&play(&model, &messages).await.unwrap().0), "ok");
    }
    let (model, _dir) = scripted("{\"parts\":[{\"text\":\"half\"},{\"cut\":true}]}");
    assert_eq!(play(&model, &[prompt("hi")]).await.unwrap_err().failure.code, FailureCode::Transport);
}

#[tokio::test(start_paused = true)]
async fn a_script_can_stall() {
    let (model, _dir) = scripted("{\"parts\":[{\"text\":\"half\"},{\"stall\":true}]}");
    let request = request(vec![prompt("hi")]);
    let mut sink = Recorder::default();
    let hour = Duration::from_hours(1);
    assert!(tokio::time::timeout(hour, model.call(&request, &mut sink)).await.is_err());
    assert_eq!(sink.text(), "half");
}

#[tokio::test]
async fn a_bad_script_is_told_with_its_line() {
    for (script, expected) in [
        ("\n{\"parts\":[{}]}", "line 2: a part has exactly one of"),
        ("{\"parts\":[{\"text\":\"a\",\"cut\":true}]}", "line 1: a part has exactly one of"),
        ("{\"parts\":[{\"fail\":\"NOPE\"}]}", "line 1: unknown failure code NOPE"),
        ("{\"step\":\"x\"}", "line 1: invalid type"),
        ("{\"turn\":7}", "no answer for turn 1, step 1, attempt 1"),
    ] {
        let (model, _dir) = scripted(script);
        let error = play(&model, &[prompt("hi")]).await.unwrap_err();
        assert!(error.failure.message.contains(expected), "{}", error.failure.message);
        assert_eq!(error.retry, Retry::Never);
    }
}

#[tokio::test]
async fn the_example_of_the_page_plays_as_the_page_says() {
    let page = include_str!("../../../docs/scripted.md");
    let example = page.split("```jsonl\n").nth(1).unwrap().split("```").next().unwrap();
    let (model, _dir) = scripted(example);
    let (first, _) = play(&model, &[prompt("hi")]).await.unwrap();
    assert_eq!(first.len(), 3);
    let error = play(&model, &[prompt("hi"), prompt("flaky")]).await.unwrap_err();
    assert_eq!(error.retry, Retry::After(Duration::from_millis(200)));
    assert_eq!(said(&play(&model, &[prompt("a"), prompt("b")]).await.unwrap().0), "ok");
}
