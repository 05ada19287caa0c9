//! What servers of this wire do that OpenAI's own does not: a golden stream each.

use super::tests::{a_call, answer_to, stream};
use crate::event::{Block, FailureCode};
use crate::provider::model_server::{Reply, responses};

async fn blocks_of(events: &[String]) -> Vec<Block> {
    let (done, sink, _server) = answer_to(stream(events).end()).await;
    done.unwrap();
    sink.blocks()
}

fn event(kind: &str, members: &str) -> String {
    responses::event(kind, members)
}

#[tokio::test]
async fn an_item_may_be_told_as_a_whole_only() {
    let call = responses::done(1, &responses::call_item(1, "a", "x", "{}"));
    let blocks =
        blocks_of(&[responses::done(0, &responses::message(0, "all")), call, responses::completed()]).await;
    assert_eq!(blocks, [Block::text("all"), a_call("a", "x", "{}")]);
}

#[tokio::test]
async fn everything_may_come_with_the_last_event() {
    let output = format!(
        r#""output":[{},{}],"#,
        responses::message(0, "all"),
        responses::call_item(1, "a", "x", "{\"n\":1}")
    );
    let blocks = blocks_of(&[responses::end("completed", &output)]).await;
    assert_eq!(blocks, [Block::text("all"), a_call("a", "x", "{\"n\":1}")]);
}

#[tokio::test]
async fn the_whole_of_a_part_may_come_without_deltas_and_is_not_told_twice() {
    let whole = |part: u32, text: &str| {
        let members = format!(r#""output_index":0,"content_index":{part},"text":"{text}""#);
        event("response.output_text.done", &members)
    };
    let arguments =
        event("response.function_call_arguments.done", r#""output_index":1,"arguments":"{}","name":"x""#);
    let blocks = blocks_of(&[
        responses::text(0, "a"),
        whole(0, "a"),
        whole(1, "b"),
        responses::added(1, &responses::call_item(1, "c", "x", "")),
        arguments,
        responses::done(1, &responses::call_item(1, "c", "x", "{}")),
        responses::completed(),
    ])
    .await;
    assert_eq!(blocks, [Block::text("ab"), a_call("c", "x", "{}")]);
}

#[tokio::test]
async fn items_need_not_be_announced_and_events_need_no_index() {
    let delta = |text: &str| event("response.output_text.delta", &format!(r#""delta":"{text}""#));
    let blocks = blocks_of(&[
        delta("a"),
        delta("b"),
        event("response.function_call_arguments.delta", r#""item_id":"fc","delta":"{\"n\":""#),
        event("response.function_call_arguments.delta", r#""item_id":"fc","delta":"1}""#),
        event(
            "response.output_item.done",
            r#""item":{"id":"fc","type":"function_call","call_id":"c","name":"x","arguments":"{\"n\":1}"}"#,
        ),
        responses::completed(),
    ])
    .await;
    assert_eq!(blocks, [Block::text("ab"), a_call("c", "x", "{\"n\":1}")]);
}

#[tokio::test]
async fn ids_that_change_with_every_event_do_not_matter_beside_an_index() {
    let delta = |id: &str, text: &str| {
        let members = format!(r#""item_id":"{id}","output_index":0,"content_index":0,"delta":"{text}""#);
        event("response.output_text.delta", &members)
    };
    let done = responses::message(0, "ab").replace("msg_0", "third");
    let blocks = blocks_of(&[
        delta("first", "a"),
        delta("second", "b"),
        responses::done(0, &done),
        responses::completed(),
    ])
    .await;
    assert_eq!(blocks, [Block::text("ab")]);
}

#[tokio::test]
async fn parallel_calls_that_interleave_are_told_apart_and_a_piece_of_neither_is_an_error() {
    let open = |index, id| responses::added(index, &responses::call_item(index, id, "x", ""));
    let events = [
        open(0, "a"),
        open(1, "b"),
        responses::arguments(0, "{\"n\":"),
        responses::arguments(1, "{\"m\":"),
        responses::arguments(0, "1}"),
        responses::arguments(1, "2}"),
        responses::completed(),
    ];
    assert_eq!(blocks_of(&events).await, [a_call("a", "x", "{\"n\":1}"), a_call("b", "x", "{\"m\":2}")]);

    let stray = event("response.function_call_arguments.delta", r#""delta":"1""#);
    let (done, _, _server) = answer_to(stream(&[open(0, "a"), open(1, "b"), stray]).end()).await;
    assert_eq!(done.unwrap_err().failure.code, FailureCode::MalformedResponse);
}

#[tokio::test]
async fn a_call_without_id_or_with_anothers_gets_one_of_ours() {
    let blocks = blocks_of(&[
        responses::call(0, "a", "x", "{}"),
        responses::call(1, "a", "x", "{}"),
        responses::call(2, "", "x", "{}"),
        responses::completed(),
    ])
    .await;
    let id = |block: &Block| match block {
        Block::ToolCall { id, .. } => id.clone(),
        Block::Text { .. } | Block::Reasoning { .. } | Block::Image { .. } => panic!("no call: {block:?}"),
    };
    let ids: Vec<String> = blocks.iter().map(id).collect();
    assert_eq!(ids[0], "a");
    assert!(ids[1].starts_with("call_") && ids[2].starts_with("call_") && ids[1] != ids[2], "{ids:?}");

    let (done, _, _server) =
        answer_to(stream(&[responses::call(0, "a", "", "{}"), responses::completed()]).end()).await;
    assert_eq!(done.unwrap_err().failure.code, FailureCode::MalformedResponse);
}

#[tokio::test]
async fn arguments_may_be_an_object() {
    let item = r#"{"type":"function_call","call_id":"a","name":"x","arguments":{"n": 1}}"#;
    assert_eq!(
        blocks_of(&[responses::done(0, item), responses::completed()]).await,
        [a_call("a", "x", r#"{"n": 1}"#)]
    );
}

#[tokio::test]
async fn open_models_think_in_plain_text_which_goes_back_as_it_came() {
    let raw =
        r#"{"id":"rs","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}"#;
    let delta = event("response.reasoning_text.delta", r#""output_index":0,"content_index":0,"delta":"hm""#);
    let (done, sink, _server) = answer_to(
        stream(&[delta, responses::done(0, raw), responses::text(1, "a"), responses::completed()]).end(),
    )
    .await;
    assert_eq!(sink.blocks(), [Block::Reasoning { text: "hm".to_owned() }, Block::text("a")]);
    assert!(done.unwrap().replay_state.unwrap().get().contains(raw));
    // A summary alone can't go back: nobody could look the thought up.
    let summary = r#"{"id":"rs","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}"#;
    let (done, sink, _server) = answer_to(
        stream(&[responses::done(0, summary), responses::text(1, "a"), responses::completed()]).end(),
    )
    .await;
    assert_eq!(sink.blocks()[0], Block::Reasoning { text: "hm".to_owned() });
    assert!(done.unwrap().replay_state.is_none());
}

#[tokio::test]
async fn anything_may_be_missing_null_or_unknown() {
    let (done, sink, _server) = answer_to(
        Reply::stream()
            .send(": keep-alive\n\ndata: {}\n\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n")
            .send(event("response.in_progress", r#""response":null"#))
            .send(responses::added(0, r#"{"type":"web_search_call","id":"ws"}"#))
            .send(responses::done(0, r#"{"type":"web_search_call","id":"ws"}"#))
            .send(event(
                "response.content_part.added",
                r#""output_index":1,"part":{"type":"output_text","text":""}"#,
            ))
            .send(event("response.output_text.delta", r#""output_index":1,"delta":null,"error":null"#))
            .send(responses::text(1, "a"))
            .send(event("response.output_text.annotation.added", r#""output_index":1,"annotation":{}"#))
            .send("data: {\"type\":\"response.completed\"}\n\n")
            .end(),
    )
    .await;
    assert_eq!(sink.blocks(), [Block::text("a")]);
    assert!(done.unwrap().usage.is_none());
}

#[tokio::test]
async fn lone_surrogates_become_replacement_characters() {
    let raw = r#"{"id":"rs","type":"reasoning","encrypted_content":"x","summary":[{"text":"\ud800"}]}"#;
    let (done, sink, _server) = answer_to(
        stream(&[
            responses::done(0, raw),
            event("response.output_text.delta", r#""output_index":1,"delta":"a\ud800""#),
            responses::added(2, &responses::call_item(2, "c", "x", "")),
            event("response.function_call_arguments.delta", r#""output_index":2,"delta":"{\"n\":\"\\ud8""#),
            event("response.function_call_arguments.delta", r#""output_index":2,"delta":"00\"}""#),
            responses::completed(),
        ])
        .end(),
    )
    .await;
    let blocks = [
        Block::Reasoning { text: "\u{fffd}".to_owned() },
        Block::text("a\u{fffd}"),
        a_call("c", "x", r#"{"n":"\ufffd"}"#),
    ];
    assert_eq!(sink.blocks(), blocks);
    assert!(!done.unwrap().replay_state.unwrap().get().contains("ud800"));
}
