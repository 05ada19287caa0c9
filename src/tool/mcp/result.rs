//! What a server answered, as a model reads it: texts as they are, everything else named, in bounds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rmcp::model::{CallToolResult, ContentBlock, ImageContent, Resource, ResourceContents};
use serde_json::Value;

use super::super::{ToolContext, ToolOutput, clip};
use crate::event::{Attachment, Block};
use crate::image::Image;
use crate::process::Captured;

const EMPTY: &str = "(no output)";
const NOT_SHOWN: &str = "not shown";
/// Pictures of one answer that a model is shown.
const IMAGES_MAX: usize = 8;

/// What of an answer a model gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes of text.
    pub(super) text: usize,
    /// Bytes of one picture.
    pub(super) image: usize,
}

/// The output for an answer.
pub(super) async fn output(answer: CallToolResult, room: Room, context: &ToolContext) -> ToolOutput {
    let structured = answer.structured_content.filter(|value| !is_said(value, &answer.content));
    let (mut parts, mut images) = (Vec::new(), Vec::new());
    for block in answer.content {
        let part = if let ContentBlock::Image(image) = &block {
            match shown(image, room.image, images.len(), context).await {
                Ok((attachment, words)) => {
                    images.push(Block::Image { attachment });
                    words
                }
                Err(why) => data("image", &image.mime_type, &image.data, why),
            }
        } else {
            text_of(block)
        };
        parts.push(part);
    }
    if let Some(value) = structured {
        parts.push(value.to_string());
    }
    parts.retain(|part| !part.is_empty());
    let mut text = bounded(parts.join("\n"), room.text);
    if text.is_empty() {
        EMPTY.clone_into(&mut text);
    }
    ToolOutput { is_error: answer.is_error == Some(true), images, ..ToolOutput::ok(text) }
}

/// Keeps a picture for the model. If it is not shown, why.
async fn shown(
    image: &ImageContent,
    bytes_max: usize,
    before: usize,
    context: &ToolContext,
) -> Result<(Attachment, String), &'static str> {
    if !context.takes_images {
        return Err("not shown: the model takes no images");
    }
    if before >= IMAGES_MAX {
        return Err("not shown: there are too many");
    }
    if image.data.len() / 4 * 3 > bytes_max + 2 {
        return Err("not shown: it is over limits.image_bytes");
    }
    let bytes = STANDARD.decode(&image.data).map_err(|_| "not shown: it is no base64")?;
    let Ok(picture) = Image::of(&bytes) else { return Err("not shown: it is no picture that models take") };
    let length = bytes.len() as u64;
    let blob = context.blobs.put(Bytes::from(bytes)).await.map_err(|error| {
        tracing::warn!(session = %context.session, %error, "a server's picture could not be kept");
        "not shown: it could not be kept"
    })?;
    let (width, height) = (picture.width, picture.height);
    let media_type = picture.kind.media_type().to_owned();
    let words = format!("[image, {media_type}, {width}x{height}, {length} bytes]");
    let attachment =
        Attachment { attachment_id: blob.to_string(), media_type, bytes: length, width, height, name: None };
    Ok((attachment, words))
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
        // Shown by the caller.
        ContentBlock::Image(image) => data("image", &image.mime_type, &image.data, NOT_SHOWN),
        ContentBlock::Audio(audio) => data("audio", &audio.mime_type, &audio.data, NOT_SHOWN),
        ContentBlock::ResourceLink(link) => linked(&link),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown kind");
                format!("[resource {uri}] {}", data("data", kind, &blob, NOT_SHOWN))
            }
            _ => "[a resource of a kind that is not known here]".to_owned(),
        },
        _ => "[content of a kind that is not known here]".to_owned(),
    }
}

/// Data in base64 that a model can't read as text.
fn data(what: &str, kind: &str, base64: &str, why: &str) -> String {
    format!("[{what}, {kind}, {} bytes, {why}]", base64.trim_end_matches('=').len() * 3 / 4)
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

    /// The smallest picture there is.
    const PNG: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

    async fn output_of(answer: Value, room: Room, takes_images: bool) -> ToolOutput {
        let context = ToolContext { takes_images, ..ToolContext::of_test("/".into()) };
        output(serde_json::from_value(answer).unwrap(), room, &context).await
    }

    async fn said(answer: Value, text: usize) -> ToolOutput {
        output_of(answer, Room { text, image: 1000 }, false).await
    }

    #[track_caller]
    fn assert_text(output: &ToolOutput, expected: &str) {
        assert_eq!(output.text, expected);
    }

    async fn check(content: Value, expected: &str) {
        assert_text(&said(json!({ "content": content }), 1000).await, expected);
    }

    #[tokio::test]
    async fn texts_are_as_they_are() {
        check(json!([{"type": "text", "text": "a\nb"}, {"type": "text", "text": "c"}]), "a\nb\nc").await;
        check(json!([]), "(no output)").await;
    }

    #[tokio::test]
    async fn what_is_no_text_is_named_with_its_kind_and_size() {
        check(
            json!([{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]),
            "[image, image/png, 5 bytes, not shown: the model takes no images]",
        )
        .await;
        check(
            json!([{"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"}]),
            "[audio, audio/wav, 5 bytes, not shown]",
        )
        .await;
    }

    #[tokio::test]
    async fn resources_are_shown_or_named() {
        check(
            json!([{"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/x", "description": "An a."}]),
            "[resource link: a file:///a, text/x] An a.",
        ).await;
        check(
            json!([{"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}}]),
            "[resource file:///a]\nhello",
        )
        .await;
        check(
            json!([{"type": "resource", "resource": {"uri": "file:///a", "mimeType": "x/y", "blob": "aGVsbG8="}}]),
            "[resource file:///a] [data, x/y, 5 bytes, not shown]",
        ).await;
    }

    #[tokio::test]
    async fn structured_content_is_said_once() {
        let twice = json!({
            "content": [{"type": "text", "text": "{ \"a\": 1 }"}], "structuredContent": {"a": 1}
        });
        assert_eq!(said(twice, 1000).await.text, "{ \"a\": 1 }");
        let wrapped =
            json!({ "content": [{"type": "text", "text": "hi"}], "structuredContent": {"content": "hi"} });
        assert_eq!(said(wrapped, 1000).await.text, "hi");
        let more = json!({ "content": [{"type": "text", "text": "done"}], "structuredContent": {"a": 1} });
        assert_eq!(said(more, 1000).await.text, "done\n{\"a\":1}");
        assert_eq!(said(json!({ "structuredContent": {"a": 1} }), 1000).await.text, "{\"a\":1}");
    }

    #[tokio::test]
    async fn an_error_is_kept_as_one() {
        let output =
            said(json!({ "content": [{"type": "text", "text": "no"}], "isError": true }), 1000).await;
        assert!(output.is_error && output.text == "no" && output.error.is_none());
    }

    #[tokio::test]
    async fn a_long_answer_keeps_its_start_and_end() {
        let text = said(json!({ "content": [{"type": "text", "text": "é".repeat(5000)}] }), 200).await.text;
        assert!(text.len() <= 200 && text.contains(" bytes cut ...]"), "{text}");
    }

    #[tokio::test]
    async fn pictures_are_shown_to_models_that_take_them() {
        let image = |data: &str| json!({"type": "image", "data": data, "mimeType": "image/png"});
        let room = Room { text: 1000, image: 100 };
        let output = output_of(json!({ "content": [image(PNG)] }), room, true).await;
        assert_text(&output, "[image, image/png, 1x1, 68 bytes]");
        let [Block::Image { attachment }] = output.images.as_slice() else { panic!("{output:?}") };
        assert_eq!((attachment.width, attachment.bytes), (1, 68));
        let refused = [
            (image("aGVsbG8="), 100, "not shown: it is no picture that models take"),
            (image("!"), 100, "not shown: it is no base64"),
            (image(PNG), 50, "not shown: it is over limits.image_bytes"),
        ];
        for (image, bytes, why) in refused {
            let room = Room { text: 1000, image: bytes };
            let output = output_of(json!({ "content": [image] }), room, true).await;
            assert!(output.images.is_empty() && output.text.contains(why), "{output:?}");
        }
        let many = vec![image(PNG); IMAGES_MAX + 1];
        assert_eq!(output_of(json!({ "content": many }), room, true).await.images.len(), IMAGES_MAX);
    }
}
