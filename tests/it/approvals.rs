//! Approvals: what a call asks for beyond the session's mode, who may answer, and what becomes of it when nobody does.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Peer, Terminal, of_type};

/// A command that wants out of the sandbox, then the end.
fn escalating(command: &str) -> Vec<String> {
    let call = json!({
        "step": 1,
        "parts": [{ "tool": "bash", "id": "c1", "arguments": {
            "command": command, "sandbox_permissions": "require_escalated", "justification": "because of the test",
        } }],
    });
    vec![call.to_string(), r#"{"parts":[{"text":"done"}]}"#.to_owned()]
}

fn daemon(lines: &[String], tables: &str) -> Daemon {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    Daemon::scripted(&lines, tables)
}

/// A peer that can answer.
async fn answerer(daemon: &Daemon) -> Peer {
    let mut peer = daemon.connect().await;
    let cwd = daemon.home().work();
    peer.initialize(json!({ "cwd": cwd, "approvals": true, "deltas": false, "client": { "name": "desk", "version": "1" } }))
        .await;
    peer
}

async fn asked(peer: &mut Peer) -> Value {
    peer.event("approval/asked").await["event"]["data"].clone()
}

fn answer(session: &str, asked: &Value, outcome: &str) -> Value {
    json!({ "sessionId": session, "approvalId": asked["id"], "outcome": outcome })
}

fn result_text(events: &[Value]) -> String {
    let result = of_type(events, "tool/result")[0];
    result["data"]["message"]["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_command_outside_the_sandbox_runs_when_it_was_allowed_and_all_hear_who_did() {
    let daemon = daemon(&escalating("echo out"), "");
    let mut peer = answerer(&daemon).await;
    let mut other = answerer(&daemon).await;
    let id = peer.send_prompt("s", "go").await;
    let asked = asked(&mut peer).await;
    assert_eq!(
        (&asked["toolName"], &asked["callId"], &asked["command"]),
        (&json!("bash"), &json!("c1"), &json!("echo out"))
    );
    assert!(asked["reason"].as_str().unwrap().contains("because of the test"), "{asked}");
    assert!(asked["deadline"].as_u64().unwrap() > 1_700_000_000_000);
    // Who comes late is shown the same question; who does not follow the session can't answer it.
    let refused = other.refused("session/approval/answer", answer("s", &asked, "allow_once")).await;
    assert_eq!(refused["data"]["kind"], "invalid_request");
    let followed = other.call("session/subscribe", json!({ "sessionId": "s" })).await;
    assert_eq!(followed["approvals"], json!([{ "sessionId": "s", "approval": asked }]));
    let listed = other.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["approvals"], 1);
    other.call("session/approval/answer", answer("s", &asked, "allow_once")).await;
    let reply = peer.reply(id).await;
    assert_eq!(reply["result"]["status"], "ok");
    let late = peer.refused("session/approval/answer", answer("s", &asked, "reject")).await;
    assert_eq!(late["data"]["kind"], "invalid_request");
    let events = daemon.home().logged("s");
    assert_eq!(
        of_type(&events, "approval/decided")[0]["data"],
        json!({ "id": asked["id"], "outcome": "allowed-once", "by": "desk" })
    );
    assert!(result_text(&events).starts_with("out\n"), "{}", result_text(&events));
    let at = |kind: &str| of_type(&events, kind)[0]["seq"].as_u64().unwrap();
    assert!(at("approval/asked") < at("approval/decided") && at("approval/decided") < at("tool/call"));
    for mut peer in [peer, other] {
        peer.leave_unread();
        peer.finish().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_rejected_does_not_run_and_the_model_is_told_by_whom() {
    let daemon = daemon(&escalating("touch made"), "");
    let mut peer = answerer(&daemon).await;
    let id = peer.send_prompt("s", "go").await;
    let asked = asked(&mut peer).await;
    peer.call("session/approval/answer", answer("s", &asked, "reject")).await;
    assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    let events = daemon.home().logged("s");
    assert!(result_text(&events).contains("rejected it"), "{}", result_text(&events));
    assert_eq!(of_type(&events, "tool/result")[0]["data"]["error"]["code"], "TOOL_DENIED");
    assert!(of_type(&events, "tool/call").is_empty());
    assert!(!daemon.home().work().join("made").exists());
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn with_nobody_who_can_answer_it_is_decided_at_once() {
    // Without approvals:true in initialize, as official clients are.
    let daemon = daemon(&escalating("touch made"), "");
    let mut peer = daemon.peer_without_deltas().await;
    assert_eq!(peer.prompt("s", "go").await["status"], "ok");
    let events = daemon.home().logged("s");
    assert_eq!(of_type(&events, "approval/decided")[0]["data"]["outcome"], "unavailable");
    assert!(result_text(&events).contains("nobody is connected who could allow it"));
    assert!(!daemon.home().work().join("made").exists());
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_pending_one_survives_a_disconnect_and_is_answered_from_another_terminal() {
    let daemon = daemon(&escalating("echo out"), "");
    let mut peer = answerer(&daemon).await;
    peer.send_prompt("s", "go").await;
    let first = asked(&mut peer).await;
    peer.leave_unread();
    drop(peer);
    let home = daemon.home();
    let listed = home.run(["approve", "--json"]).await.expect_code(0).json();
    assert_eq!(listed["approvals"][0]["approval"]["id"], first["id"]);
    let sessions = home.run(["sessions"]).await.expect_code(0).stdout;
    assert!(sessions.contains("approval?"), "{sessions}");
    home.run(["approve", "s"]).await.expect_code(0);
    let mut peer = daemon.peer_without_deltas().await;
    peer.call("session/wait", json!({ "sessionId": "s" })).await;
    assert!(result_text(&home.logged("s")).starts_with("out\n"));
    home.run(["reject", "s"]).await.expect_code(1);
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_cancel_ends_what_waits_and_the_session_goes_on() {
    let daemon = daemon(&escalating("echo out"), "");
    let mut peer = answerer(&daemon).await;
    let id = peer.send_prompt("s", "go").await;
    let asked = asked(&mut peer).await;
    let cancelled = peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(peer.reply(id).await["result"]["status"], "aborted");
    let events = daemon.home().logged("s");
    assert_eq!(
        of_type(&events, "approval/decided")[0]["data"],
        json!({ "id": asked["id"], "outcome": "cancelled" })
    );
    let refused = peer.refused("session/approval/answer", answer("s", &asked, "allow_once")).await;
    assert_eq!(refused["data"]["kind"], "invalid_request");
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn what_nobody_answers_in_time_is_rejected() {
    let daemon = daemon(&escalating("touch made"), "[sessions]\napproval_timeout = \"200ms\"\n");
    let mut peer = answerer(&daemon).await;
    assert_eq!(peer.prompt("s", "go").await["status"], "ok");
    let events = daemon.home().logged("s");
    let decided = of_type(&events, "approval/decided")[0];
    assert_eq!(decided["data"]["outcome"], "rejected");
    assert!(decided["data"].get("by").is_none());
    assert!(result_text(&events).contains("did not answer in time"));
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_rule_allows_the_same_again_until_it_is_revoked_also_after_a_restart() {
    let home = Home::new();
    let lines = escalating("echo out");
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    home.scripted(&lines, "");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = answerer(&daemon).await;
    let id = peer.send_prompt("s", "go").await;
    let first = asked(&mut peer).await;
    peer.call("session/approval/answer", answer("s", &first, "allow_session")).await;
    peer.reply(id).await;
    peer.leave_unread();
    peer.finish().await;
    daemon.kill().await;
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    // Nobody is asked any more.
    let mut peer = daemon.peer_without_deltas().await;
    assert_eq!(peer.prompt("s", "again").await["status"], "ok");
    let events = home.logged("s");
    assert_eq!(of_type(&events, "approval/asked").len(), 1);
    assert_eq!(of_type(&events, "tool/call").len(), 2);
    let rules = peer.call("session/approval/rules", json!({ "sessionId": "s" })).await;
    assert_eq!(rules["rules"][0]["id"], first["id"]);
    let revoke = json!({ "sessionId": "s", "revoke": first["id"] });
    assert_eq!(peer.call("session/approval/rules", revoke.clone()).await["rules"], json!([]));
    assert_eq!(peer.refused("session/approval/rules", revoke).await["data"]["kind"], "invalid_request");
    peer.prompt("s", "and again").await;
    assert_eq!(of_type(&home.logged("s"), "approval/asked").len(), 2);
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_crash_while_one_waits_cancels_it_once_and_the_call_has_not_run() {
    let home = Home::new();
    let lines = escalating("touch made");
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    home.scripted(&lines, "");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = answerer(&daemon).await;
    peer.send_prompt("s", "go").await;
    let asked = asked(&mut peer).await;
    peer.leave_unread();
    daemon.kill().await;
    drop(peer);
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer_without_deltas().await;
    peer.call("session/resume", json!({ "sessionId": "s" })).await;
    let events = home.logged("s");
    let decided = of_type(&events, "approval/decided");
    assert_eq!(decided.len(), 1);
    assert_eq!(decided[0]["data"], json!({ "id": asked["id"], "outcome": "cancelled" }));
    assert_eq!(of_type(&events, "tool/result")[0]["data"]["error"]["code"], "TOOL_NOT_STARTED");
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_outside_the_workspace_is_shown_as_a_diff_and_written_when_allowed() {
    let home = Home::new();
    let outside = home.path("outside.txt");
    let lines = [
        json!({ "step": 1, "parts": [{ "tool": "write", "arguments": { "file_path": outside, "content": "new\n" } }] }).to_string(),
        r#"{"parts":[{"text":"done"}]}"#.to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    home.scripted(&lines, "");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = answerer(&daemon).await;
    let id = peer.send_prompt("s", "go").await;
    let asked = asked(&mut peer).await;
    assert!(asked["diff"].as_str().unwrap().contains("\n+new\n"), "{asked}");
    assert!(!outside.exists());
    peer.call("session/approval/answer", answer("s", &asked, "allow_once")).await;
    peer.reply(id).await;
    assert_eq!(fs::read_to_string(&outside).unwrap(), "new\n");
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_subagents_question_is_answered_by_who_follows_its_parent() {
    let lines = [
        json!({ "prompt": "inner", "step": 1, "parts": [{ "tool": "bash", "arguments": {
            "command": "echo out", "sandbox_permissions": "require_escalated" } }] }).to_string(),
        json!({ "prompt": "inner", "parts": [{ "text": "inner done" }] }).to_string(),
        json!({ "step": 1, "parts": [{ "tool": "subagent", "arguments": { "description": "a part", "prompt": "inner" } }] }).to_string(),
        r#"{"parts":[{"text":"done"}]}"#.to_owned(),
    ];
    let daemon = daemon(&lines, "");
    let mut peer = answerer(&daemon).await;
    let id = peer.send_prompt("s", "go").await;
    let event = peer.take(|message| message["params"]["event"]["type"] == "approval/asked").await;
    let child = event["params"]["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(child, "s");
    let asked = event["params"]["event"]["data"].clone();
    // Who attaches to the parent alone is shown it, too.
    let mut other = answerer(&daemon).await;
    let followed = other.call("session/subscribe", json!({ "sessionId": "s" })).await;
    assert_eq!(followed["approvals"][0]["sessionId"], json!(child));
    peer.call("session/approval/answer", answer(&child, &asked, "allow_once")).await;
    assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    for mut peer in [peer, other] {
        peer.leave_unread();
        peer.finish().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_policy_of_never_asks_nobody() {
    let daemon = daemon(&escalating("touch made"), "[sessions]\napproval_policy = \"never\"\n");
    let mut peer = answerer(&daemon).await;
    assert_eq!(peer.prompt("s", "go").await["status"], "ok");
    let events = daemon.home().logged("s");
    assert_eq!(of_type(&events, "approval/policy")[0]["data"]["policy"], "never");
    assert!(of_type(&events, "approval/asked").is_empty());
    assert_eq!(of_type(&events, "tool/result")[0]["data"]["error"]["code"], "TOOL_DENIED");
    assert!(!daemon.home().work().join("made").exists());
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn attach_and_prompt_ask_in_the_terminal() {
    let daemon = daemon(&escalating("echo out"), "");
    let home = daemon.home();
    let mut attach = home.dshd(["attach", "s", "--create"]);
    attach.current_dir(home.work());
    let mut attached = Terminal::run(attach);
    attached.shows("session s · ").await;
    let mut prompt = home.dshd(["prompt", "-s", "s", "go"]);
    prompt.current_dir(home.work());
    let prompting = Terminal::run(prompt);
    for terminal in [&attached, &prompting] {
        terminal.shows("? bash: the command wants to run outside the sandbox").await;
        terminal.shows("y once · s this session · n reject").await;
    }
    attached.types("y");
    for terminal in [&attached, &prompting] {
        terminal.shows("allowed once").await;
    }
    let (status, _) = prompting.end().await;
    assert!(status.success());
    // Again, answered where it was prompted.
    let mut prompt = home.dshd(["prompt", "-s", "s", "go"]);
    prompt.current_dir(home.work());
    let mut prompting = Terminal::run(prompt);
    prompting.shows("y once · s this session · n reject").await;
    prompting.types("n");
    prompting.shows("rejected").await;
    let (status, _) = prompting.end().await;
    assert!(status.success(), "the model was told, and the turn ended well");
    attached.types("\u{4}");
    attached.end().await;
    assert_eq!(of_type(&home.logged("s"), "tool/call").len(), 1);
    daemon.stop().await;
}
