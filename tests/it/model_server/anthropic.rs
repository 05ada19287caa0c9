//! Events of `/v1/messages`, and whole answers made of them.

use super::Reply;

pub fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// 6 tokens read anew, 4 from the cache.
pub fn start() -> String {
    event(
        "message_start",
        r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":6,"cache_read_input_tokens":4,"cache_creation_input_tokens":0,"output_tokens":1}}}"#,
    )
}

pub fn block_start(index: u32, block: &str) -> String {
    let data = format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#);
    event("content_block_start", &data)
}

pub fn block_delta(index: u32, delta: &str) -> String {
    let data = format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#);
    event("content_block_delta", &data)
}

pub fn text(index: u32, text: &str) -> String {
    block_delta(index, &format!(r#"{{"type":"text_delta","text":{}}}"#, quoted(text)))
}

pub fn block_stop(index: u32) -> String {
    event("content_block_stop", &format!(r#"{{"type":"content_block_stop","index":{index}}}"#))
}

/// 2 tokens written; then the end.
pub fn stop(reason: &str) -> String {
    let data = format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":2}}}}"#
    );
    event("message_delta", &data) + &event("message_stop", r#"{"type":"message_stop"}"#)
}

/// A whole answer of text.
pub fn reply(deltas: &[&str]) -> Reply {
    let reply = Reply::stream().send(start()).send(block_start(0, r#"{"type":"text","text":""}"#));
    let reply = deltas.iter().fold(reply, |reply, delta| reply.send(text(0, delta)));
    reply.send(block_stop(0)).send(stop("end_turn")).end()
}

/// A whole answer that calls tools: id, name, arguments.
pub fn calls(calls: &[(&str, &str, &str)]) -> Reply {
    let mut reply = Reply::stream().send(start());
    for (index, (id, name, arguments)) in (0..).zip(calls) {
        let block =
            format!(r#"{{"type":"tool_use","id":{},"name":{},"input":{{}}}}"#, quoted(id), quoted(name));
        let delta = format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, quoted(arguments));
        reply =
            reply.send(block_start(index, &block)).send(block_delta(index, &delta)).send(block_stop(index));
    }
    reply.send(stop("tool_use")).end()
}
