//! What goes wrong with files and processes: locks, damage, a full disk, the end of the daemon.

use std::fs;

use serde_json::{Value, json};

use crate::errors::check;
use crate::model_server::chat;
use crate::stage::{Stage, events, leave, prompt};
use crate::support::Peer;

#[tokio::test]
async fn a_session_that_another_process_writes_is_locked() {
    let stage = Stage::new().await;
    stage.says(&["from stdio"]);
    let mut holder = Peer::stdio(stage.home.dshd(["stdio"]));
    holder.initialize(stage.bind(&json!({}))).await;
    let pid = holder.child().id().unwrap();
    assert_eq!(holder.prompt("s", "hello").await["status"], "ok");
    holder.take_aside();
    let mut peer = stage.peer().await;
    for (method, params) in
        [("session/resume", json!({ "sessionId": "s" })), ("session/prompt", prompt("s", "x", &json!({})))]
    {
        let data = check(&mut peer, method, params, -32006, "session_locked").await;
        assert_eq!(data["pid"], pid, "{method}");
    }
    // Reading takes no lock.
    let read = peer.call("session/read", json!({ "sessionId": "s" })).await;
    assert!(read["events"].as_array().unwrap().len() > 5);
    leave(holder).await;
    stage.says(&["from the daemon"]);
    assert_eq!(peer.prompt("s", "again").await["status"], "ok");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_log_that_is_damaged_in_the_middle_is_told_and_left_as_it_is() {
    let mut stage = Stage::new().await;
    stage.says(&["one", "two"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "first").await;
    peer.prompt("s", "second").await;
    peer.take_aside();
    leave(peer).await;
    stage.stop().await;

    let path = stage.log_file();
    let mut bytes = fs::read(&path).unwrap();
    let (line, seq) = (5, 4);
    let start: usize = bytes.split_inclusive(|byte| *byte == b'\n').take(line).map(<[u8]>::len).sum();
    bytes[start + 20] ^= 1;
    fs::write(&path, &bytes).unwrap();

    stage.begin().await;
    let mut peer = stage.peer().await;
    for (method, params) in
        [("session/resume", json!({ "sessionId": "s" })), ("session/prompt", prompt("s", "x", &json!({})))]
    {
        let data = check(&mut peer, method, params, -32007, "session_corrupt").await;
        assert_eq!(data["path"], json!(path));
        assert_eq!(data["seq"], seq, "{data}");
    }
    assert_eq!(fs::read(&path).unwrap(), bytes, "the file was touched");
    // Others are none the worse for it.
    stage.says(&["fine"]);
    assert_eq!(peer.prompt("other", "x").await["status"], "ok");
    peer.take_aside();
    leave(peer).await;
}

/// The daemon runs under a limit of file size, as on a full disk: writes fail in the middle of a session's life.
#[tokio::test]
async fn a_session_that_can_not_be_written_says_so_and_loses_nothing_that_was_told() {
    let mut stage = Stage::new().await;
    stage.stop().await;
    let mut command = tokio::process::Command::new("/bin/sh");
    let dshd = stage.home.dshd(["serve"]);
    command.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" serve"]).arg(dshd.as_std().get_program());
    command.env_clear().envs(dshd.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(stage.home.work()).stdin(std::process::Stdio::null()).kill_on_drop(true);
    stage.begin_by(command);

    let mut peer = stage.peer().await;
    let text = "x".repeat(2000);
    let mut turns = 0;
    let error = loop {
        stage.model.push(chat::reply(&[&text]));
        let id = peer.send_prompt("s", &text).await;
        let reply = peer.reply(id).await;
        if reply.get("error").is_some() {
            break reply["error"].clone();
        }
        turns += 1;
        assert!(turns < 20, "the disk never fails");
    };
    assert_eq!(
        (&error["code"], &error["data"]["kind"]),
        (&json!(-32012), &json!("storage_failed")),
        "{error}"
    );
    assert!(turns > 0);
    // The rest of that turn was not told, what was told can be read, and other sessions are none the worse for it.
    let told = peer.take_aside();
    let told = events(&told);
    let mut since = json!(-1);
    let mut stored = Vec::new();
    while !since.is_null() {
        let mut page = peer.call("session/read", json!({ "sessionId": "s", "since": since })).await;
        stored.extend(page["events"].as_array().unwrap().clone());
        since = page["nextSince"].take();
    }
    assert!(told.iter().copied().eq(stored.iter()), "{} told, {} stored", told.len(), stored.len());
    stage.model.push(chat::reply(&["fine"]));
    stage.model.push(chat::reply(&["fine"]));
    assert_eq!(peer.prompt("another", "x").await["status"], "ok");
    peer.take_aside();
    leave(peer).await;
    stage.stop().await;

    // With room again the session goes on.
    stage.begin().await;
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "x").await["status"], "ok");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn when_stopping_nothing_new_begins_and_a_queued_prompt_stays_for_the_next_life() {
    let mut stage = Stage::new().await;
    let live = stage.live();
    let mut peer = stage.peer().await;
    let running = peer.send_prompt("s", "first").await;
    stage.model.request().await;
    let queued = peer.send("session/prompt", prompt("s", "second", &json!({ "whenBusy": "queue" }))).await;
    let inserted =
        |message: &Value| message["params"]["event"]["data"]["inserted"][0]["content"][0]["text"] == "second";
    let second = peer.take(inserted).await["params"]["event"]["data"]["inserted"][0]["id"].take();
    peer.call("server/drain", json!({})).await;
    let told = peer.notification("server.draining").await;
    assert_eq!(told["deadlineMs"], 30_000, "{told}");
    assert!((500..5000).contains(&told["reconnectAfterMs"].as_u64().unwrap()), "{told}");
    for (method, params) in [
        ("session/prompt", prompt("s", "third", &json!({ "whenBusy": "queue" }))),
        ("session/prompt", prompt("new", "x", &json!({}))),
        ("session/create", json!({ "sessionId": "new" })),
    ] {
        check(&mut peer, method, params, -32000, "shutting_down").await;
    }
    // The way to look is open.
    assert_eq!(peer.call("server/status", json!({})).await["phase"], "draining");
    live.send(chat::text("done") + &chat::finish("stop")).await;
    live.end().await;
    assert_eq!(peer.reply(running).await["result"]["status"], "ok");
    let error = peer.reply(queued).await["error"].take();
    assert_eq!(error["data"], json!({ "kind": "shutting_down", "messageId": second }), "{error}");
    peer.leave_unread();
    peer.take_aside();
    leave(peer).await;
    stage.stop().await;

    stage.begin().await;
    stage.says(&["to the second", "to the third"]);
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "third").await["status"], "ok");
    peer.take_aside();
    let asked: Vec<Value> = stage
        .model
        .requests()
        .iter()
        .map(|request| request.json()["messages"].as_array().unwrap().last().unwrap()["content"].clone())
        .collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    leave(peer).await;
}

/// A session left memory for being idle while the daemon waited for another's turn, and who waited for its queued prompt was
/// answered with an internal error.
#[tokio::test]
async fn a_queued_prompt_is_answered_though_its_session_is_idle_while_the_daemon_stops() {
    let mut stage = Stage::with("", "[sessions]\nidle_unload = \"30ms\"").await;
    let (first, other) = (stage.live(), stage.live());
    let mut peer = stage.peer().await;
    let running = peer.send_prompt("s", "first").await;
    stage.model.request().await;
    let elsewhere = peer.send_prompt("other", "x").await;
    stage.model.request().await;
    let queued = peer.send("session/prompt", prompt("s", "second", &json!({ "whenBusy": "queue" }))).await;
    peer.take(|message| message["params"]["event"]["data"]["inserted"][0]["content"][0]["text"] == "second")
        .await;
    peer.call("server/drain", json!({})).await;
    first.send(chat::text("done") + &chat::finish("stop")).await;
    first.end().await;
    assert_eq!(peer.reply(running).await["result"]["status"], "ok");
    // Longer than an idle session stays; the time is what it is about.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    other.send(chat::text("done") + &chat::finish("stop")).await;
    other.end().await;
    assert_eq!(peer.reply(elsewhere).await["result"]["status"], "ok");
    let error = peer.reply(queued).await["error"].take();
    assert_eq!(error["data"]["kind"], "shutting_down", "{error}");
    peer.take_aside();
    leave(peer).await;
    stage.stop().await;
}
