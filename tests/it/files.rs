//! `read`, `write`, `edit` and `todo_write` through the daemon: what the model is told, and what becomes of the files.

#[path = "files/abuse.rs"]
mod abuse;
#[path = "files/crash.rs"]
mod crash;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, events, leave, text_of};
use crate::support::Peer;

/// A session whose model makes the calls that the test wants.
struct Desk {
    stage: Stage,
    peer: Peer,
}

impl Desk {
    async fn new() -> Self {
        Self::with(json!({})).await
    }

    /// With more parameters of `initialize`.
    async fn with(more: Value) -> Self {
        let stage = Stage::new().await;
        let peer = stage.peer_with(more).await;
        Self { stage, peer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.stage.home.work().join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    fn content(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The stored events of a turn in which the model makes these calls: name and raw arguments.
    async fn turn(&mut self, session: &str, calls: &[(&str, &str)]) -> Vec<Value> {
        let ids: Vec<String> = (0..calls.len()).map(|at| format!("call_{at}")).collect();
        let calls: Vec<_> =
            ids.iter().zip(calls).map(|(id, (name, raw))| (id.as_str(), *name, *raw)).collect();
        self.stage.model.push(chat::calls(&calls));
        self.stage.says(&["done"]);
        self.peer.take_aside();
        let reply = self.peer.prompt(session, "go").await;
        assert_eq!(reply["status"], "ok", "{reply}");
        let told = self.peer.take_aside();
        events(&told).into_iter().cloned().collect()
    }

    /// The `tool/result` of one call with raw arguments.
    async fn raw(&mut self, tool: &str, arguments: &str) -> Called {
        let events = self.turn("s", &[(tool, arguments)]).await;
        // After a crash, what became of the call before is told first.
        results(&events).pop().unwrap()
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Called {
        self.raw(tool, &arguments.to_string()).await
    }

    async fn read(&mut self, name: &str) -> Called {
        self.call("read", json!({ "file_path": name })).await
    }

    async fn write(&mut self, name: &str, content: &str) -> Called {
        self.call("write", json!({ "file_path": name, "content": content })).await
    }

    async fn edit(&mut self, name: &str, old: &str, new: &str) -> Called {
        self.call("edit", json!({ "file_path": name, "old_string": old, "new_string": new })).await
    }

    /// Ends the daemon, lets the test change something, and goes on with a new one.
    async fn restart(&mut self, meanwhile: impl FnOnce(&Self)) {
        self.stage.stop().await;
        while self.peer.line().await.is_some() {}
        meanwhile(self);
        self.stage.begin().await;
        self.peer = self.stage.peer().await;
    }

    async fn end(mut self) {
        self.peer.take_aside();
        leave(self.peer).await;
    }
}

/// What a call gave back.
#[derive(Debug)]
struct Called {
    text: String,
    data: Value,
}

impl Called {
    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(self.data["message"]["isError"], false, "{}", self.text);
        self
    }

    /// Fails the test unless the call failed with this code.
    #[track_caller]
    fn failed(self, code: &str) -> String {
        assert_eq!(self.data["message"]["isError"], true, "{}", self.text);
        assert!(self.text.starts_with("Error: "), "{}", self.text);
        assert_eq!(self.data["error"]["code"], code, "{}", self.text);
        self.text
    }
}

fn results(events: &[Value]) -> Vec<Called> {
    let results = events.iter().filter(|event| event["type"] == "tool/result");
    results
        .map(|event| Called { text: text_of(&event["data"]["message"]), data: event["data"].clone() })
        .collect()
}

#[tokio::test]
async fn a_file_is_read_edited_and_read_again_in_the_exact_words() {
    let mut desk = Desk::new().await;
    let path = desk.path("notes.txt");
    let path = path.display();
    let framed =
        |content: &str| format!("<path>{path}</path>\n<type>file</type>\n<content>\n{content}\n</content>");
    let read = desk.read("notes.txt").await.ok();
    assert_eq!(read.text, framed("1: one\n2: two\n\n(End of file - total 2 lines)"));
    let edited = desk.edit("notes.txt", "two", "2").await.ok();
    assert_eq!(edited.text, format!("The file {path} has been updated successfully."));
    let meta = &edited.data["meta"];
    assert_eq!(meta["operation"], "update");
    assert_eq!(meta["path"], path.to_string());
    let place = json!({ "path": path.to_string(), "oldText": "one\ntwo\n", "newText": "one\n2\n" });
    assert_eq!(meta["diffs"], json!([place]));
    assert_eq!(meta["unified"], format!("--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"));
    let read = desk.read("notes.txt").await.ok();
    assert_eq!(read.text, framed("1: one\n2: 2\n\n(End of file - total 2 lines)"));
    assert_eq!(desk.write("notes.txt", "three\n").await.ok().text, framed("Updated file"));
    assert_eq!(desk.content("notes.txt"), "three\n");
    let created = desk.write("src/new/file.txt", "a\n").await.ok();
    assert!(created.text.ends_with("<content>\nCreated file\n</content>"), "{}", created.text);
    assert_eq!(created.data["meta"]["operation"], "create");
    assert_eq!(desk.content("src/new/file.txt"), "a\n");
    desk.end().await;
}

#[tokio::test]
async fn a_file_that_this_session_has_not_read_is_not_changed() {
    let mut desk = Desk::new().await;
    let text = desk.edit("notes.txt", "two", "2").await.failed("FS_NOT_OBSERVED");
    assert!(text.ends_with("has not been read in this session; read it before you change it"), "{text}");
    desk.write("notes.txt", "").await.failed("FS_NOT_OBSERVED");
    // What another session has read does not count.
    let arguments = json!({ "file_path": "notes.txt" }).to_string();
    results(&desk.turn("other", &[("read", &arguments)]).await).remove(0).ok();
    desk.edit("notes.txt", "two", "2").await.failed("FS_NOT_OBSERVED");
    assert_eq!(desk.content("notes.txt"), "one\ntwo\n");
    // Nor does a read that failed.
    desk.call("read", json!({ "file_path": "notes.txt", "offset": 99 })).await.failed("INVALID_ARGS");
    desk.edit("notes.txt", "two", "2").await.failed("FS_NOT_OBSERVED");
    desk.end().await;
}

#[tokio::test]
async fn a_file_that_was_changed_after_it_was_read_is_not_changed() {
    let mut desk = Desk::new().await;
    desk.read("notes.txt").await.ok();
    desk.put("notes.txt", "one\ntwo\ntheirs\n");
    let text = desk.edit("notes.txt", "two", "2").await.failed("FS_CHANGED");
    assert!(
        text.ends_with("has changed since it was last read; read it again before you change it"),
        "{text}"
    );
    desk.write("notes.txt", "").await.failed("FS_CHANGED");
    assert_eq!(desk.content("notes.txt"), "one\ntwo\ntheirs\n");
    // The model's own command is someone else, too.
    desk.read("notes.txt").await.ok();
    desk.call("bash", json!({ "command": "sed -i s/one/ONE/ notes.txt", "description": "x" })).await.ok();
    desk.edit("notes.txt", "two", "2").await.failed("FS_CHANGED");
    desk.read("notes.txt").await.ok();
    desk.edit("notes.txt", "two", "2").await.ok();
    assert_eq!(desk.content("notes.txt"), "ONE\n2\ntheirs\n");
    desk.end().await;
}

#[tokio::test]
async fn what_was_read_is_known_again_after_a_restart_and_after_the_session_left_memory() {
    let mut desk = Desk::new().await;
    desk.put("kept", "a\n");
    desk.put("changed", "a\n");
    symlink("kept", desk.path("link")).unwrap();
    desk.read("link").await.ok();
    desk.read("changed").await.ok();
    desk.restart(|desk| desk.put("changed", "b\n")).await;
    desk.edit("changed", "b", "c").await.failed("FS_CHANGED");
    desk.edit("notes.txt", "two", "2").await.failed("FS_NOT_OBSERVED");
    desk.edit("kept", "a", "b").await.ok();
    // The stamp of its own write counts from here on.
    desk.restart(|_| {}).await;
    desk.edit("kept", "b", "c").await.ok();
    desk.peer.call("session/close", json!({ "sessionId": "s" })).await;
    desk.edit("kept", "c", "d").await.ok();
    assert_eq!((desk.content("kept").as_str(), desk.content("changed").as_str()), ("d\n", "b\n"));
    desk.end().await;
}

#[tokio::test]
async fn nothing_outside_the_workspace_is_changed() {
    let mut desk = Desk::new().await;
    let outside = desk.stage.home.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "one\n").unwrap();
    symlink(&outside, desk.path("dir")).unwrap();
    symlink(outside.join("f"), desk.path("file")).unwrap();
    symlink(outside.join("new"), desk.path("dangling")).unwrap();
    symlink("notes.txt", desk.path("inside")).unwrap();
    let absolute = outside.join("f");
    for name in ["dir/f", "file", "../outside/f", "src/../../outside/f", absolute.to_str().unwrap()] {
        desk.read(name).await.ok();
        let text = desk.edit(name, "one", "1").await.failed("FS_SANDBOX_DENIED");
        assert!(text.contains(" is outside the workspace "), "{text}");
        desk.write(name, "").await.failed("FS_SANDBOX_DENIED");
    }
    for name in ["dangling", "dir/new", "../outside/new", "dir/sub/new"] {
        desk.write(name, "x").await.failed("FS_SANDBOX_DENIED");
    }
    let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "one\n");
    desk.read("inside").await.ok();
    desk.edit("inside", "one", "1").await.ok();
    assert_eq!(desk.content("notes.txt"), "1\ntwo\n");
    assert!(desk.path("inside").is_symlink());
    desk.end().await;
}

#[tokio::test]
async fn a_read_only_session_changes_nothing_and_one_with_full_access_what_it_likes() {
    let mut desk = Desk::with(json!({ "permissionMode": "read-only" })).await;
    desk.read("notes.txt").await.ok();
    let text = desk.edit("notes.txt", "two", "2").await.failed("FS_SANDBOX_DENIED");
    assert!(text.contains("the session is read-only; nobody is connected"), "{text}");
    desk.write("new", "x").await.failed("FS_SANDBOX_DENIED");
    assert!(!desk.path("new").exists());
    assert_eq!(desk.content("notes.txt"), "one\ntwo\n");
    desk.end().await;

    let mut desk = Desk::with(json!({ "permissionMode": "full-access" })).await;
    desk.write("../elsewhere/new", "x").await.ok();
    assert_eq!(desk.content("../elsewhere/new"), "x");
    desk.end().await;
}

#[tokio::test]
async fn line_ends_mode_and_encoding_of_a_file_are_kept() {
    let mut desk = Desk::new().await;
    desk.put("run.sh", "\u{FEFF}#!/bin/sh\r\necho one\r\n");
    fs::set_permissions(desk.path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    desk.read("run.sh").await.ok();
    desk.edit("run.sh", "echo one\n", "echo 1\necho 2\n").await.ok();
    assert_eq!(desk.content("run.sh"), "\u{FEFF}#!/bin/sh\r\necho 1\r\necho 2\r\n");
    desk.write("run.sh", "#!/bin/sh\ntrue\n").await.ok();
    assert_eq!(desk.content("run.sh"), "\u{FEFF}#!/bin/sh\r\ntrue\r\n");
    assert_eq!(fs::metadata(desk.path("run.sh")).unwrap().permissions().mode() & 0o7777, 0o755);
    desk.put("latin", b"caf\xE9\n");
    desk.read("latin").await.ok();
    desk.edit("latin", "caf", "x").await.failed("FS_NOT_TEXT");
    desk.write("latin", "x").await.failed("FS_NOT_TEXT");
    desk.end().await;
}

#[tokio::test]
async fn an_edit_that_is_unclear_is_told_with_what_helps() {
    let mut desk = Desk::new().await;
    desk.put("f", "a = 1\nb = 2\na = 1\n\tc = 3\n");
    desk.read("f").await.ok();
    let text = desk.edit("f", "a = 1", "a = 2").await.failed("FS_AMBIGUOUS_EDIT");
    assert!(text.contains("was found 2 times in ") && text.contains(", at lines 1, 3;"), "{text}");
    let text = desk.edit("f", "  c = 3", "c").await.failed("FS_EDIT_NOT_FOUND");
    assert!(text.contains("The same text with other whitespace is at line 4"), "{text}");
    let text = desk.edit("f", "2: b = 2", "b").await.failed("FS_EDIT_NOT_FOUND");
    assert!(text.contains("leave them out"), "{text}");
    desk.edit("none", "a", "b").await.failed("FS_NOT_FOUND");
    let all = json!({ "file_path": "f", "old_string": "a = 1", "new_string": "a = 2", "replace_all": true });
    desk.call("edit", all).await.ok();
    assert_eq!(desk.content("f"), "a = 2\nb = 2\na = 2\n\tc = 3\n");
    desk.end().await;
}

#[tokio::test]
async fn calls_of_one_message_are_made_in_its_order() {
    let mut desk = Desk::new().await;
    let edit = |old: &str, new: &str| {
        json!({ "file_path": "notes.txt", "old_string": old, "new_string": new }).to_string()
    };
    let read = json!({ "file_path": "notes.txt" }).to_string();
    let (first, second) = (edit("one", "1"), edit("1\ntwo", "1\n2"));
    let events =
        desk.turn("s", &[("read", &read), ("edit", &first), ("read", &read), ("edit", &second)]).await;
    let results = results(&events);
    let ids: Vec<_> = results.iter().map(|result| result.data["message"]["toolCallId"].clone()).collect();
    assert_eq!(ids, ["call_0", "call_1", "call_2", "call_3"]);
    assert!(results[2].text.contains("1: 1\n2: two\n"), "{}", results[2].text);
    for result in results {
        result.ok();
    }
    assert_eq!(desk.content("notes.txt"), "1\n2\n");
    desk.end().await;
}

#[tokio::test]
async fn the_list_of_tasks_is_an_event_right_before_its_result() {
    let mut desk = Desk::new().await;
    let todos = json!({ "todos": [{ "content": "a", "status": "in_progress" }] });
    let events = desk.turn("s", &[("todo_write", &todos.to_string())]).await;
    let at = events.iter().position(|event| event["type"] == "todo/write").unwrap();
    assert_eq!(events[at]["data"], todos);
    assert_eq!(events[at + 1]["type"], "tool/result");
    let result = results(&events).remove(0).ok();
    assert_eq!(result.text, "Updated todo list: 0 pending, 1 in progress, 0 completed.");
    desk.call("todo_write", json!({ "todos": [{ "content": "a", "status": "x" }] }))
        .await
        .failed("INVALID_ARGS");
    desk.end().await;
}

#[tokio::test]
async fn a_disk_that_is_full_leaves_the_old_file_whole() {
    let mut desk = Desk::new().await;
    desk.put("f", "ab".repeat(200));
    desk.stage.stop().await;
    while desk.peer.line().await.is_some() {}
    // No file of the daemon may grow over 256 KiB; its log stays below.
    let mut command = tokio::process::Command::new("/bin/sh");
    let dshd = desk.stage.home.dshd(["serve"]);
    command.args(["-c", "trap '' XFSZ; ulimit -f 256; exec \"$0\" serve"]).arg(dshd.as_std().get_program());
    command.env_clear().envs(dshd.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(desk.stage.home.work()).stdin(std::process::Stdio::null()).kill_on_drop(true);
    desk.stage.begin_by(command);
    desk.peer = desk.stage.peer().await;
    desk.read("f").await.ok();
    let large = "x".repeat(4000);
    let all = json!({ "file_path": "f", "old_string": "a", "new_string": large, "replace_all": true });
    let called = desk.call("edit", all).await;
    assert!(called.text.starts_with("Error: cannot write "), "{}", called.text);
    assert_eq!(desk.content("f"), "ab".repeat(200));
    let left: Vec<_> =
        fs::read_dir(desk.path(".")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains(".tmp")), "{left:?}");
    desk.edit("f", &"ab".repeat(200), "small").await.ok();
    assert_eq!(desk.content("f"), "small");
    desk.end().await;
}
