//! Pictures on the Anthropic wire.

use super::*;
use crate::provider::test_picture::{block, with};

#[test]
fn pictures_go_along_in_prompts_and_in_results() {
    let mut shown = prompt("look");
    shown.content.push(block("a"));
    let mut returned = result("call_1", "text", false);
    returned.content.push(block("a"));
    let mut request = request(vec![shown, answered(None, vec![a_call("call_1", "read", "{}")]), returned]);
    let without = messages_of(&request);
    let words = "[an image (image/png, 2x1) that is not shown]";
    assert_eq!(without[0]["content"][1], serde_json::json!({ "type": "text", "text": words }));
    assert_eq!(without[2]["content"][0]["content"], format!("text\n{words}"));
    with(&mut request, "a");
    let messages = messages_of(&request);
    let image = serde_json::json!({
        "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAH/" },
    });
    assert_eq!(messages[0]["content"], serde_json::json!([{ "type": "text", "text": "look" }, image]));
    assert_eq!(
        messages[2]["content"][0]["content"],
        serde_json::json!([{ "type": "text", "text": "text" }, image])
    );
}
