//! A disk without room, and one that can only be read: what clients hear, what is in the logs, and how it goes on. On a small
//! file system of their own, which only root can mount: left out, aloud, for everybody else.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::errors::check;
use crate::model_server::chat;
use crate::stage::{Stage, leave, prompt};
use crate::support::Home;

/// A file system in memory; it is gone with this.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts one of this size; none, and a word, where that is not allowed.
    fn new(path: &Path, mebibytes: u32) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let size = format!("size={mebibytes}m,mode=0700");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "dshd-test"]).arg(path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(path.to_owned()));
        }
        eprintln!("left out: no file system can be mounted here");
        None
    }

    fn read_only(&self) {
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", "remount,ro"]).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: what is still open goes with its process.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn without_room_no_turn_begins_a_running_one_is_closed_and_it_goes_on_by_itself() {
    let mut stage = Stage::with("", "[store]\nreserve_bytes = \"8MiB\"").await;
    stage.stop().await;
    let Some(mounted) = Mounted::new(&stage.home.data(), 24) else { return };
    stage.begin().await;
    let mut peer = stage.peer().await;
    stage.says(&["there is room"]);
    assert_eq!(peer.prompt("before", "x").await["status"], "ok");
    peer.take_aside();

    // The disk fills up while a turn runs.
    let live = stage.live();
    let running = peer.send_prompt("running", "x").await;
    stage.model.request().await;
    stage.model.request().await;
    let filler = mounted.0.join("filler");
    std::fs::write(&filler, vec![7; 18 << 20]).unwrap();
    let arguments = json!({ "path": "." }).to_string();
    live.send(chat::call(0, "call_1", "glob", &arguments) + &chat::finish("tool_calls")).await;
    live.end().await;
    let reply = peer.reply(running).await;
    assert_eq!(reply["result"]["status"], "error", "{reply}");
    let told = peer.take_aside();
    let end = told
        .iter()
        .find(|message| message["params"]["event"]["type"] == "turn/end")
        .expect("its end is told");
    let error = &end["params"]["event"]["data"]["reason"]["error"];
    assert_eq!(error["code"], "STORAGE_FULL", "{end}");

    let data =
        check(&mut peer, "session/prompt", prompt("before", "y", &json!({})), -32012, "storage_failed").await;
    assert_eq!(data["reserveBytes"], 8 << 20, "{data}");
    assert!(data["freeBytes"].as_u64().unwrap() < 8 << 20, "{data}");
    // What is there can be read.
    let page = peer.call("session/read", json!({ "sessionId": "running" })).await;
    let last = page["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["type"], "turn/end", "{last}");

    std::fs::remove_file(&filler).unwrap();
    stage.says(&["again", "again"]);
    assert_eq!(peer.prompt("before", "y").await["status"], "ok");
    assert_eq!(peer.prompt("running", "y").await["status"], "ok");
    peer.take_aside();
    leave(peer).await;
    stage.stop().await;
}

/// A sync that fails whenever a file is there, put before the system's own. None, and a word, where nothing can be compiled.
fn failing_syncs(home: &Home) -> Option<PathBuf> {
    let (source, library) = (home.path("sync.c"), home.path("sync.so"));
    let text = format!(
        "#include <errno.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
         int fdatasync(int fd) {{ if (access(\"{}\", F_OK) == 0) {{ errno = EIO; return -1; }} \
         return syscall(SYS_fdatasync, fd); }}\n",
        home.path("broken").display()
    );
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output();
    if built.is_ok_and(|output| output.status.success()) {
        return Some(library);
    }
    eprintln!("left out: there is no C compiler");
    None
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_written_or_acknowledged_and_what_is_there_can_be_read() {
    let mut stage = Stage::new().await;
    stage.stop().await;
    let Some(library) = failing_syncs(&stage.home) else { return };
    let mut command = stage.home.dshd(["serve"]);
    command.env("LD_PRELOAD", library).env("DSHD_METRICS__LISTEN", "127.0.0.1:0");
    stage.begin_by(command);
    let mut peer = stage.peer().await;
    stage.says(&["fine"]);
    assert_eq!(peer.prompt("s", "x").await["status"], "ok");
    peer.take_aside();
    let before = peer.call("session/read", json!({ "sessionId": "s" })).await["events"].take();

    std::fs::write(stage.home.path("broken"), "").unwrap();
    stage.says(&["never acknowledged"]);
    let id = peer.send_prompt("s", "y").await;
    let reply = peer.reply(id).await;
    assert_eq!(reply["error"]["data"]["kind"], "storage_failed", "{reply}");
    // That the disk is well again does not bring back what it has dropped.
    std::fs::remove_file(stage.home.path("broken")).unwrap();
    for session in ["s", "new"] {
        check(&mut peer, "session/prompt", prompt(session, "z", &json!({})), -32012, "storage_failed").await;
    }
    let events = peer.call("session/read", json!({ "sessionId": "s" })).await["events"].take();
    assert!(events.as_array().unwrap().starts_with(before.as_array().unwrap()), "{events}");
    let status = peer.call("server/status", json!({})).await;
    assert!(status["storageFailure"].as_str().unwrap().contains("sync"), "{status}");
    peer.take_aside();
    leave(peer).await;
    assert_eq!(stage.home.run(["status"]).await.code, 1);
    let report = stage.home.run(["doctor", "--offline", "--json"]).await.expect_code(1).json();
    assert!(report.to_string().contains("storage failed, it only reads"), "{report}");
    assert_eq!(stage.stop_with_code().await, 74);
}

#[tokio::test]
async fn on_a_file_system_that_can_only_be_read_the_daemon_says_so() {
    let home = Home::new();
    let Some(mounted) = Mounted::new(&home.data(), 4) else { return };
    mounted.read_only();
    let ran = home.run(["serve"]).await.expect_code(74);
    assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
    assert!(ran.stderr.contains(home.data().to_str().unwrap()), "{}", ran.stderr);
}
