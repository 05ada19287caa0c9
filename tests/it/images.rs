//! Pictures from a prompt to the model and back: checked, kept, sent, played back after a restart.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::model_server::{anthropic, chat};
use crate::stage::{Stage, events, leave};
use crate::support::Peer;

const TAKES_IMAGES: &str = "[providers.fake.models.m]\nimages = true";
const PNG: &[u8] = b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x01and so on";

fn image(bytes: &[u8], mime_type: &str) -> Value {
    json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": mime_type })
}

fn looking_at(blocks: &[Value]) -> Value {
    let mut content = vec![json!({ "type": "text", "text": "what is this?" })];
    content.extend_from_slice(blocks);
    json!({ "sessionId": "s", "contentBlocks": content })
}

/// Prompts with a picture, and gives back its block as the log has it.
async fn show(peer: &mut Peer) -> Value {
    let reply = peer.call("session/prompt", looking_at(&[image(PNG, "image/png")])).await;
    assert_eq!(reply["status"], "ok");
    let told = peer.take_aside();
    let message = events(&told).into_iter().find(|event| event["type"] == "user/message").unwrap();
    message["data"]["content"][1].clone()
}

#[tokio::test]
async fn a_picture_is_kept_as_a_private_blob_and_sent_on_the_chat_wire() {
    let mut stage = Stage::with("", TAKES_IMAGES).await;
    stage.says(&["a dot", "still a dot"]);
    let mut peer = stage.peer().await;
    let block = show(&mut peer).await;
    let attachment = &block["attachment"];
    let id = attachment["attachmentId"].as_str().unwrap();
    assert_eq!(
        block,
        json!({ "type": "image", "attachment": {
            "attachmentId": id, "mediaType": "image/png", "bytes": PNG.len(), "width": 2, "height": 1,
        } })
    );
    let blob = stage.log_file().with_file_name("blobs").join(id);
    assert_eq!(fs::read(&blob).unwrap(), PNG);
    assert_eq!(fs::metadata(&blob).unwrap().permissions().mode() & 0o777, 0o600);
    let sent = stage.model.request().await.json();
    let prompt = prompt_of(&sent);
    assert_eq!(
        prompt["content"],
        json!([
            { "type": "text", "text": "what is this?" },
            { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{}", STANDARD.encode(PNG)) } },
        ])
    );
    leave(peer).await;

    // After a restart it goes along as before.
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    let shown = peer.call("session/blob", json!({ "sessionId": "s", "attachmentId": id })).await;
    assert_eq!(shown, json!({ "mimeType": "image/png", "data": STANDARD.encode(PNG) }));
    peer.prompt("s", "and now?").await;
    peer.take_aside();
    let again = stage.model.request().await.json();
    assert_eq!(prompt_of(&again), prompt);
    leave(peer).await;
}

/// The message that asks what this is.
fn prompt_of(sent: &Value) -> Value {
    let messages = sent["messages"].as_array().unwrap();
    let asks = |message: &&Value| message["content"][0]["text"] == "what is this?";
    messages.iter().find(asks).unwrap_or_else(|| panic!("{sent}")).clone()
}

#[tokio::test]
async fn a_picture_is_sent_on_the_anthropic_wire() {
    let stage = Stage::with("", &format!("{TAKES_IMAGES}\n[providers.other]\nkind = \"scripted\"")).await;
    let url = stage.model.url();
    let home = &stage.home;
    let key = home.path("model.key");
    let provider = format!(
        "default_provider = \"claude\"\ndefault_model = \"m\"\n[providers.claude]\nkind = \"anthropic\"\n\
         base_url = \"{url}\"\napi_key_file = \"{}\"\n[providers.claude.models.m]\nimages = true\n",
        key.display()
    );
    home.configure(&provider);
    let mut stage = stage;
    stage.stop().await;
    stage.begin().await;
    stage.model.push(anthropic::reply(&["a dot"]));
    let mut peer = stage.peer().await;
    show(&mut peer).await;
    let sent = stage.model.request().await.json();
    let content = sent["messages"][0]["content"].as_array().unwrap();
    assert_eq!(content[0]["text"], "what is this?");
    assert_eq!(
        content[1],
        json!({ "type": "image", "source": {
            "type": "base64", "media_type": "image/png", "data": STANDARD.encode(PNG),
        } })
    );
    leave(peer).await;
}

async fn refusal(peer: &mut Peer, blocks: &[Value]) -> Value {
    let id = peer.send("session/prompt", looking_at(blocks)).await;
    peer.reply(id).await["error"].clone()
}

#[tokio::test]
async fn a_model_that_takes_no_pictures_is_named_with_the_key_that_says_so() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let error = refusal(&mut peer, &[image(PNG, "image/png")]).await;
    assert_eq!((&error["code"], &error["data"]["path"]), (&json!(-32602), &json!("contentBlocks")));
    assert_eq!(
        error["message"],
        "contentBlocks: the model fake/m takes no images; if it does, set images = true in \
         [providers.fake.models.\"m\"]"
    );
    // Nothing is left behind.
    let listed = peer.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"], json!([]));
    assert!(peer.take_aside().is_empty());
    leave(peer).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_picture_is_told_before_anything_is_made() {
    let stage = Stage::with("", &format!("{TAKES_IMAGES}\n[limits]\nimage_bytes = \"64B\"")).await;
    let mut peer = stage.peer().await;
    for (block, code, path) in [
        (image(PNG, "image/jpeg"), -32602, json!("contentBlocks[1].mimeType")),
        (image(b"hello", "image/png"), -32602, json!("contentBlocks[1].data")),
        (
            json!({ "type": "image", "data": "%%%", "mimeType": "image/png" }),
            -32602,
            json!("contentBlocks[1].data"),
        ),
        (json!({ "type": "image", "data": "" }), -32602, json!("contentBlocks[1].mimeType")),
        (json!({ "type": "video", "data": "" }), -32602, json!("contentBlocks[1]")),
        (image(&[PNG, &[0; 100]].concat(), "image/png"), -32009, Value::Null),
    ] {
        let error = refusal(&mut peer, &[block]).await;
        assert_eq!((&error["code"], &error["data"]["path"]), (&json!(code), &path), "{error}");
        if code == -32009 {
            assert_eq!((&error["data"]["limit"], &error["data"]["max"]), (&json!("image_bytes"), &json!(64)));
        }
    }
    leave(peer).await;
}

#[tokio::test]
async fn only_the_pictures_of_a_session_are_shown() {
    let stage = Stage::with("", TAKES_IMAGES).await;
    stage.says(&["a dot", "nothing"]);
    let mut peer = stage.peer().await;
    let block = show(&mut peer).await;
    peer.prompt("t", "hello").await;
    peer.take_aside();
    let id = &block["attachment"]["attachmentId"];
    let missing = "0".repeat(64);
    for (session, attachment, code) in [
        ("s", json!("../log.jsonl"), -32602),
        ("s", json!("/etc/passwd"), -32602),
        ("s", json!(missing), -32602),
        ("t", id.clone(), -32602),
        ("u", id.clone(), -32004),
        ("s", json!(7), -32602),
    ] {
        let sent =
            peer.send("session/blob", json!({ "sessionId": session, "attachmentId": attachment })).await;
        assert_eq!(peer.reply(sent).await["error"]["code"], code, "{session} {attachment}");
    }
    leave(peer).await;
}

#[tokio::test]
async fn the_same_prompt_again_is_the_same_and_another_picture_is_not() {
    let stage = Stage::with("", TAKES_IMAGES).await;
    stage.says(&["a dot"]);
    let mut peer = stage.peer().await;
    let keyed = |bytes: &[u8]| {
        let mut params = looking_at(&[image(bytes, "image/png")]);
        params["idempotencyKey"] = json!("k");
        params
    };
    let first = peer.call("session/prompt", keyed(PNG)).await;
    assert_eq!(peer.call("session/prompt", keyed(PNG)).await, first);
    let id = peer.send("session/prompt", keyed(&[PNG, b"!"].concat())).await;
    let error = &peer.reply(id).await["error"];
    assert_eq!((&error["code"], &error["data"]["path"]), (&json!(-32602), &json!("idempotencyKey")));
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn older_pictures_are_left_out_of_a_request_that_would_be_too_large() {
    let limits = "[limits]\nimage_bytes = \"64B\"\nrequest_image_bytes = \"64B\"";
    let stage = Stage::with("", &format!("{TAKES_IMAGES}\n{limits}")).await;
    stage.says(&["a dot", "another"]);
    let mut peer = stage.peer().await;
    show(&mut peer).await;
    let other = [&PNG[..PNG.len() - 3], b"off"].concat();
    peer.call("session/prompt", looking_at(&[image(&other, "image/png")])).await;
    peer.take_aside();
    let _first = stage.model.request().await;
    let sent = stage.model.request().await.json().to_string();
    assert!(sent.contains(&STANDARD.encode(&other)) && !sent.contains(&STANDARD.encode(PNG)), "{sent}");
    assert!(sent.contains("what is this?\\n[an image (image/png, 2x1) that is not shown]"), "{sent}");
    leave(peer).await;
}

#[tokio::test]
async fn a_picture_that_is_read_follows_its_result_and_stays_after_a_restart() {
    let mut stage = Stage::with("", TAKES_IMAGES).await;
    fs::write(stage.home.work().join("dot.png"), PNG).unwrap();
    let arguments = json!({ "file_path": "dot.png" }).to_string();
    stage.model.push(chat::calls(&[("call_1", "read", &arguments)]));
    stage.says(&["a dot", "still"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "look at dot.png").await;
    peer.take_aside();
    leave(peer).await;
    let _first = stage.model.request().await;
    let second = stage.model.request().await.json();
    let messages = second["messages"].as_array().unwrap();
    let [.., result, shown] = messages.as_slice() else { panic!("{second}") };
    assert_eq!((&result["role"], &shown["role"]), (&json!("tool"), &json!("user")));
    assert!(result["content"].as_str().unwrap().contains("<type>image</type>"), "{result}");
    let url = format!("data:image/png;base64,{}", STANDARD.encode(PNG));
    assert_eq!(shown["content"][1]["image_url"]["url"], url);
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    peer.prompt("s", "and now?").await;
    peer.take_aside();
    let third = stage.model.request().await.json();
    assert_eq!(third["messages"].as_array().unwrap()[..messages.len()], messages[..]);
    leave(peer).await;
}

#[tokio::test]
async fn the_command_line_shows_pictures() {
    let stage = Stage::with("", TAKES_IMAGES).await;
    stage.says(&["a dot"]);
    let path = stage.home.work().join("dot.png");
    fs::write(&path, PNG).unwrap();
    let ran = stage.home.run(["prompt", "-i", path.to_str().unwrap(), "what is this?"]).await.expect_code(0);
    assert!(ran.stdout.contains("a dot"), "{}", ran.stdout);
    let sent = stage.model.request().await.json().to_string();
    assert!(sent.contains(&STANDARD.encode(PNG)), "{sent}");
    fs::write(&path, "no picture").unwrap();
    let ran = stage.home.run(["prompt", "-i", path.to_str().unwrap(), "what is this?"]).await.expect_code(64);
    assert!(ran.stderr.contains("dot.png is no PNG, JPEG, GIF or WebP image"), "{}", ran.stderr);
}
