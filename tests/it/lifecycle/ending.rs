//! The end: signals, `server/drain`, running turns, second thoughts.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{ANSWER, STALL, WAIT_FOR_GO};
use crate::support::{Daemon, Peer, assert_dense, of_type, within};

/// A peer whose prompt runs: the request's id is returned once the turn has begun in earnest.
async fn prompting(daemon: &Daemon, session: &str, text: &str, begun: &str) -> (Peer, u64) {
    let mut peer = daemon.peer().await;
    let id = peer.send_prompt(session, text).await;
    peer.event(begun).await;
    (peer, id)
}

fn assert_disposed(reply: &Value) {
    assert_eq!(reply["result"]["status"], "aborted", "{reply}");
    assert_eq!(
        reply["result"]["reason"],
        json!({ "kind": "aborted", "reason": { "kind": "disposed" } }),
        "{reply}"
    );
}

/// The daemon's last words about a session, then the end of the stream.
async fn assert_closed(peer: &mut Peer) {
    let closed = peer.notification("session.closed").await;
    assert_eq!(closed["cause"], "shutting_down", "{closed}");
}

/// Makes sure that the events which the peer saw are in the log as they were told, and returns the log.
fn assert_logged(peer: &mut Peer, daemon_home: &crate::support::Home, session: &str) -> Vec<Value> {
    let logged = daemon_home.logged(session);
    assert_dense(&logged);
    for message in peer.take_aside() {
        let event = &message["params"]["event"];
        let Some(seq) = event["seq"].as_u64() else { continue };
        assert_eq!(logged[usize::try_from(seq).unwrap()]["data"], event["data"], "event {seq}");
    }
    logged
}

async fn gone(pid: &str) {
    let process = Path::new("/proc").join(pid);
    within("the command's end", async {
        while process.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_idle_daemon_ends_well_by_either_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::scripted(&[ANSWER], "");
        let mut peer = daemon.peer().await;
        daemon.signal(signal);
        let notice = peer.notification("server.draining").await;
        assert_eq!(notice["deadlineMs"], 30_000);
        let reconnect = notice["reconnectAfterMs"].as_u64().unwrap();
        assert!((500..=5000).contains(&reconnect), "{notice}");
        peer.expect_eof().await;
        assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
    }
}

#[tokio::test]
async fn a_turn_that_ends_in_time_completes_and_new_prompts_are_refused_meanwhile() {
    let mut daemon = Daemon::scripted(&[WAIT_FOR_GO, ANSWER], "");
    let (mut peer, id) = prompting(&daemon, "s", "go", "tool/call").await;
    daemon.signal(Signal::TERM);
    peer.notification("server.draining").await;
    let blocks = json!([{ "type": "text", "text": "late" }]);
    let refused = peer.refused("session/prompt", json!({ "sessionId": "t", "contentBlocks": blocks })).await;
    assert_eq!(refused["code"], -32000, "{refused}");
    assert_eq!(refused["data"]["kind"], "shutting_down", "{refused}");
    let status = peer.call("server/status", json!({})).await;
    assert_eq!(status["phase"], "draining");
    fs::write(daemon.home().work().join("go"), "").unwrap();
    let reply = peer.reply(id).await;
    assert_eq!(reply["result"]["status"], "ok", "{reply}");
    assert_closed(&mut peer).await;
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
    let logged = assert_logged(&mut peer, daemon.home(), "s");
    assert_eq!(logged.last().unwrap()["data"]["reason"]["kind"], "completed");
    assert!(!daemon.home().log_path("t").exists(), "the refused prompt left nothing");
}

#[tokio::test]
async fn a_turn_that_does_not_end_in_time_is_disposed_of_and_its_text_is_kept() {
    let tables = "[shutdown]\ndrain_timeout = \"50ms\"";
    let mut daemon = Daemon::scripted(&[STALL], tables);
    let (mut peer, id) = prompting(&daemon, "s", "stall", "assistant/chunk").await;
    daemon.signal(Signal::TERM);
    let reply = peer.reply(id).await;
    assert_disposed(&reply);
    let draining = peer.notification("server.draining").await;
    assert_eq!(draining["deadlineMs"], 50);
    assert_closed(&mut peer).await;
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
    let logged = assert_logged(&mut peer, daemon.home(), "s");
    let said = of_type(&logged, "assistant/message");
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["data"]["interrupted"], true);
    assert_eq!(said[0]["data"]["message"]["content"][0]["text"], "on it");
    assert_eq!(logged.last().unwrap()["type"], "turn/end");
}

#[tokio::test]
async fn a_running_command_is_ended_with_its_turn() {
    let command = "{ sleep 600 & } ; echo $$ > pids; echo $! >> pids; sleep 600";
    let script = json!({ "step": 1, "parts": [{ "tool": "bash", "arguments": { "command": command } }] });
    let tables = "[shutdown]\ndrain_timeout = \"50ms\"\ncancel_grace = \"500ms\"";
    let mut daemon = Daemon::scripted(&[&script.to_string(), ANSWER], tables);
    let (mut peer, id) = prompting(&daemon, "s", "run", "tool/call").await;
    let pids = daemon.home().work().join("pids");
    within("the command", async {
        while fs::read_to_string(&pids).map_or(0, |text| text.lines().count()) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    daemon.signal(Signal::TERM);
    assert_disposed(&peer.reply(id).await);
    assert_closed(&mut peer).await;
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
    for pid in fs::read_to_string(&pids).unwrap().lines() {
        gone(pid).await;
    }
    let logged = assert_logged(&mut peer, daemon.home(), "s");
    assert_eq!(of_type(&logged, "tool/result").len(), 1, "the call has its result");
    let end = logged.last().unwrap();
    assert_eq!(end["data"]["reason"], json!({ "kind": "aborted", "reason": { "kind": "disposed" } }));
}

#[tokio::test]
async fn a_second_signal_ends_the_waiting() {
    let tables = "[shutdown]\ndrain_timeout = \"1h\"";
    let mut daemon = Daemon::scripted(&[STALL], tables);
    let (mut peer, id) = prompting(&daemon, "s", "stall", "assistant/chunk").await;
    daemon.signal(Signal::TERM);
    peer.notification("server.draining").await;
    daemon.signal(Signal::INT);
    assert_disposed(&peer.reply(id).await);
    peer.leave_unread();
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
    assert_eq!(daemon.home().logged("s").last().unwrap()["type"], "turn/end");
}

#[tokio::test]
async fn a_drain_that_a_client_asks_for_is_told_to_all_and_keeps_its_own_deadline() {
    let mut daemon = Daemon::scripted(&[STALL], "[shutdown]\ndrain_timeout = \"1h\"");
    let (mut peer, id) = prompting(&daemon, "s", "stall", "assistant/chunk").await;
    let mut other = daemon.peer().await;
    assert_eq!(other.call("server/drain", json!({ "deadlineMs": 40 })).await, json!({}));
    for told in [&mut peer, &mut other] {
        assert_eq!(told.notification("server.draining").await["deadlineMs"], 40);
    }
    assert_disposed(&peer.reply(id).await);
    peer.leave_unread();
    other.expect_eof().await;
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
}

#[tokio::test]
async fn a_queued_prompt_is_answered_with_its_message_and_stays_in_the_log() {
    let mut daemon = Daemon::scripted(&[STALL], "[shutdown]\ndrain_timeout = \"50ms\"");
    let (mut peer, id) = prompting(&daemon, "s", "stall", "assistant/chunk").await;
    peer.take_aside();
    let blocks = json!([{ "type": "text", "text": "queued" }]);
    let prompt = json!({ "sessionId": "s", "contentBlocks": blocks, "whenBusy": "queue" });
    let queued = peer.send("session/prompt", prompt).await;
    let inserted = peer.event("agent/inbox/spliced").await;
    let message = inserted["event"]["data"]["inserted"][0]["id"].clone();
    daemon.signal(Signal::TERM);
    let reply = peer.reply(queued).await;
    assert_eq!(reply["error"]["data"]["kind"], "shutting_down", "{reply}");
    assert_eq!(reply["error"]["data"]["messageId"], message, "{reply}");
    assert_disposed(&peer.reply(id).await);
    peer.leave_unread();
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
    let logged = daemon.home().logged("s");
    let claims: Vec<_> = of_type(&logged, "agent/inbox/spliced")
        .into_iter()
        .filter(|event| event["data"]["removedCount"].is_u64())
        .collect();
    assert_eq!(claims.len(), 1, "only the running prompt was claimed: {claims:?}");
}

#[tokio::test]
async fn a_daemon_without_clients_and_turns_exits_when_it_may() {
    let home = crate::support::Home::new();
    home.scripted(&[ANSWER], "");
    let mut daemon = Daemon::start_in(&home, ["--idle-exit", "300ms"]);
    let mut peer = daemon.peer().await;
    // Longer than it may be idle: a client is there, so it is not.
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    peer.take_aside();
    peer.finish().await;
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
    assert!(!home.socket().exists());
}
