//! Pictures on the Responses wire.

use super::*;
use crate::provider::test_picture::{block, with};

#[test]
fn pictures_go_along_in_prompts_and_in_results() {
    let mut shown = prompt("look");
    shown.content.push(block("a"));
    let mut returned = result("call_1", "text");
    returned.content.push(block("a"));
    let mut request = request(vec![shown, answered(None, vec![a_call("call_1", "read", "{}")]), returned]);
    let input = |request: &ModelRequest| {
        let body: serde_json::Value = serde_json::from_slice(&request::body(request, "p").unwrap()).unwrap();
        body["input"].clone()
    };
    let words = "[an image (image/png, 2x1) that is not shown]";
    let without = input(&request);
    assert_eq!(without[0]["content"][1], serde_json::json!({ "type": "input_text", "text": words }));
    assert_eq!(without[2]["output"], format!("text\n{words}"));
    with(&mut request, "a");
    let image = serde_json::json!({ "type": "input_image", "image_url": "data:image/png;base64,AAH/" });
    let with = input(&request);
    assert_eq!(with[0]["content"], serde_json::json!([{ "type": "input_text", "text": "look" }, image]));
    assert_eq!(with[2]["output"], serde_json::json!([{ "type": "input_text", "text": "text" }, image]));
}
