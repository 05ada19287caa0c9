//! A daemon that is killed while its model edits: the file is one or the other, never in between, and work goes on.

use serde_json::json;

use super::Desk;
use crate::model_server::chat;

/// Large enough that writing it takes a while.
const FILLING: usize = 1 << 20;
const ROUNDS: usize = 5;

#[tokio::test]
async fn a_file_is_whole_whenever_the_daemon_is_killed() {
    let mut desk = Desk::new().await;
    let filling = "filling\n".repeat(FILLING / 8);
    let content = |name: &str| format!("{name}\n{filling}");
    desk.put("f", content("old"));
    for round in 0..ROUNDS {
        desk.read("f").await.ok();
        let before = desk.content("f");
        let mut now = before.lines().next().unwrap().to_owned();
        // One call after another, until the kill.
        for step in 0..8 {
            let new = format!("new {round}.{step}");
            let edit = json!({ "file_path": "f", "old_string": now, "new_string": new });
            desk.stage.model.push(chat::calls(&[("call_1", "edit", &edit.to_string())]));
            now = new;
        }
        desk.peer.send_prompt("s", "edit on").await;
        for _ in 0..=round {
            desk.peer.event("tool/call").await;
        }
        desk.stage.kill().await;
        let found = desk.content("f");
        let name = found.lines().next().unwrap();
        let known = found == before || name.starts_with(&format!("new {round}."));
        assert!(known && found == content(name), "round {round}: {name:?}, {} bytes", found.len());
        desk.peer.leave_unread();
        desk.stage.model.forget_replies();
        desk.stage.begin().await;
        desk.peer = desk.stage.peer().await;
    }
    desk.read("f").await.ok();
    desk.edit("f", "new ", "last ").await.ok();
    assert!(desk.content("f").starts_with("last "));
    desk.end().await;
}
