//! What a daemon withstands: no descriptors, nobody who reads its log, clients that vanish, standing still.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{ANSWER, STALL};
use crate::support::{Daemon, Home, Peer, within};

/// Writes slowly enough that its reader can leave in the middle.
const TRICKLE: &str = r#"{"prompt":"trickle","parts":[{"text":["word "],"repeat":200,"delayMs":2}]}"#;

fn descriptors(pid: i32) -> usize {
    fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).unwrap().count()
}

/// Processor time of a process so far, in ticks of the kernel (a hundredth of a second).
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name may hold anything; what follows its parenthesis does not.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn limit_descriptors(pid: i32, max: u64) {
    let limit = Rlimit { current: Some(max), maximum: Some(max) };
    rustix::process::prlimit(Pid::from_raw(pid), Resource::Nofile, limit).unwrap();
}

/// Accepting failed with EMFILE in a loop without a pause, or ended the accept loop for good.
#[tokio::test]
async fn without_descriptors_a_daemon_neither_spins_nor_goes_deaf() {
    let daemon = Daemon::scripted(&[ANSWER], "[limits]\nconnections_per_uid = 1000");
    let mut early = daemon.peer().await;
    limit_descriptors(daemon.pid(), u64::try_from(descriptors(daemon.pid())).unwrap() + 8);
    let mut idle = Vec::new();
    for _ in 0..200 {
        // The backlog takes them whether they are accepted or not.
        idle.push(within("connect", UnixStream::connect(daemon.home().socket())).await.unwrap());
    }
    daemon.wait_for_line("cannot accept connections now");
    let before = ticks(daemon.pid());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let spent = ticks(daemon.pid()) - before;
    assert!(spent < 100, "{spent} ticks of processor time in two idle seconds");
    early.call("server/ping", json!({})).await;
    drop(idle);
    // As long as descriptors are short, whoever waits is closed instead of left hanging.
    within("a connection that is served", async {
        loop {
            let mut late = UnixStream::connect(daemon.home().socket()).await.unwrap();
            let ping = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/ping\"}\n";
            if late.write_all(ping).await.is_ok() && late.read_u8().await.is_ok() {
                return;
            }
        }
    })
    .await;
    let said = daemon.stderr().matches("cannot accept connections now").count();
    assert!(said <= 2, "said {said} times");
}

/// A parent that does not drain our stderr once stopped the whole program in a log line.
#[tokio::test]
async fn a_full_stderr_stops_nobody() {
    let (_unread, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let mut command = home.dshd(["-vv", "stdio"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).stderr(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut peer = Peer::over(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    peer.initialize(json!({ "cwd": home.work() })).await;
    for _ in 0..20 {
        assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
        peer.take_aside();
    }
    peer.call("shutdown", json!({})).await;
    peer.leave_unread();
    let ended = within("the end", child.wait()).await.unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn at_the_highest_log_level_stdout_carries_frames_alone() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let mut command = home.dshd(["-vv", "stdio"]);
    command.env("DSHD_LOG", "trace").env("RUST_LOG", "trace").stdin(std::process::Stdio::piped());
    let input = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "cwd": home.work() } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": {
            "sessionId": "s", "contentBlocks": [{ "type": "text", "text": "hello" }] } }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "session/wait", "params": { "sessionId": "s" } }),
        json!("not a request"),
    ];
    let input = input.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n") + "\n";
    let ran = crate::support::finish(command, input.as_bytes()).await.expect_code(0);
    let frames = ran.json_lines();
    for id in 1..=3 {
        assert_eq!(
            frames.iter().filter(|frame| frame["id"] == id).count(),
            1,
            "one reply to {id}: {frames:?}"
        );
    }
    assert!(frames.iter().all(|frame| frame["jsonrpc"] == "2.0"));
    assert!(ran.stderr.contains("DEBUG"), "the level was meant: {}", ran.stderr);
    assert!(!ran.stderr.contains("hello"), "a log has no text of prompts: {}", ran.stderr);
}

#[tokio::test]
async fn two_hundred_clients_that_vanish_leave_no_descriptor_behind() {
    let daemon = Daemon::scripted(&[TRICKLE, ANSWER], "");
    let mut steady = daemon.peer().await;
    assert_eq!(steady.prompt("steady", "hello").await["status"], "ok");
    steady.take_aside();
    let before = descriptors(daemon.pid());
    for at in 0..200 {
        let mut peer = daemon.peer().await;
        peer.send(
            "session/prompt",
            json!({
                "sessionId": format!("s{}", at % 5),
                "contentBlocks": [{ "type": "text", "text": "trickle" }],
                "whenBusy": if at % 2 == 0 { "reject" } else { "queue" },
            }),
        )
        .await;
        if at % 3 == 0 {
            // It is answered or told something, and goes in the middle of it.
            peer.message().await;
        }
        peer.leave_unread();
        drop(peer);
    }
    for at in 0..5 {
        steady.call("session/close", json!({ "sessionId": format!("s{at}") })).await;
    }
    assert_eq!(steady.prompt("steady", "hello").await["status"], "ok");
    steady.take_aside();
    within("all descriptors closed", async {
        while descriptors(daemon.pid()) > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let status = steady.call("server/status", json!({})).await;
    assert_eq!(status["counts"]["connections"], 1, "{status}");
    steady.finish().await;
    assert!(daemon.stop().await.success());
}

/// A watchdog by the clock took a process that had been stopped, or a machine that had slept, for wedged.
#[tokio::test]
async fn standing_still_for_a_while_is_no_reason_to_end() {
    let mut daemon = Daemon::scripted(&[STALL, ANSWER], "");
    let mut peer = daemon.peer().await;
    for _ in 0..2 {
        daemon.signal(Signal::STOP);
        tokio::time::sleep(Duration::from_millis(2500)).await;
        daemon.signal(Signal::CONT);
        assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    }
    peer.take_aside();
    daemon.signal(Signal::TERM);
    peer.leave_unread();
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
}

#[tokio::test]
async fn a_ping_is_answered_before_anything_else_is_and_while_a_turn_hangs() {
    let daemon = Daemon::scripted(&[STALL], "");
    let mut peer = daemon.connect().await;
    assert_eq!(peer.call("server/ping", json!({})).await, json!({}));
    peer.initialize(json!({ "cwd": daemon.home().work() })).await;
    let prompt = peer.send_prompt("s", "stall").await;
    peer.event("assistant/chunk").await;
    assert_eq!(peer.call("server/ping", json!({})).await, json!({}));
    assert_eq!(peer.call("session/cancel", json!({ "sessionId": "s" })).await, json!({ "cancelled": true }));
    assert_eq!(peer.reply(prompt).await["result"]["status"], "aborted");
    peer.take_aside();
}
