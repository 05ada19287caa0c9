//! Deleting: closed first, then gone for good, whoever is on it.

use serde_json::{Value, json};

use crate::stage::{Stage, leave};
use crate::support::{Daemon, Home, of_type};

const SCRIPT: [&str; 3] = [
    r#"{"prompt":"stall","parts":[{"text":["one "]},{"stall":true}]}"#,
    r#"{"prompt":"delegate","step":1,"parts":[{"tool":"subagent","arguments":{"description":"look","prompt":"look"}}]}"#,
    r#"{"parts":[{"text":["a ","b"]}]}"#,
];

fn directories(home: &Home) -> usize {
    let shelves = std::fs::read_dir(home.data().join("sessions")).unwrap();
    shelves.map(|shelf| std::fs::read_dir(shelf.unwrap().path()).unwrap().count()).sum()
}

#[tokio::test]
async fn a_deleted_session_is_closed_for_all_and_gone_from_the_disk() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut a = daemon.peer().await;
    assert_eq!(a.prompt("s", "hello").await["status"], "ok");
    let mut b = daemon.peer().await;
    b.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    let running = a.send_prompt("s", "stall").await;
    b.take(|message| message["params"]["event"]["data"]["chunk"]["text"] == "one ").await;
    assert_eq!(b.call("session/delete", json!({ "sessionId": "s" })).await, json!({}));
    for peer in [&mut a, &mut b] {
        let closed = peer.notification("session.closed").await;
        assert_eq!(closed, json!({ "sessionId": "s", "cause": "deleted" }));
    }
    // The turn was cancelled first, and whoever waits for it is told.
    let reply = a.reply(running).await;
    assert_eq!(reply["result"]["status"], "aborted", "{reply}");
    let ends = a.take_aside();
    let events: Vec<Value> = crate::stage::events(&ends).into_iter().cloned().collect();
    let end = of_type(&events, "turn/end").pop().unwrap();
    assert_eq!(end["data"]["reason"], json!({ "kind": "aborted", "reason": { "kind": "disposed" } }));
    b.take_aside();
    assert_eq!(directories(daemon.home()), 0);
    for method in ["session/read", "session/resume", "session/close", "session/delete", "session/wait"] {
        let error = a.refused(method, json!({ "sessionId": "s" })).await;
        assert_eq!(error["data"]["kind"], "session_not_found", "{method}");
    }
    assert_eq!(a.call("session/list", json!({})).await["sessions"], json!([]));
    // Its name is free, and the next of that name has a history of its own.
    assert_eq!(a.prompt("s", "again").await["status"], "ok");
    let told = a.take_aside();
    assert_eq!(crate::stage::events(&told)[0]["seq"], 0);
    for peer in [a, b] {
        leave(peer).await;
    }
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn a_cursor_on_a_deleted_session_is_none_on_its_successor() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    peer.prompt("s", "hello").await;
    let before = peer.call("session/read", json!({ "sessionId": "s" })).await;
    peer.call("session/delete", json!({ "sessionId": "s" })).await;
    peer.prompt("s", "hello").await;
    peer.take_aside();
    let params = json!({ "sessionId": "s", "since": 3, "epoch": before["epoch"] });
    let error = peer.refused("session/subscribe", params).await;
    assert_eq!(error["data"]["kind"], "cursor_invalid");
    leave(peer).await;
}

#[tokio::test]
async fn followers_of_a_session_that_nobody_has_open_are_told_too() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    peer.prompt("s", "hello").await;
    peer.take_aside();
    peer.call("session/close", json!({ "sessionId": "s" })).await;
    peer.notification("session.closed").await;
    let mut follower = daemon.peer().await;
    follower.call("session/subscribe", json!({ "sessionId": "s" })).await;
    peer.call("session/delete", json!({ "sessionId": "s" })).await;
    let closed = follower.notification("session.closed").await;
    assert_eq!(closed, json!({ "sessionId": "s", "cause": "deleted" }));
    for peer in [peer, follower] {
        leave(peer).await;
    }
}

#[tokio::test]
async fn one_that_nobody_has_prompted_is_deleted_from_memory() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    peer.call("session/create", json!({ "sessionId": "s" })).await;
    peer.call("session/delete", json!({ "sessionId": "s" })).await;
    peer.notification("session.closed").await;
    peer.call("session/create", json!({ "sessionId": "s" })).await;
    leave(peer).await;
}

#[tokio::test]
async fn subagents_sessions_go_with_their_parents() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    assert_eq!(peer.prompt("s", "delegate").await["status"], "ok");
    peer.prompt("other", "hello").await;
    peer.take_aside();
    assert_eq!(directories(daemon.home()), 3);
    peer.call("session/delete", json!({ "sessionId": "s" })).await;
    for _ in 0..2 {
        let closed = peer.notification("session.closed").await;
        assert_eq!(closed["cause"], "deleted");
    }
    assert_eq!(directories(daemon.home()), 1);
    leave(peer).await;
}

#[tokio::test]
async fn what_another_process_writes_is_locked_and_stays() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    peer.prompt("s", "hello").await;
    peer.call("session/close", json!({ "sessionId": "s" })).await;
    peer.notification("session.closed").await;
    peer.take_aside();
    let mut command = daemon.home().dshd(["stdio", "--data-dir"]);
    command.arg(daemon.home().data());
    let mut elsewhere = crate::support::Peer::stdio(command);
    elsewhere.initialize(json!({ "cwd": daemon.home().work() })).await;
    elsewhere.prompt("s", "hello").await;
    elsewhere.take_aside();
    let error = peer.refused("session/delete", json!({ "sessionId": "s" })).await;
    assert_eq!(error["data"]["kind"], "session_locked");
    let read = peer.call("session/read", json!({ "sessionId": "s" })).await;
    assert!(read["lastSeq"].as_u64().unwrap() > 5);
    peer.take_aside();
    leave(elsewhere).await;
    leave(peer).await;
}

/// Each is answered once, and what is left is one whole session or none.
#[tokio::test]
async fn prompts_and_deletions_at_once_leave_a_whole_session_or_none() {
    let stage = Stage::new().await;
    let mut peers = vec![stage.peer().await, stage.peer().await, stage.peer().await];
    for round in 0..20 {
        let mut waiting = Vec::new();
        for (at, peer) in peers.iter_mut().enumerate() {
            stage.says(&["a"]);
            let queue = json!({ "whenBusy": "queue" });
            let prompt = peer.send("session/prompt", crate::stage::prompt("s", "x", &queue)).await;
            let delete = if (at + round) % 3 == 0 {
                Some(peer.send("session/delete", json!({ "sessionId": "s" })).await)
            } else {
                None
            };
            waiting.push((prompt, delete));
        }
        for (peer, (prompt, delete)) in peers.iter_mut().zip(waiting) {
            let reply = peer.reply(prompt).await;
            let gone = reply["error"]["data"]["kind"] == "session_not_found";
            let ended = reply["result"]["status"] == "ok" || reply["result"]["status"] == "aborted";
            assert!(gone || ended, "{reply}");
            if let Some(delete) = delete {
                let reply = peer.reply(delete).await;
                let twice = reply["error"]["data"]["kind"] == "session_not_found";
                assert!(twice || reply["result"] == json!({}), "{reply}");
            }
            peer.take_aside();
        }
        stage.model.forget_replies();
        let listed = peers[0].call("session/list", json!({})).await;
        assert!(listed["sessions"].as_array().unwrap().len() <= 1, "{listed}");
    }
    for mut peer in peers {
        peer.leave_unread();
        peer.finish().await;
    }
}

#[tokio::test]
async fn sessions_rm_deletes_after_a_yes_alone() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    for session in ["first", "second", "third"] {
        peer.prompt(session, "hello").await;
    }
    peer.leave_unread();
    let home = daemon.home();
    let refused = home.run(["sessions", "rm", "first"]).await.expect_code(64);
    assert!(refused.stderr.contains("pass -y"), "{}", refused.stderr);
    let missing = home.run(["sessions", "rm", "-y", "first", "nothing"]).await.expect_code(4);
    assert!(missing.stderr.contains("nothing"), "{}", missing.stderr);
    assert_eq!(directories(home), 3, "all are found before the first is deleted");
    let done = home.run(["sessions", "rm", "-y", "fir", "second"]).await.expect_code(0);
    assert_eq!(done.stdout, "deleted first\ndeleted second\n");
    assert_eq!(directories(home), 1);
}
