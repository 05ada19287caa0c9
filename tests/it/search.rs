//! `glob` and `grep` through the daemon: what the model is told of a real tree, and how a search ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, events, leave, text_of};
use crate::support::within;

fn file(work: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = work.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A model that makes one call, and what the call gave back.
async fn result(stage: &Stage, tool: &str, arguments: &Value) -> Value {
    stage.model.push(chat::calls(&[("call_1", tool, &arguments.to_string())]));
    stage.says(&["done"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "search").await;
    let told = peer.take_aside();
    let result =
        events(&told).into_iter().find(|event| event["type"] == "tool/result").unwrap()["data"].clone();
    leave(peer).await;
    result
}

async fn text(stage: &Stage, tool: &str, arguments: Value) -> String {
    text_of(&result(stage, tool, &arguments).await["message"])
}

#[tokio::test]
async fn a_tree_is_searched_as_users_of_ripgrep_expect() {
    let stage = Stage::new().await;
    let work = &stage.home.work();
    file(work, ".gitignore", "target/\n");
    file(work, "src/lib.rs", "pub fn one() {}\n");
    file(work, "src/deep/two.rs", "pub fn two() {}\n");
    file(work, "src/two.ts", "export function two() {}\n");
    file(work, "target/two.rs", "pub fn two() {}\n");
    file(work, ".git/two.rs", "pub fn two() {}\n");
    file(work, ".hidden/two.rs", "pub fn two() {}\n");
    file(work, "src/two.bin", b"\0two()\n");
    symlink(work, work.join("src/loop")).unwrap();
    let fifo = work.join("src/fifo.rs");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(
        text(&stage, "grep", json!({"pattern": r"two\(\)"})).await,
        "Found 2 matches\n\nsrc/deep/two.rs\nLine 1: pub fn two() {}\n\nsrc/two.ts\nLine 1: export function two() {}"
    );
    assert_eq!(
        text(&stage, "grep", json!({"pattern": r"two\(\)", "include": "*.rs"})).await,
        "Found 1 match\n\nsrc/deep/two.rs\nLine 1: pub fn two() {}"
    );
    assert_eq!(text(&stage, "grep", json!({"pattern": "three"})).await, "No matches found");
    assert_eq!(text(&stage, "glob", json!({"pattern": "two.rs"})).await, "src/deep/two.rs");
    assert_eq!(text(&stage, "glob", json!({"pattern": ".hidden/*.rs"})).await, ".hidden/two.rs");
    assert_eq!(text(&stage, "glob", json!({"pattern": "*.py"})).await, "No files found");
}

#[tokio::test]
async fn what_is_wrong_with_a_search_is_told_with_a_code() {
    let stage = Stage::new().await;
    for (tool, arguments, code, text) in [
        (
            "grep",
            json!({"pattern": "("}),
            "SEARCH_INVALID_PATTERN",
            "Error: invalid regular expression \"(\": unclosed group",
        ),
        (
            "glob",
            json!({"pattern": "{"}),
            "SEARCH_INVALID_PATTERN",
            "Error: invalid glob \"{\": unclosed alternate group; missing '}'",
        ),
        (
            "grep",
            json!({"pattern": "x", "path": "none"}),
            "FS_NOT_FOUND",
            "Error: no such file or directory: ",
        ),
        ("glob", json!({}), "INVALID_ARGS", "Error: invalid arguments for glob: missing field `pattern`"),
    ] {
        let result = result(&stage, tool, &arguments).await;
        assert_eq!(result["error"]["code"], code);
        assert_eq!(result["message"]["isError"], true);
        assert!(text_of(&result["message"]).starts_with(text), "{result}");
    }
}

#[tokio::test]
async fn a_hundred_thousand_files_are_searched_in_one_call() {
    let stage = Stage::new().await;
    let work = &stage.home.work();
    // Hard links: a tree of this size is made in a second.
    for directory in 0..100 {
        file(work, &format!("{directory}/0.txt"), "a needle\n");
        let directory = work.join(directory.to_string());
        for name in 1..1000 {
            fs::hard_link(directory.join("0.txt"), directory.join(format!("{name}.txt"))).unwrap();
        }
    }
    let glob = result(&stage, "glob", &json!({"pattern": "**/7*.txt"})).await;
    assert_eq!((&glob["meta"]["total"], &glob["meta"]["truncated"]), (&json!(11_100), &json!(true)));
    assert_eq!(glob["meta"]["paths"].as_array().unwrap().len(), 100);
    let grep = result(&stage, "grep", &json!({"pattern": "needle"})).await;
    assert_eq!(grep["meta"]["total"], 100_000);
    assert!(
        text_of(&grep["message"])
            .starts_with("Found 250 of 100000 matches\n\n0/0.txt\nLine 1: a needle\n\n0/1.txt")
    );
}

#[tokio::test]
async fn a_search_that_is_cancelled_ends_its_turn() {
    let stage = Stage::new().await;
    let work = &stage.home.work();
    // Lines without end: one call takes far longer than this test waits.
    let text = "ab".repeat(1 << 20) + "\n";
    file(work, "0", text.repeat(8));
    for name in 1..400 {
        fs::hard_link(work.join("0"), work.join(name.to_string())).unwrap();
    }
    let arguments = json!({"pattern": "(a|b|ab)*c(a|b)*$"}).to_string();
    stage.model.push(chat::calls(&[("call_1", "grep", &arguments)]));
    let mut peer = stage.peer().await;
    let prompt = peer.send_prompt("s", "search").await;
    peer.event("tool/call").await;
    let cancelled = peer.call("session/cancel", json!({"sessionId": "s"})).await;
    assert_eq!(cancelled["cancelled"], true);
    let reply = within("the prompt", peer.reply(prompt)).await;
    assert_eq!(reply["result"]["status"], "aborted");
    peer.take_aside();
    leave(peer).await;
}
