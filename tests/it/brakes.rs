//! What stops a turn that goes nowhere.

use serde_json::json;

use crate::model_server::chat;
use crate::stage::{Stage, leave, text_of};
use crate::support::{Daemon, of_type};

#[tokio::test]
async fn the_same_call_again_and_again_is_reminded_of_at_the_third_and_stopped_at_the_eighth() {
    let daemon = Daemon::scripted(
        &[r#"{"parts":[{"tool":"bash","arguments":{"command":"echo again","description":"Say it"}}]}"#],
        "",
    );
    let mut peer = daemon.connect().await;
    peer.initialize(json!({ "cwd": daemon.home().work() })).await;
    let reply = peer.prompt("s", "go round").await;
    assert_eq!(reply["reason"]["error"]["code"], "REPEATED_CALL", "{reply}");
    let log = daemon.home().logged("s");
    assert_eq!(of_type(&log, "tool/call").len(), 7);
    let last = of_type(&log, "tool/result").pop().unwrap();
    assert_eq!(last["data"]["error"]["code"], "TOOL_NOT_STARTED");
    let reminders: Vec<_> = of_type(&log, "user/message")
        .into_iter()
        .filter(|event| event["data"]["source"]["kind"] == "repeat-tool-reminder")
        .collect();
    let [reminder] = reminders[..] else { panic!("{reminders:?}") };
    assert!(text_of(&reminder["data"]).contains("bash 3 times in a row"), "{reminder}");
    // It stands in the step after the third call.
    let before = log.iter().take_while(|event| event["seq"] != reminder["seq"]);
    assert_eq!(before.filter(|event| event["type"] == "tool/call").count(), 3);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn another_call_in_between_counts_from_the_start() {
    let stage = Stage::new().await;
    for round in 0..3 {
        stage.runs("echo same");
        stage.runs("echo same");
        stage.runs(&format!("echo {round}"));
    }
    stage.says(&["done"]);
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "go").await["status"], "ok");
    let log = stage.home.logged("s");
    assert!(log.iter().all(|event| event["data"]["source"]["kind"] != "repeat-tool-reminder"));
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_turn_has_two_hundred_steps_and_no_more() {
    let stage = Stage::new().await;
    for step in 1..=201 {
        let arguments = json!({ "file_path": "nothing", "offset": step }).to_string();
        stage.model.push(chat::calls(&[("call_1", "read", &arguments)]));
    }
    let mut peer = stage.peer_with(json!({ "deltas": false })).await;
    let reply = peer.prompt("s", "look everywhere").await;
    assert_eq!(reply["reason"]["error"]["code"], "MAX_STEPS", "{reply}");
    assert_eq!(stage.model.requests().len(), 200);
    peer.take_aside();
    leave(peer).await;
}
