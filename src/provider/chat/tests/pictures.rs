//! Pictures on the chat wire.

use super::*;
use crate::provider::test_picture::{block, with};

fn messages(request: &ModelRequest) -> String {
    let body: serde_json::Value = serde_json::from_slice(&request::body(request, "p").unwrap()).unwrap();
    body["messages"].to_string()
}

#[test]
fn a_prompt_with_pictures_is_parts_and_one_without_is_a_text() {
    let mut request = request(vec![prompt("look")]);
    assert_eq!(messages(&request), r#"[{"content":"look","role":"user"}]"#);
    let content = vec![Block::text("look"), block("a"), Block::text("well")];
    request.messages = vec![Arc::new(Message::new(Role::User, Source::of(SourceKind::User), content))];
    assert_eq!(
        messages(&request),
        r#"[{"content":"look\n[an image (image/png, 2x1) that is not shown]well","role":"user"}]"#
    );
    with(&mut request, "a");
    assert_eq!(
        messages(&request),
        r#"[{"content":[{"text":"look","type":"text"},{"image_url":{"url":"data:image/png;base64,AAH/"},"type":"image_url"},{"text":"well","type":"text"}],"role":"user"}]"#
    );
}

#[test]
fn pictures_of_results_follow_all_results_of_the_answer() {
    let result = |id: &str, picture: bool| {
        let mut result = message(Role::Tool, SourceKind::Tool, "text");
        result.content.extend(picture.then(|| block(id)));
        result.tool_call_id = Some(id.to_owned());
        result
    };
    let mut request = request(vec![result("a", true), result("b", false), result("c", true), prompt("on")]);
    with(&mut request, "a");
    with(&mut request, "c");
    let body: serde_json::Value = serde_json::from_slice(&request::body(&request, "p").unwrap()).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["tool", "tool", "tool", "user", "user"]);
    assert_eq!(messages[0]["content"], "text");
    let parts = messages[3]["content"].as_array().unwrap();
    let words: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    assert_eq!(words, ["The images that a returned:", "The images that c returned:"]);
    assert_eq!(parts.len(), 4);
    // They are there too when nothing follows.
    request.messages.pop();
    let body: serde_json::Value = serde_json::from_slice(&request::body(&request, "p").unwrap()).unwrap();
    assert_eq!(body["messages"].as_array().unwrap()[..4], messages[..4]);
}
