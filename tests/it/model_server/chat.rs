//! Events of `/chat/completions`, and whole answers made of them.

use super::{Reply, data};

pub const DONE: &str = "data: [DONE]\n\n";

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// A chunk with this delta, as DeepSeek writes it.
pub fn delta(delta: &str) -> String {
    data(&format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}]}}"#
    ))
}

pub fn text(text: &str) -> String {
    delta(&format!(r#"{{"content":{}}}"#, quoted(text)))
}

pub fn reasoning(text: &str) -> String {
    delta(&format!(r#"{{"content":null,"reasoning_content":{}}}"#, quoted(text)))
}

/// A whole tool call.
pub fn call(index: u32, id: &str, name: &str, arguments: &str) -> String {
    let (id, name, arguments) = (quoted(id), quoted(name), quoted(arguments));
    delta(&format!(
        r#"{{"tool_calls":[{{"index":{index},"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}]}}"#
    ))
}

pub fn finish(reason: &str) -> String {
    data(&format!(r#"{{"id":"c","choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#))
}

/// 10 tokens read, 4 of them cached, 2 written.
pub fn usage() -> String {
    data(
        r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_cache_hit_tokens":4}}"#,
    )
}

/// A whole answer of text.
pub fn reply(deltas: &[&str]) -> Reply {
    let reply = deltas.iter().fold(Reply::stream(), |reply, delta| reply.send(text(delta)));
    reply.send(finish("stop")).send(usage()).send(DONE).end()
}

/// A whole answer that calls tools: id, name, arguments.
pub fn calls(calls: &[(&str, &str, &str)]) -> Reply {
    let mut reply = Reply::stream();
    for (index, (id, name, arguments)) in calls.iter().enumerate() {
        reply = reply.send(call(u32::try_from(index).unwrap(), id, name, arguments));
    }
    reply.send(finish("tool_calls")).send(usage()).send(DONE).end()
}
