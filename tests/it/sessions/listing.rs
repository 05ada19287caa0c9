//! The list: newest first, page by page, whatever comes and goes meanwhile.

use serde_json::{Value, json};

use crate::stage::leave;
use crate::support::{Daemon, Peer};

const SCRIPT: [&str; 1] = [r#"{"parts":[{"text":["a"]}]}"#];

async fn pages(peer: &mut Peer, params: &Value) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut params = params.clone();
        if !cursor.is_null() {
            params["cursor"] = cursor;
        }
        let mut page = peer.call("session/list", params).await;
        let ids = page["sessions"].as_array().unwrap().iter();
        pages.push(ids.map(|one| one["sessionId"].as_str().unwrap().to_owned()).collect());
        cursor = page["nextCursor"].take();
        if cursor.is_null() {
            return pages;
        }
    }
}

#[tokio::test]
async fn every_session_is_on_one_page_also_after_a_restart() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    for at in 0..25 {
        peer.prompt(&format!("s{at}"), "x").await;
    }
    peer.take_aside();
    let expected: Vec<String> = (0..25).rev().map(|at| format!("s{at}")).collect();
    let listed = pages(&mut peer, &json!({ "limit": 7 })).await;
    assert_eq!(listed.iter().map(Vec::len).collect::<Vec<_>>(), [7, 7, 7, 4]);
    assert_eq!(listed.concat(), expected);
    leave(peer).await;
    let home = daemon.home().clone();
    assert!(daemon.stop().await.success());
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    assert_eq!(pages(&mut peer, &json!({ "limit": 10 })).await.concat(), expected);
    leave(peer).await;
}

#[tokio::test]
async fn what_is_prompted_between_two_pages_moves_up_and_hides_no_other() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    for at in 0..6 {
        peer.prompt(&format!("s{at}"), "x").await;
    }
    peer.take_aside();
    let first = peer.call("session/list", json!({ "limit": 3 })).await;
    peer.prompt("s0", "again").await;
    peer.take_aside();
    let second = peer.call("session/list", json!({ "limit": 3, "cursor": first["nextCursor"] })).await;
    let ids: Vec<&Value> =
        second["sessions"].as_array().unwrap().iter().map(|one| &one["sessionId"]).collect();
    assert_eq!(ids, ["s2", "s1"]);
    assert_eq!(pages(&mut peer, &json!({ "limit": 1 })).await.concat()[0], "s0");
    leave(peer).await;
}

#[tokio::test]
async fn a_directory_has_a_list_of_its_own() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    let elsewhere = daemon.home().work().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    peer.call("session/create", json!({ "sessionId": "there", "cwd": elsewhere })).await;
    for session in ["here", "there"] {
        peer.prompt(session, "x").await;
    }
    peer.take_aside();
    assert_eq!(pages(&mut peer, &json!({ "cwd": elsewhere })).await.concat(), ["there"]);
    assert_eq!(pages(&mut peer, &json!({ "cwd": daemon.home().work() })).await.concat(), ["here"]);
    assert_eq!(pages(&mut peer, &json!({ "cwd": "/nowhere" })).await.concat(), [] as [&str; 0]);
    leave(peer).await;
}

/// Several processes may share the data.
#[tokio::test]
async fn what_another_process_makes_and_removes_is_seen() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    peer.prompt("ours", "x").await;
    peer.take_aside();
    assert_eq!(pages(&mut peer, &json!({})).await.concat(), ["ours"]);
    let mut command = daemon.home().dshd(["stdio", "--data-dir"]);
    command.arg(daemon.home().data());
    let mut other = Peer::stdio(command);
    other.initialize(json!({ "cwd": daemon.home().work() })).await;
    other.prompt("theirs", "x").await;
    other.take_aside();
    assert_eq!(pages(&mut peer, &json!({})).await.concat(), ["theirs", "ours"]);
    other.call("session/delete", json!({ "sessionId": "theirs" })).await;
    other.notification("session.closed").await;
    assert_eq!(pages(&mut peer, &json!({})).await.concat(), ["ours"]);
    leave(other).await;
    leave(peer).await;
}
