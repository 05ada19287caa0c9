//! What OpenAI-compatible servers do differently: a test for each row of the table.

use super::Chat;
use super::tests::{call, config, prompt, request};
use crate::event::{Block, FailureCode};
use crate::provider::http::Key;
use crate::provider::model_server::{ModelServer, Reply, chat, data};
use crate::provider::test_sink::Recorder;
use crate::provider::{CallError, Completion, Finish, Provider as _, Retry};

async fn answer_to(events: &[String]) -> (Result<Completion, CallError>, Vec<Block>) {
    let server = ModelServer::start().await;
    let reply = events.iter().fold(Reply::stream(), |reply, event| reply.send(event.as_str()));
    server.push(reply.end());
    let (done, sink) = call(&config(&server), &request(vec![prompt("hi")])).await;
    let blocks = if done.is_ok() { sink.blocks() } else { Vec::new() };
    (done, blocks)
}

/// The blocks of an answer that is whole; a finish and `[DONE]` are added.
async fn blocks_of(deltas: &[&str]) -> Vec<Block> {
    let mut events: Vec<_> = deltas.iter().map(|delta| chat::delta(delta)).collect();
    events.extend([chat::finish("stop"), chat::DONE.to_owned()]);
    let (done, blocks) = answer_to(&events).await;
    done.unwrap();
    blocks
}

fn a_call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

#[tokio::test]
async fn parallel_calls_under_one_index_are_told_apart_by_id() {
    let blocks = blocks_of(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"y","arguments":"{\"n\""}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}"#,
    ])
    .await;
    assert_eq!(blocks, [a_call("a", "x", "{}"), a_call("b", "y", r#"{"n":1}"#)]);
}

#[tokio::test]
async fn calls_without_index_are_calls_of_their_own() {
    let blocks = blocks_of(&[
        r#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{}"}},{"id":"b","function":{"name":"x","arguments":"{}"}}]}"#,
    ])
    .await;
    assert_eq!(blocks, [a_call("a", "x", "{}"), a_call("b", "x", "{}")]);
}

#[tokio::test]
async fn a_piece_without_index_goes_on_with_the_only_call() {
    let blocks = blocks_of(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]}"#,
        r#"{"tool_calls":[{"function":{"arguments":"}"}}]}"#,
    ])
    .await;
    assert_eq!(blocks, [a_call("a", "x", "{}")]);
}

#[tokio::test]
async fn a_piece_that_may_belong_to_several_calls_is_an_error() {
    let (done, _) = answer_to(&[
        chat::call(0, "a", "x", "{"),
        chat::call(1, "b", "x", "{"),
        chat::delta(r#"{"tool_calls":[{"function":{"arguments":"}"}}]}"#),
        chat::finish("tool_calls"),
    ])
    .await;
    assert_eq!(done.unwrap_err().failure.code, FailureCode::MalformedResponse);
}

#[tokio::test]
async fn interleaved_pieces_go_by_index() {
    let blocks = blocks_of(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\":"}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":"{\"q\":"}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"function":{"arguments":"2}"}}]}"#,
    ])
    .await;
    assert_eq!(blocks, [a_call("a", "x", r#"{"p":1}"#), a_call("b", "y", r#"{"q":2}"#)]);
}

#[tokio::test]
async fn a_whole_call_beside_the_finish_reason_counts() {
    let (done, blocks) = answer_to(&[
        data(
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        ),
        chat::DONE.to_owned(),
    ])
    .await;
    assert_eq!(done.unwrap().finish, Finish::Stop);
    assert_eq!(blocks, [a_call("a", "x", "{}")]);
}

#[tokio::test]
async fn arguments_may_be_an_object() {
    let blocks = blocks_of(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":{"n": [1, "\ud83d"]}}}]}"#,
    ])
    .await;
    assert_eq!(blocks, [a_call("a", "x", r#"{"n": [1, "\ufffd"]}"#)]);
}

#[tokio::test]
async fn empty_and_null_names_and_ids_overwrite_nothing() {
    let blocks = blocks_of(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":null,"function":{"name":null,"arguments":"{"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"","function":{"name":"","arguments":"}"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"a","function":null}]}"#,
    ])
    .await;
    assert_eq!(blocks, [a_call("a", "x", "{}")]);
}

#[tokio::test]
async fn missing_and_doubled_ids_are_replaced_by_ours() {
    let blocks = blocks_of(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"1"}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"a","function":{"name":"y","arguments":"2"}}]}"#,
        r#"{"tool_calls":[{"index":2,"function":{"name":"z","arguments":"3"}}]}"#,
    ])
    .await;
    let ids: Vec<_> = blocks
        .iter()
        .map(|block| if let Block::ToolCall { id, .. } = block { id.as_str() } else { "" })
        .collect();
    assert_eq!(ids[0], "a");
    assert!(ids[1].starts_with("call_") && ids[2].starts_with("call_") && ids[1] != ids[2], "{ids:?}");
}

#[tokio::test]
async fn a_call_without_name_is_an_error() {
    let (done, _) = answer_to(&[chat::call(0, "a", "", "{}"), chat::finish("stop")]).await;
    assert_eq!(done.unwrap_err().failure.code, FailureCode::MalformedResponse);
}

/// The call was kept without id and name, and every later request refused.
#[tokio::test]
async fn a_call_that_is_cut_before_its_name_has_one() {
    let server = ModelServer::start().await;
    let call = chat::delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}"#);
    server.push(Reply::stream().send(call).send(chat::text("much more than that")).stall());
    let mut sink = Recorder::of_at_most(8);
    let adapter = Chat::new("p", &config(&server), Key::Needless.into());
    let done = adapter.call(&request(vec![prompt("hi")]), &mut sink).await.unwrap();
    assert_eq!(done.finish, Finish::Length);
    assert!(sink.blocks().contains(&a_call("a", "unknown", "{}")), "{:?}", sink.blocks());
}

#[tokio::test]
async fn calls_count_although_the_finish_reason_says_stop() {
    let (done, blocks) = answer_to(&[chat::call(0, "a", "x", "{}"), chat::finish("stop")]).await;
    assert_eq!(done.unwrap().finish, Finish::Stop);
    assert_eq!(blocks.len(), 1);
}

#[tokio::test]
async fn finish_reasons_that_nobody_knows_mean_stop() {
    for reason in ["end_turn", "eos", "function_call", "whatever"] {
        let (done, _) =
            answer_to(&[data(r#"{"choices":[{"delta":{"content":"a"}}]}"#), chat::finish(reason)]).await;
        assert_eq!(done.unwrap().finish, Finish::Stop, "{reason}");
    }
    let (done, _) = answer_to(&[chat::text("a"), chat::finish(""), chat::DONE.to_owned()]).await;
    assert_eq!(done.unwrap().finish, Finish::Stop);
}

#[tokio::test]
async fn an_empty_finish_reason_in_the_middle_completes_nothing() {
    let middle = data(r#"{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}"#);
    let (done, _) = answer_to(&[middle]).await;
    assert_eq!(done.unwrap_err().failure.code, FailureCode::MalformedResponse);
}

#[tokio::test]
async fn finish_reasons_that_matter_are_told() {
    for (reason, finish) in [("length", Finish::Length), ("content_filter", Finish::ContentFilter)] {
        let (done, _) = answer_to(&[chat::text("a"), chat::finish(reason)]).await;
        assert_eq!(done.unwrap().finish, finish);
    }
    let (done, _) = answer_to(&[chat::finish("insufficient_system_resource")]).await;
    let error = done.unwrap_err();
    assert_eq!((error.failure.code, error.retry), (FailureCode::Server, Retry::Backoff));
}

#[tokio::test]
async fn a_refusal_is_text_that_blocks() {
    let delta = chat::delta(r#"{"content":null,"refusal":"I won't"}"#);
    let (done, blocks) = answer_to(&[delta, chat::finish("stop")]).await;
    assert_eq!((blocks, done.unwrap().finish), (vec![Block::text("I won't")], Finish::ContentFilter));
}

#[tokio::test]
async fn reasoning_is_read_under_every_name_and_kept_under_the_one_received() {
    for (delta, state) in [
        (r#"{"reasoning_content":"hm"}"#, r#"{"kind":"chat","version":1,"reasoning":"reasoning_content"}"#),
        (r#"{"reasoning":"hm"}"#, r#"{"kind":"chat","version":1,"reasoning":"reasoning"}"#),
        // Both at once are one thought told twice.
        (
            r#"{"reasoning":"hm","reasoning_content":"hm"}"#,
            r#"{"kind":"chat","version":1,"reasoning":"reasoning_content"}"#,
        ),
        (
            r#"{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","signature":"s"}]}"#,
            r#"{"kind":"chat","version":1,"reasoning":"reasoning","details":[{"type":"reasoning.text","signature":"s"}]}"#,
        ),
    ] {
        let (done, blocks) = answer_to(&[chat::delta(delta), chat::text("a"), chat::finish("stop")]).await;
        assert_eq!(blocks, [Block::Reasoning { text: "hm".to_owned() }, Block::text("a")]);
        assert_eq!(done.unwrap().replay_state.unwrap().get(), state);
    }
}

#[tokio::test]
async fn an_empty_first_reasoning_opens_no_block() {
    let blocks =
        blocks_of(&[r#"{"role":"assistant","content":"","reasoning_content":""}"#, r#"{"content":"a"}"#])
            .await;
    assert_eq!(blocks, [Block::text("a")]);
}

#[tokio::test]
async fn think_tags_are_split_off_where_configured_and_go_back_as_they_came() {
    let server = ModelServer::start().await;
    let reply = ["<thi", "nk>hm</think>", "\na"]
        .iter()
        .fold(Reply::stream(), |reply, text| reply.send(chat::text(text)));
    server.push(reply.send(chat::finish("stop")).end());
    let mut config = config(&server);
    config.think_tags = true;
    let (done, sink) = call(&config, &request(vec![prompt("hi")])).await;
    assert_eq!(sink.blocks(), [Block::Reasoning { text: "hm".to_owned() }, Block::text("\na")]);
    let mut source = crate::event::Source::of(crate::event::SourceKind::Model);
    source.provider = Some("p".to_owned());
    source.replay_state = done.unwrap().replay_state;
    let again =
        request(vec![crate::event::Message::new(crate::event::Role::Assistant, source, sink.blocks())]);
    let body = String::from_utf8(super::request::body(&again, "p").unwrap()).unwrap();
    assert!(body.contains(r#""content":"<think>hm</think>\na"}"#), "{body}");
}

#[tokio::test]
async fn usage_may_come_late_early_often_or_never() {
    let usage = |chunk: &str| chunk.replace("USAGE", r#""usage":{"prompt_tokens":3,"completion_tokens":2}"#);
    let text = chat::text("a");
    let finish = chat::finish("stop");
    for (events, total) in [
        (
            vec![
                text.clone(),
                finish.clone(),
                data(&usage(r#"{"choices":[],USAGE}"#)),
                chat::DONE.to_owned(),
            ],
            Some(5),
        ),
        (
            vec![text.clone(), finish.clone(), data(&usage(r#"{"choices":[{"index":0,"delta":{}}],USAGE}"#))],
            Some(5),
        ),
        (
            vec![data(&usage(r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],USAGE}"#))],
            Some(5),
        ),
        (
            vec![
                data(
                    r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
                ),
                data(&usage(r#"{"choices":[{"delta":{},"finish_reason":"stop"}],USAGE}"#)),
            ],
            Some(5),
        ),
        (vec![text.clone(), finish.clone(), data(r#"{"choices":[],"usage":null}"#)], None),
        (vec![text, finish], None),
    ] {
        let (done, _) = answer_to(&events).await;
        assert_eq!(done.unwrap().usage.map(|usage| usage.total_tokens), total, "{events:?}");
    }
}

#[tokio::test]
async fn the_end_of_the_stream_completes_only_after_a_finish_reason() {
    let (done, _) = answer_to(&[chat::text("a"), chat::finish("stop")]).await;
    done.unwrap();
    let (done, _) = answer_to(&[chat::text("a")]).await;
    assert_eq!(done.unwrap_err().failure.code, FailureCode::MalformedResponse);
}

#[tokio::test]
async fn errors_inside_a_stream_are_errors_in_every_form() {
    for error in [
        data(r#"{"error":{"message":"boom","code":500}}"#),
        data(r#"{"error":"boom"}"#),
        "event: error\ndata: {\"message\":\"boom\"}\n\n".to_owned(),
        "event: error\ndata: boom\n\n".to_owned(),
        "error: {\"code\":500,\"message\":\"boom\"}\n\n".to_owned(),
        data(r#"{"object":"error","message":"boom","type":"InternalServerError","code":500}"#),
    ] {
        let (done, _) = answer_to(&[chat::text("a"), error.clone()]).await;
        let failure = done.unwrap_err();
        assert_eq!((failure.failure.code, failure.retry), (FailureCode::Server, Retry::Backoff), "{error}");
        assert!(failure.failure.message.contains("boom"), "{}", failure.failure.message);
    }
}

#[tokio::test]
async fn anything_may_be_missing_null_or_repeated() {
    let (done, blocks) = answer_to(&[
        data(r#"{"choices":[{"delta":{"role":"assistant","content":null}}],"timings":{"n":1}}"#),
        data(r#"{"choices":[{"delta":null}]}"#),
        data("{}"),
        data(r#"{"choices":null,"error":null}"#),
        data(r#"{"choices":[{}]}"#),
        data(r#"{"choices":[{"delta":{"role":"assistant","content":"a","tool_calls":null,"reasoning":null}}]}"#),
        "data:{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":[]}}]}\r\n\r\n".to_owned(),
        chat::finish("stop"),
        "data:[DONE]\n\n".to_owned(),
    ])
    .await;
    done.unwrap();
    assert_eq!(blocks, [Block::text("ab")]);
}

#[tokio::test]
async fn a_whole_answer_may_come_as_one_block_at_the_end() {
    let all = chat::text("text first") + &chat::call(0, "a", "x", "{}") + &chat::finish("stop") + chat::DONE;
    let (done, blocks) = answer_to(&[": waiting\n\n".to_owned(), all]).await;
    done.unwrap();
    assert_eq!(blocks, [Block::text("text first"), a_call("a", "x", "{}")]);
}

#[tokio::test]
async fn a_call_that_leaked_into_the_text_stays_text() {
    let leaked = "<tool_call>{\"name\":\"bash\"}</tool_call>";
    let (done, blocks) = answer_to(&[chat::text(leaked), chat::finish("stop")]).await;
    done.unwrap();
    assert_eq!(blocks, [Block::text(leaked)]);
}

#[tokio::test]
async fn arguments_that_were_cut_stay_as_they_came() {
    let blocks = blocks_of(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"cmd\":\"rm"}}]}"#,
    ])
    .await;
    assert_eq!(blocks, [a_call("a", "x", r#"{"cmd":"rm"#)]);
}
