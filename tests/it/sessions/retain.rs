//! Retention: what is too old or too much goes, whole and longest idle first; what works stays.

use std::fmt::Write as _;
use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::leave;
use crate::support::{Daemon, Home, Peer};

const SCRIPT: [&str; 2] = [
    r#"{"prompt":"stall","parts":[{"text":["one "]},{"stall":true}]}"#,
    r#"{"parts":[{"text":["0123456789abcdef"],"repeat":4000}]}"#,
];

async fn sessions(peer: &mut Peer) -> Vec<String> {
    let listed = peer.call("session/list", json!({})).await;
    let ids = listed["sessions"].as_array().unwrap().iter();
    ids.map(|one| one["sessionId"].as_str().unwrap().to_owned()).collect()
}

/// Puts a session's events into the past; nobody may have it open.
fn age(home: &Home, session: &str, by_ms: u64) {
    let path = home.log_path(session);
    let text = fs::read_to_string(&path).unwrap();
    let mut aged = String::new();
    for line in text.lines() {
        let (json, _) = line.rsplit_once(",\"crc\":").unwrap();
        let mut event: Value = serde_json::from_str(&format!("{json}}}")).unwrap();
        let mut json = json.to_owned();
        for member in ["time", "createdAt"] {
            if let Some(time) = event[member].take().as_u64() {
                json = json.replacen(
                    &format!("\"{member}\":{time}"),
                    &format!("\"{member}\":{}", time - by_ms),
                    1,
                );
            }
        }
        let crc = crc32c::crc32c(json.as_bytes());
        writeln!(aged, "{json},\"crc\":\"{crc:08x}\"}}").unwrap();
    }
    fs::write(&path, aged).unwrap();
}

#[tokio::test]
async fn what_is_too_old_is_gone_after_a_start_and_its_followers_are_told_at_a_reload() {
    let home = Home::new();
    home.scripted(&SCRIPT, "");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    for session in ["oldest", "old", "new"] {
        peer.prompt(session, "x").await;
    }
    peer.take_aside();
    leave(peer).await;
    assert!(daemon.stop().await.success());
    age(&home, "oldest", 10 * 86_400_000);
    age(&home, "old", 5 * 86_400_000);
    home.scripted(&SCRIPT, "[sessions.retain]\nmax_age = \"7d\"");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    daemon.wait_for_line("deleted old sessions");
    let mut peer = daemon.peer().await;
    assert_eq!(sessions(&mut peer).await, ["new", "old"]);
    let error = peer.refused("session/read", json!({ "sessionId": "oldest" })).await;
    assert_eq!(error["data"]["kind"], "session_not_found");
    peer.call("session/subscribe", json!({ "sessionId": "old" })).await;
    home.scripted(&SCRIPT, "[sessions.retain]\nmax_age = \"3d\"");
    daemon.signal(Signal::HUP);
    let closed = peer.notification("session.closed").await;
    assert_eq!(closed, json!({ "sessionId": "old", "cause": "deleted" }));
    assert_eq!(sessions(&mut peer).await, ["new"]);
    leave(peer).await;
}

#[tokio::test]
async fn what_is_too_much_goes_longest_idle_first_and_what_works_stays() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    peer.send_prompt("works", "stall").await;
    peer.event("assistant/chunk").await;
    for session in ["a", "b", "c"] {
        peer.prompt(session, "x").await;
    }
    peer.take_aside();
    // A byte too much, so that one has to go.
    let size = |session| fs::metadata(daemon.home().log_path(session)).unwrap().len();
    let most = ["works", "a", "b", "c"].into_iter().map(size).sum::<u64>() - 1;
    daemon.home().scripted(&SCRIPT, &format!("[sessions.retain]\nmax_bytes = \"{most}B\""));
    daemon.signal(Signal::HUP);
    daemon.wait_for_line("deleted old sessions");
    assert_eq!(sessions(&mut peer).await, ["c", "b", "works"]);
    let closed = peer.notification("session.closed").await;
    assert_eq!(closed, json!({ "sessionId": "a", "cause": "deleted" }));
    peer.call("session/cancel", json!({ "sessionId": "works" })).await;
    peer.take_aside();
    peer.leave_unread();
    peer.finish().await;
}
