//! The end of a daemon that is full of clients and work.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::STALL;
use crate::support::{Daemon, assert_dense, of_type};

/// Followers of each running turn.
const FOLLOWERS: usize = 24;
const TURNS: usize = 20;

/// SIGTERM with 500 clients and 20 turns that would never end by themselves: each turn has its end in the log, and every
/// client that reads is told of it.
#[tokio::test]
async fn five_hundred_clients_and_twenty_turns_are_told_of_the_end() {
    let tables = "[limits]\nconnections_per_uid = 600\n[shutdown]\ndrain_timeout = \"1s\"\n";
    let mut daemon = Daemon::scripted(&[STALL], tables);
    let (mut prompting, mut following) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let session = format!("s{turn}");
        let mut peer = daemon.peer_without_deltas().await;
        let id = peer.send_prompt(&session, "stall").await;
        peer.event("step/start").await;
        prompting.push((peer, id));
        for _ in 0..FOLLOWERS {
            let mut peer = daemon.peer_without_deltas().await;
            peer.call("session/subscribe", json!({ "sessionId": session })).await;
            following.push(peer);
        }
    }
    assert_eq!(prompting.len() + following.len(), 500);
    daemon.signal(Signal::TERM);
    for (peer, id) in &mut prompting {
        let reply = peer.reply(*id).await;
        assert_eq!(reply["result"]["status"], "aborted", "{reply}");
    }
    for peer in &mut following {
        peer.notification("server.draining").await;
        let end = peer.event("turn/end").await;
        assert_eq!(end["event"]["data"]["reason"]["reason"]["kind"], "disposed", "{end}");
        peer.notification("session.closed").await;
    }
    assert_eq!(daemon.exited().await.code(), Some(0), "{}", daemon.stderr());
    for turn in 0..TURNS {
        let logged: Vec<Value> = daemon.home().logged(&format!("s{turn}"));
        assert_dense(&logged);
        assert_eq!(of_type(&logged, "turn/end").len(), 1);
    }
    for mut peer in following.into_iter().chain(prompting.into_iter().map(|(peer, _)| peer)) {
        peer.leave_unread();
        peer.finish().await;
    }
}
