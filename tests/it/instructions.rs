//! What a project's AGENTS.md files tell, when, and how often; and the git branch.

use std::fs;

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, leave};
use crate::support::of_type;

/// The texts of a request's messages.
fn said(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

fn mentions(texts: &[String], what: &str) -> usize {
    texts.iter().filter(|text| text.contains(what)).count()
}

fn reads(stage: &Stage, path: &str) {
    stage.model.push(chat::calls(&[("call_1", "read", &json!({ "file_path": path }).to_string())]));
}

#[tokio::test]
async fn they_are_told_once_and_again_when_they_change() {
    let stage = Stage::new().await;
    let work = stage.home.work();
    fs::write(work.join("AGENTS.md"), "use tabs").unwrap();
    stage.says(&["one", "two", "three"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "first").await;
    let first = said(&stage.model.request().await.json());
    assert!(
        first[1].starts_with("Instructions for agents from ") && first[1].ends_with("use tabs"),
        "{first:?}"
    );
    assert_eq!(first[2], "first");
    peer.prompt("s", "second").await;
    let second = said(&stage.model.request().await.json());
    assert_eq!(mentions(&second, "use tabs"), 1);
    fs::write(work.join("AGENTS.md"), "use spaces").unwrap();
    peer.prompt("s", "third").await;
    let third = said(&stage.model.request().await.json());
    assert_eq!(third[..second.len()], second[..], "what was said before stays where it was");
    assert_eq!((mentions(&third, "use tabs"), mentions(&third, "use spaces")), (1, 1));
    let log = stage.home.logged("s");
    let told = of_type(&log, "user/message")
        .into_iter()
        .find(|event| event["data"]["source"]["kind"] == "agent-instructions")
        .unwrap();
    let path = work.canonicalize().unwrap().join("AGENTS.md");
    assert_eq!(told["data"]["source"]["path"], path.to_str().unwrap());
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_directory_that_a_tool_touches_is_heard_before_the_next_step() {
    let stage = Stage::new().await;
    let work = stage.home.work();
    fs::create_dir_all(work.join("deep/er")).unwrap();
    fs::write(work.join("deep/AGENTS.md"), "in the deep").unwrap();
    fs::write(work.join("deep/er/file"), "x").unwrap();
    let outside = stage.home.path("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("AGENTS.md"), "from outside").unwrap();
    std::os::unix::fs::symlink(&outside, work.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.join("AGENTS.md"), work.join("deep/er/AGENTS.md")).unwrap();
    reads(&stage, "deep/er/file");
    reads(&stage, "link/AGENTS.md");
    stage.says(&["done"]);
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "look").await["status"], "ok");
    let first = said(&stage.model.request().await.json());
    assert_eq!(mentions(&first, "in the deep"), 0);
    let second = said(&stage.model.request().await.json());
    assert!(second.last().unwrap().ends_with("in the deep"), "{second:?}");
    let third = said(&stage.model.request().await.json());
    assert_eq!(mentions(&third, "in the deep"), 1);
    assert_eq!(mentions(&third, "Instructions for agents"), 1, "{third:?}");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn they_are_heard_from_the_top_of_the_repository_and_can_be_turned_off() {
    for (tables, expected) in [("", 1), ("[turn]\nagent_instructions_bytes = \"0B\"", 0)] {
        let stage = Stage::with("", tables).await;
        let work = stage.home.work();
        fs::create_dir_all(work.join(".git")).unwrap();
        fs::create_dir_all(work.join("below")).unwrap();
        fs::write(work.join("AGENTS.md"), "at the top").unwrap();
        stage.says(&["one"]);
        let mut peer = stage.peer_with(json!({ "cwd": work.join("below") })).await;
        peer.prompt("s", "first").await;
        let first = said(&stage.model.request().await.json());
        assert_eq!(mentions(&first, "at the top"), expected);
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn the_branch_is_told_and_told_again_when_another_is_checked_out() {
    let stage = Stage::new().await;
    let work = stage.home.work();
    fs::create_dir_all(work.join(".git")).unwrap();
    fs::write(work.join(".git/HEAD"), "ref: refs/heads/topic\n").unwrap();
    stage.runs("printf 'ref: refs/heads/other\\n' > .git/HEAD");
    stage.says(&["one", "two"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "first").await;
    let first = said(&stage.model.request().await.json());
    assert!(first.last().unwrap().contains("The git branch is topic."), "{first:?}");
    let second = said(&stage.model.request().await.json());
    assert!(second.last().unwrap().contains("The git branch is other."), "{second:?}");
    peer.prompt("s", "second").await;
    let third = said(&stage.model.request().await.json());
    assert_eq!(mentions(&third, "The git branch is"), 2);
    peer.take_aside();
    leave(peer).await;
}
