//! What a server answered, as a model reads it: texts as they are, everything else named, in bounds.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::Value;

use super::super::{ToolOutput, clip};
use crate::process::Captured;

const EMPTY: &str = "(no output)";

/// The output for an answer, its text within `bytes_max`.
pub(super) fn output(answer: CallToolResult, bytes_max: usize) -> ToolOutput {
    let mut parts = Vec::new();
    let structured = answer.structured_content.filter(|value| !is_said(value, &answer.content));
    for block in answer.content {
        parts.push(text_of(block));
    }
    if let Some(value) = structured {
        parts.push(value.to_string());
    }
    parts.retain(|part| !part.is_empty());
    let mut text = bounded(parts.join("\n"), bytes_max);
    if text.is_empty() {
        EMPTY.clone_into(&mut text);
    }
    ToolOutput { is_error: answer.is_error == Some(true), ..ToolOutput::ok(text) }
}

/// Whether a text among the blocks says this value: servers say structured content twice, for clients that know none,
/// as JSON or as the one text that it consists of.
fn is_said(value: &Value, content: &[ContentBlock]) -> bool {
    let lone = value.as_object().filter(|members| members.len() == 1);
    let lone = lone.and_then(|members| members.values().next()).and_then(Value::as_str);
    let mut texts = content.iter().filter_map(ContentBlock::as_text);
    texts.any(|block| {
        lone == Some(block.text.as_str())
            || serde_json::from_str::<Value>(&block.text).is_ok_and(|said| said == *value)
    })
}

fn text_of(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => data("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => data("audio", &audio.mime_type, &audio.data),
        ContentBlock::ResourceLink(link) => linked(&link),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown kind");
                format!("[resource {uri}] {}", data("data", kind, &blob))
            }
            _ => "[a resource of a kind that is not known here]".to_owned(),
        },
        _ => "[content of a kind that is not known here]".to_owned(),
    }
}

/// Data in base64 that a model can't read as text.
fn data(what: &str, kind: &str, base64: &str) -> String {
    format!("[{what}, {kind}, {} bytes, not shown]", base64.trim_end_matches('=').len() * 3 / 4)
}

fn linked(link: &Resource) -> String {
    let mut text = format!("[resource link: {} {}", link.name, link.uri);
    if let Some(kind) = &link.mime_type {
        text.push_str(", ");
        text.push_str(kind);
    }
    text.push(']');
    if let Some(description) = &link.description {
        text.push(' ');
        text.push_str(description);
    }
    text
}

fn bounded(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let whole = Captured { head: text.into_bytes(), ..Captured::default() };
    let mut cut = String::with_capacity(bytes_max);
    clip::Text::of(&whole).write(&mut cut, bytes_max);
    cut
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(answer: Value, bytes_max: usize) -> ToolOutput {
        output(serde_json::from_value(answer).unwrap(), bytes_max)
    }

    #[track_caller]
    fn check(content: &Value, expected: &str) {
        assert_eq!(said(json!({ "content": content }), 1000).text, expected);
    }

    #[test]
    fn texts_are_as_they_are() {
        check(&json!([{"type": "text", "text": "a\nb"}, {"type": "text", "text": "c"}]), "a\nb\nc");
        check(&json!([]), "(no output)");
    }

    #[test]
    fn what_is_no_text_is_named_with_its_kind_and_size() {
        check(
            &json!([{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]),
            "[image, image/png, 5 bytes, not shown]",
        );
        check(
            &json!([{"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"}]),
            "[audio, audio/wav, 5 bytes, not shown]",
        );
    }

    #[test]
    fn resources_are_shown_or_named() {
        check(
            &json!([{"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/x", "description": "An a."}]),
            "[resource link: a file:///a, text/x] An a.",
        );
        check(
            &json!([{"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}}]),
            "[resource file:///a]\nhello",
        );
        check(
            &json!([{"type": "resource", "resource": {"uri": "file:///a", "mimeType": "x/y", "blob": "aGVsbG8="}}]),
            "[resource file:///a] [data, x/y, 5 bytes, not shown]",
        );
    }

    #[test]
    fn structured_content_is_said_once() {
        let twice = json!({
            "content": [{"type": "text", "text": "{ \"a\": 1 }"}], "structuredContent": {"a": 1}
        });
        assert_eq!(said(twice, 1000).text, "{ \"a\": 1 }");
        let wrapped =
            json!({ "content": [{"type": "text", "text": "hi"}], "structuredContent": {"content": "hi"} });
        assert_eq!(said(wrapped, 1000).text, "hi");
        let more = json!({ "content": [{"type": "text", "text": "done"}], "structuredContent": {"a": 1} });
        assert_eq!(said(more, 1000).text, "done\n{\"a\":1}");
        assert_eq!(said(json!({ "structuredContent": {"a": 1} }), 1000).text, "{\"a\":1}");
    }

    #[test]
    fn an_error_is_kept_as_one() {
        let output = said(json!({ "content": [{"type": "text", "text": "no"}], "isError": true }), 1000);
        assert!(output.is_error && output.text == "no" && output.error.is_none());
    }

    #[test]
    fn a_long_answer_keeps_its_start_and_end() {
        let text = said(json!({ "content": [{"type": "text", "text": "é".repeat(5000)}] }), 200).text;
        assert!(text.len() <= 200 && text.contains(" bytes cut ...]"), "{text}");
    }
}
