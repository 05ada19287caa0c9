//! stdio: a runtime of one client's own. It ends with its input, by `shutdown` or by a signal; always well, always soon.

use std::fs;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{Home, Peer, assert_dense, finish};

const ANSWER: &str = r#"{"parts":[{"text":"done"}]}"#;
const STALL: &str = r#"{"prompt":"stall","parts":[{"text":"on it"},{"stall":true}]}"#;
const STUBBORN: &str = r#"{"prompt":"stubborn","step":1,"parts":[{"tool":"bash","arguments":{"command":"trap '' TERM INT; touch begun; while :; do sleep 1; done"}}]}"#;
const WAIT_FOR_GO: &str = r#"{"prompt":"go","step":1,"parts":[{"tool":"bash","arguments":{"command":"until [ -e go ]; do sleep 0.02; done"}}]}"#;

fn home(tables: &str) -> Home {
    let home = Home::new();
    home.scripted(&[STALL, STUBBORN, WAIT_FOR_GO, ANSWER], tables);
    home
}

fn line(id: u64, method: &str, params: &Value) -> String {
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn initialize(home: &Home) -> String {
    line(1, "initialize", &json!({ "cwd": home.work() }))
}

fn prompt(id: u64, text: &str) -> String {
    let blocks = json!([{ "type": "text", "text": text }]);
    line(id, "session/prompt", &json!({ "sessionId": "s", "contentBlocks": blocks }))
}

fn assert_disposed(home: &Home) {
    let logged = home.logged("s");
    assert_dense(&logged);
    let end = logged.last().unwrap();
    assert_eq!(end["type"], "turn/end");
    assert_eq!(
        end["data"]["reason"],
        json!({ "kind": "aborted", "reason": { "kind": "disposed" } }),
        "{end}"
    );
}

async fn start(home: &Home, extra: Value) -> Peer {
    let mut peer = Peer::stdio(home.dshd(["stdio"]));
    let mut params = json!({ "cwd": home.work() });
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    peer.initialize(params).await;
    peer
}

fn signal(peer: &mut Peer, signal: Signal) {
    let pid = peer.child().id().and_then(|pid| i32::try_from(pid).ok()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

async fn assert_ended_well(peer: &mut Peer) {
    let status: ExitStatus = peer.exited().await.unwrap();
    assert_eq!(status.code(), Some(0), "{status:?}");
}

#[tokio::test]
async fn what_is_piped_in_is_answered_to_the_last_line() {
    let home = home("");
    // The last line has no end.
    let input = initialize(&home) + prompt(2, "hello").trim_end();
    let ran = home.run_with(["stdio"], input.as_bytes()).await.expect_code(0);
    let frames = ran.json_lines();
    assert_eq!(frames[0]["id"], 1);
    let at = |fits: &dyn Fn(&Value) -> bool| frames.iter().rposition(fits).unwrap();
    let reply = at(&|frame| frame["id"] == 2);
    assert_eq!(frames[reply]["result"]["status"], "ok", "{}", frames[reply]);
    assert!(at(&|frame| frame["method"] == "session.event") < reply, "the reply comes after its events");
    assert_eq!(home.logged("s").last().unwrap()["type"], "turn/end");
}

/// A runtime whose parent had gone lived on, some of them at full processor speed.
#[tokio::test]
async fn without_input_it_ends_at_once_and_says_nothing() {
    let home = home("");
    let ran = home.run(["stdio"]).await.expect_code(0);
    assert_eq!(ran.stdout, "");
}

#[tokio::test]
async fn a_request_in_flight_at_the_end_of_the_input_is_waited_for() {
    let home = home("");
    let mut peer = start(&home, json!({})).await;
    let id = peer.send_prompt("s", "go").await;
    peer.event("tool/call").await;
    peer.close_write().await;
    fs::write(home.work().join("go"), "").unwrap();
    assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    peer.leave_unread();
    assert_ended_well(&mut peer).await;
    let logged = home.logged("s");
    assert_eq!(logged.last().unwrap()["data"]["reason"]["kind"], "completed");
}

#[tokio::test]
async fn a_request_that_does_not_end_in_time_after_the_input_gets_its_one_reply() {
    let home = home("[shutdown]\ndrain_timeout = \"100ms\"");
    let input = initialize(&home) + &prompt(2, "stall");
    let ran = home.run_with(["stdio"], input.as_bytes()).await.expect_code(0);
    let frames = ran.json_lines();
    let replies: Vec<_> = frames.iter().filter(|frame| frame["id"] == 2).collect();
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert_disposed(&home);
}

#[tokio::test]
async fn with_nothing_in_flight_the_end_of_the_input_ends_a_running_turn() {
    let home = home("[shutdown]\ndrain_timeout = \"1h\"");
    let mut peer = start(&home, json!({ "completion": "receipt" })).await;
    let id = peer.send_prompt("s", "stall").await;
    assert!(peer.reply(id).await["result"]["messageId"].is_string());
    peer.event("assistant/chunk").await;
    peer.close_write().await;
    let end = peer.event("turn/end").await;
    assert_eq!(end["event"]["data"]["reason"]["reason"]["kind"], "disposed", "{end}");
    peer.leave_unread();
    assert_ended_well(&mut peer).await;
    assert_disposed(&home);
}

/// Official SDKs send SIGTERM a second after `shutdown` was answered, and SIGKILL one later.
#[tokio::test]
async fn shutdown_in_mid_turn_ends_turn_and_process() {
    for text in ["stall", "stubborn"] {
        let home = home("[shutdown]\ndrain_timeout = \"1h\"\ncancel_grace = \"20s\"");
        let mut peer = start(&home, json!({})).await;
        let id = peer.send_prompt("s", text).await;
        peer.event(if text == "stall" { "assistant/chunk" } else { "tool/call" }).await;
        let shutdown = peer.send("shutdown", json!({})).await;
        let reply = peer.reply(id).await;
        assert_eq!(reply["result"]["status"], "aborted", "{reply}");
        assert_eq!(peer.reply(shutdown).await["result"], json!({}));
        let end = peer.event("turn/end").await;
        assert_eq!(end["event"]["data"]["reason"]["reason"]["kind"], "disposed", "{end}");
        peer.leave_unread();
        // Its input is open still: it does not wait for that.
        assert_ended_well(&mut peer).await;
        assert_disposed(&home);
    }
}

#[tokio::test]
async fn a_signal_ends_turn_and_process_at_once() {
    for which in [Signal::TERM, Signal::INT] {
        let home = home("[shutdown]\ndrain_timeout = \"1h\"");
        let mut peer = start(&home, json!({})).await;
        let id = peer.send_prompt("s", "stall").await;
        peer.event("assistant/chunk").await;
        signal(&mut peer, which);
        let reply = peer.reply(id).await;
        assert_eq!(reply["result"]["status"], "aborted", "{reply}");
        peer.leave_unread();
        assert_ended_well(&mut peer).await;
        assert_disposed(&home);
    }
}

#[tokio::test]
async fn a_client_that_closes_both_ways_takes_its_turn_with_it() {
    let home = home("[shutdown]\ndrain_timeout = \"1h\"");
    let mut command = home.dshd(["stdio"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::inherit());
    let mut child = command.spawn().unwrap();
    let mut peer = Peer::over(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    peer.initialize(json!({ "cwd": home.work() })).await;
    peer.send_prompt("s", "stall").await;
    peer.event("assistant/chunk").await;
    peer.leave_unread();
    drop(peer);
    let status = crate::support::within("the end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0));
    let logged = home.logged("s");
    assert_eq!(logged.last().unwrap()["data"]["reason"]["kind"], "aborted", "abort is what stdio does");
}

fn sdk(home: &Home, arguments: &[&str]) -> Command {
    let mut command = home.dshd(["--profile", "sdk"]);
    command.args(arguments).env_remove("DSHD_DATA_DIR").env("DSH_HOME", home.path("dsh"));
    command
}

#[tokio::test]
async fn the_sdk_profile_has_the_defaults_of_official_clients() {
    let home = home("");
    let mut peer = Peer::stdio(sdk(&home, &[]));
    let bound = peer.initialize(json!({ "cwd": home.work() })).await;
    assert_eq!(bound["serverInfo"]["name"], "deepseek-harness-sdk-runtime", "{bound}");
    assert_eq!(bound["protocolVersion"], 1);
    let ids: Vec<u64> = {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(peer.send_prompt("s", "hello").await);
        }
        ids
    };
    for id in ids {
        let reply = peer.reply(id).await;
        let keys: Vec<_> = reply["result"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["messageId"], "a receipt, and queued when busy: {reply}");
    }
    for _ in 0..3 {
        peer.event("turn/end").await;
    }
    let idle = peer.take(|message| message["params"]["status"] == "idle").await;
    assert_eq!(idle["params"]["sessionId"], "s");
    let aside = peer.take_aside();
    assert!(aside.iter().all(|message| message["params"]["event"]["type"] != "assistant/chunk"), "no deltas");
    assert!(home.path("dsh/dshd/sessions").is_dir(), "data is in the harness's home");
    assert_eq!(fs::read_dir(home.data()).unwrap().count(), 0, "and nowhere else");
    peer.call("shutdown", json!({})).await;
    peer.leave_unread();
    assert_ended_well(&mut peer).await;
}

#[tokio::test]
async fn the_sdk_profile_hears_of_every_session() {
    let home = home("");
    let mut peer = Peer::stdio(sdk(&home, &[]));
    peer.initialize(json!({ "cwd": home.work() })).await;
    for session in ["a", "b"] {
        let id = peer.send_prompt(session, "hello").await;
        peer.reply(id).await;
        let end = peer.event("turn/end").await;
        assert_eq!(end["sessionId"], session);
    }
    peer.leave_unread();
    peer.finish().await;
}

#[tokio::test]
async fn deltas_under_the_sdk_profile_are_for_who_asks() {
    let home = home("");
    let mut command = sdk(&home, &[]);
    command.env("DSHD_DELTAS", "1");
    let mut peer = Peer::stdio(command);
    peer.initialize(json!({ "cwd": home.work() })).await;
    peer.send_prompt("s", "hello").await;
    peer.event("assistant/chunk").await;
    peer.leave_unread();
    peer.finish().await;
}

#[tokio::test]
async fn a_missing_key_is_told_by_the_turn_under_the_sdk_profile() {
    let home = Home::new();
    let mut peer = Peer::stdio(sdk(&home, &[]));
    let bound = peer.initialize(json!({ "cwd": home.work() })).await;
    assert_eq!(bound["route"]["provider"], "deepseek-official", "never replaced: {bound}");
    let id = peer.send_prompt("s", "hello").await;
    peer.reply(id).await;
    let end = peer.event("turn/end").await;
    assert_eq!(end["event"]["data"]["reason"]["error"]["code"], "MISSING_CREDENTIAL", "{end}");
    peer.leave_unread();
    peer.finish().await;
}

#[tokio::test]
async fn the_harness_variable_sets_the_permission_mode() {
    for mode in ["read-only", "workspace-write", "danger-full-access"] {
        let home = home("");
        let mut command = sdk(&home, &[]);
        command.env("DSH_PERMISSION_MODE", mode);
        let mut peer = Peer::stdio(command);
        peer.initialize(json!({ "cwd": home.work() })).await;
        peer.send_prompt("s", "hello").await;
        let preset = peer.event("permission/preset").await;
        assert_eq!(preset["event"]["data"]["preset"], mode);
        peer.leave_unread();
        peer.finish().await;
    }
    let home = home("");
    let mut command = sdk(&home, &[]);
    command.env("DSH_PERMISSION_MODE", "yolo");
    let ran = finish(command, b"").await.expect_code(78);
    assert!(ran.stderr.contains("DSH_PERMISSION_MODE"), "{}", ran.stderr);
}

#[tokio::test]
async fn patches_are_ignored_with_a_line_each_on_stderr() {
    let home = home("");
    let mut command = sdk(&home, &["--patch", "one.js", "--patch", "two.js"]);
    command.stdin(std::process::Stdio::piped());
    let ran = finish(command, initialize(&home).as_bytes()).await.expect_code(0);
    assert_eq!(ran.json_lines().len(), 1, "{}", ran.stdout);
    for patch in ["one.js", "two.js"] {
        assert!(
            ran.stderr.lines().any(|line| line.contains(patch) && line.contains("ignored")),
            "{}",
            ran.stderr
        );
    }
}
