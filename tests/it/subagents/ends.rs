//! Each way a child can end × each way its parent can: exactly one end a child is told, and nothing is left running.

use serde_json::{Value, json};

use super::{child_of, daemon, delegating, prompt_all};
use crate::support::{Daemon, assert_dense, of_type};

/// A child that works until it is ended.
const WORKS: &str =
    r#"[{"text":"working"},{"tool":"bash","arguments":{"command":"echo $$ > pid; exec sleep 600"}}]"#;

/// One `subagent/finished` for each `subagent/started`, and its stop reason.
#[track_caller]
fn the_end(log: &[Value]) -> Value {
    assert_dense(log);
    let started = of_type(log, "subagent/started");
    let finished = of_type(log, "subagent/finished");
    assert_eq!((started.len(), finished.len()), (1, 1), "{log:?}");
    assert_eq!(finished[0]["data"]["childSessionId"], started[0]["data"]["childSessionId"]);
    let end = finished[0]["seq"].as_u64();
    assert!(of_type(log, "tool/result")[0]["seq"].as_u64() > end, "the result comes after the child's end");
    assert!(of_type(log, "turn/end")[0]["seq"].as_u64() > end, "a parent is idle when its children are");
    finished[0]["data"].clone()
}

/// Waits until the child's command runs; its process id.
async fn working(daemon: &Daemon) -> i32 {
    let path = daemon.home().work().join("pid");
    crate::support::within("the child's command", async {
        loop {
            match std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()) {
                Some(pid) => return pid,
                None => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

#[track_caller]
fn assert_gone(pid: i32) {
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is still there");
}

#[tokio::test]
async fn however_a_child_ends_by_itself_its_parent_is_told_once_and_goes_on() {
    let cases = [
        (r#"{"prompt":"find the answer","parts":[{"text":"42"}]}"#, "completed", "ok", "42"),
        (
            r#"{"prompt":"find the answer","parts":[{"text":"4"}],"finish":"length"}"#,
            "max-tokens",
            "error",
            "Error: the subagent ended early: its model reached the output limit\nIt said last:\n4",
        ),
        (
            r#"{"prompt":"find the answer","parts":[{"text":"no"}],"finish":"content_filter"}"#,
            "refusal",
            "error",
            "Error: the subagent ended early: its provider's filter stopped it\nIt said last:\nno",
        ),
        (
            r#"{"prompt":"find the answer","parts":[{"fail":"AUTH","message":"bad key"}]}"#,
            "error",
            "error",
            "Error: the subagent ended early: bad key",
        ),
    ];
    for (line, stop, status, text) in cases {
        let mut lines = delegating("[]");
        lines[0] = line.to_owned();
        let daemon = daemon(&lines, "");
        let mut peer = daemon.peer().await;
        let (messages, reply) = prompt_all(&mut peer, "p", "delegate").await;
        assert_eq!(reply["result"]["status"], "ok", "{stop}");
        let log = daemon.home().logged("p");
        let end = the_end(&log);
        assert_eq!((end["stopReason"].as_str(), end["status"].as_str()), (Some(stop), Some(status)));
        let result = of_type(&log, "tool/result")[0];
        assert_eq!(result["data"]["message"]["content"][0]["text"], text);
        assert_eq!(result["data"]["message"]["isError"], status != "ok");
        let childs = daemon.home().logged(&child_of(&messages));
        assert_eq!(end["childLastSeq"], childs.len() - 1);
        assert_eq!(end["childEpoch"], childs[0]["data"]["epoch"]);
    }
}

#[tokio::test]
async fn a_child_that_can_not_be_made_is_an_error_to_the_model_and_has_no_end() {
    let daemon = daemon(&delegating(r#"[{"text":"42"}]"#), "[limits]\nloaded_sessions = 1\n");
    let mut peer = daemon.peer().await;
    let (_, reply) = prompt_all(&mut peer, "p", "delegate").await;
    assert_eq!(reply["result"]["status"], "ok");
    let log = daemon.home().logged("p");
    let result = of_type(&log, "tool/result")[0];
    let text = result["data"]["message"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Error: the subagent could not be started: 1 sessions are loaded"), "{text}");
    assert!(of_type(&log, "subagent/started").is_empty() && of_type(&log, "subagent/finished").is_empty());
}

#[tokio::test]
async fn a_child_that_a_client_ends_is_an_early_end_for_its_parent() {
    for method in ["session/cancel", "session/close"] {
        let daemon = daemon(&delegating(WORKS), "");
        let mut peer = daemon.peer().await;
        let id = peer.send_prompt("p", "delegate").await;
        let started = peer.notification("subagent.started").await;
        let pid = working(&daemon).await;
        let child = started["childSessionId"].clone();
        peer.call(method, json!({ "sessionId": child })).await;
        assert_gone(pid);
        assert_eq!(peer.reply(id).await["result"]["status"], "ok", "{method}");
        peer.take_aside();
        let log = daemon.home().logged("p");
        assert_eq!(the_end(&log)["stopReason"], "aborted", "{method}");
        assert_eq!(of_type(&log, "tool/result")[0]["data"]["error"]["code"], "ABORTED");
    }
}

#[tokio::test]
async fn cancelling_or_closing_a_parent_ends_its_child_first() {
    for (method, cause) in [("session/cancel", "user"), ("session/close", "disposed")] {
        let daemon = daemon(&delegating(WORKS), "");
        let mut peer = daemon.peer().await;
        let id = peer.send_prompt("p", "delegate").await;
        let started = peer.notification("subagent.started").await;
        let pid = working(&daemon).await;
        let cancel = peer.send(method, json!({ "sessionId": "p" })).await;
        peer.reply(cancel).await;
        let told = peer.take_aside();
        assert_gone(pid);
        // All of it came before the answer.
        let child = started["childSessionId"].as_str().unwrap();
        let ends: Vec<(&str, &Value)> = (told.iter())
            .filter(|message| message["params"]["event"]["type"] == "turn/end")
            .map(|message| {
                let params = &message["params"];
                (params["sessionId"].as_str().unwrap(), &params["event"]["data"]["reason"]["reason"]["kind"])
            })
            .collect();
        assert_eq!(ends, [(child, &json!("parent")), ("p", &json!(cause))], "{method}");
        let _ = id;
        peer.leave_unread();
        let log = daemon.home().logged("p");
        assert_eq!(the_end(&log)["stopReason"], "aborted");
        assert_eq!(of_type(&log, "tool/result")[0]["data"]["error"]["code"], "ABORTED");
    }
}

#[tokio::test]
async fn a_daemon_that_stops_ends_parents_and_children() {
    let daemon = daemon(&delegating(WORKS), "[shutdown]\ndrain_timeout = \"50ms\"\n");
    let mut peer = daemon.peer().await;
    peer.send_prompt("p", "delegate").await;
    let started = peer.notification("subagent.started").await;
    let pid = working(&daemon).await;
    let home = daemon.home().clone();
    assert!(daemon.stop().await.success());
    assert_gone(pid);
    peer.leave_unread();
    assert_eq!(the_end(&home.logged("p"))["stopReason"], "aborted");
    let childs = home.logged(started["childSessionId"].as_str().unwrap());
    assert_eq!(of_type(&childs, "turn/end")[0]["data"]["reason"]["kind"], "aborted");
}

/// S10, S12: after a crash nothing looks alive.
#[tokio::test]
async fn after_a_crash_a_childs_end_is_told_once_at_the_next_open() {
    let daemon = daemon(&delegating(WORKS), "");
    let mut peer = daemon.peer().await;
    peer.send_prompt("p", "delegate").await;
    let started = peer.notification("subagent.started").await;
    let pid = working(&daemon).await;
    peer.leave_unread();
    drop(peer);
    let home = daemon.home().clone();
    daemon.kill().await;
    // Who kills the daemon leaves its children to themselves.
    let _ = rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    );
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    assert_eq!(peer.prompt("p", "anything").await["status"], "ok");
    let told = peer.take_aside();
    assert!(told.iter().any(|message| message["method"] == "subagent.finished"));
    let log = home.logged("p");
    let end = the_end(&log);
    assert_eq!(end["stopReason"], "aborted");
    assert!(end.get("childLastSeq").is_none());
    assert_eq!(of_type(&log, "tool/result")[0]["data"]["error"]["code"], "TOOL_OUTCOME_UNKNOWN");
    // Replayed from the start, the child's events come before its end, though nobody knows how many there were.
    let mut late = daemon.peer().await;
    late.call("session/subscribe", json!({ "sessionId": "p", "since": -1 })).await;
    late.event("turn/end").await;
    let told = late.take_aside();
    let finished = told.iter().position(|message| message["method"] == "subagent.finished").unwrap();
    let of_child = |message: &Value| message["params"]["sessionId"] == started["childSessionId"];
    let events = |message: &Value| message["method"] == "session.event";
    let last = told.iter().rposition(|message| of_child(message) && events(message)).unwrap();
    assert!(last < finished, "{last} {finished}");
    late.leave_unread();
    // The child can be gone on with, too.
    let child = started["childSessionId"].as_str().unwrap();
    assert_eq!(peer.prompt(child, "anything").await["status"], "ok");
    peer.leave_unread();
    let log = home.logged(child);
    assert_eq!(of_type(&log, "turn/end")[0]["data"]["reason"]["kind"], "interrupted");
    let header = of_type(&log, "request/header").pop().unwrap();
    let tools = header["data"]["header"]["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["name"] != "subagent"), "a child stays one");
}

/// A job's end would have woken a child that nobody waits for any more.
#[tokio::test]
async fn what_a_child_left_in_the_background_ends_with_it() {
    let lines = delegating(
        r#"[{"tool":"bash","id":"job","arguments":{"command":"echo $$ > pid; exec sleep 600","run_in_background":true}},
            {"tool":"bash","arguments":{"command":"until [ -s pid ]; do sleep 0.01; done"}}]"#,
    );
    let daemon = daemon(&lines.iter().map(|line| line.replace('\n', "")).collect::<Vec<_>>(), "");
    let mut peer = daemon.peer().await;
    let (messages, reply) = prompt_all(&mut peer, "p", "delegate").await;
    assert_eq!(reply["result"]["status"], "ok");
    assert_gone(working(&daemon).await);
    let childs = daemon.home().logged(&child_of(&messages));
    let settled = of_type(&childs, "job/settled");
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0]["data"]["status"], "killed");
    assert_eq!(of_type(&childs, "turn/start").len(), 1, "nobody woke it");
    let end = the_end(&daemon.home().logged("p"));
    assert_eq!(end["childLastSeq"], childs.len() - 1, "the job's end is part of the child's story");
}
