//! Events of `/responses`, and whole answers made of them.

use super::Reply;

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// An event with this type, and more members.
pub fn event(kind: &str, members: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":1,{members}}}\n\n")
}

pub fn created() -> String {
    event(
        "response.created",
        r#""response":{"id":"resp_1","object":"response","status":"in_progress","output":[]}"#,
    )
}

pub fn added(index: u32, item: &str) -> String {
    event("response.output_item.added", &format!(r#""output_index":{index},"item":{item}"#))
}

pub fn done(index: u32, item: &str) -> String {
    event("response.output_item.done", &format!(r#""output_index":{index},"item":{item}"#))
}

pub fn text(index: u32, text: &str) -> String {
    let members = format!(
        r#""item_id":"msg_{index}","output_index":{index},"content_index":0,"delta":{},"logprobs":[]"#,
        quoted(text)
    );
    event("response.output_text.delta", &members)
}

pub fn summary(index: u32, part: u32, text: &str) -> String {
    let members = format!(
        r#""item_id":"rs_{index}","output_index":{index},"summary_index":{part},"delta":{}"#,
        quoted(text)
    );
    event("response.reasoning_summary_text.delta", &members)
}

pub fn arguments(index: u32, piece: &str) -> String {
    let members = format!(r#""item_id":"fc_{index}","output_index":{index},"delta":{}"#, quoted(piece));
    event("response.function_call_arguments.delta", &members)
}

/// A message as its last event tells it.
pub fn message(index: u32, text: &str) -> String {
    format!(
        r#"{{"id":"msg_{index}","type":"message","status":"completed","role":"assistant","content":[{{"type":"output_text","text":{},"annotations":[]}}]}}"#,
        quoted(text)
    )
}

/// A call as an event tells it.
pub fn call_item(index: u32, id: &str, name: &str, arguments: &str) -> String {
    let (id, name, arguments) = (quoted(id), quoted(name), quoted(arguments));
    format!(
        r#"{{"id":"fc_{index}","type":"function_call","status":"completed","call_id":{id},"name":{name},"arguments":{arguments}}}"#
    )
}

/// A whole call: announced, in two pieces, and told again.
pub fn call(index: u32, id: &str, name: &str, json: &str) -> String {
    let middle = (0..=json.len() / 2).rev().find(|at| json.is_char_boundary(*at)).unwrap_or(0);
    let (head, tail) = json.split_at(middle);
    added(index, &call_item(index, id, name, ""))
        + &arguments(index, head)
        + &arguments(index, tail)
        + &done(index, &call_item(index, id, name, json))
}

/// The end: 10 tokens read, 4 of them cached, 2 written.
pub fn completed() -> String {
    end("completed", "")
}

/// An end with this status, and more members of the response.
pub fn end(status: &str, members: &str) -> String {
    let usage = r#""usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":12}"#;
    event(
        &format!("response.{status}"),
        &format!(r#""response":{{"id":"resp_1","status":"{status}",{members}{usage}}}"#),
    )
}

/// A whole answer of text.
pub fn reply(deltas: &[&str]) -> Reply {
    let begun = r#"{"id":"msg_0","type":"message","status":"in_progress","role":"assistant","content":[]}"#;
    let reply = Reply::stream().send(created()).send(added(0, begun));
    let reply = deltas.iter().fold(reply, |reply, delta| reply.send(text(0, delta)));
    reply.send(done(0, &message(0, &deltas.concat()))).send(completed()).end()
}

/// A whole answer that calls tools: id, name, arguments.
pub fn calls(calls: &[(&str, &str, &str)]) -> Reply {
    let mut reply = Reply::stream().send(created());
    for (index, (id, name, json)) in (0..).zip(calls) {
        reply = reply.send(call(index, id, name, json));
    }
    reply.send(completed()).end()
}
