//! Endings: of the input, of a connection, of the daemon.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::{PATIENCE, Served, kind};
use crate::auth::peer::PeerKind;
use crate::handler::shared::Phase;

#[tokio::test]
async fn shutdown_disposes_of_what_nobody_else_holds_and_closes() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let mut other = served.peer(json!({})).await;
    for session in ["mine", "shared"] {
        let id = peer.prompt(session, "hello").await;
        peer.reply(id).await;
    }
    other.call("session/subscribe", json!({ "sessionId": "shared" })).await;
    assert_eq!(peer.call("shutdown", json!({})).await["result"], json!({}));
    assert_eq!(peer.next().await, None);
    let status = other.call("server/status", json!({})).await;
    let loaded = status["result"]["sessions"].as_array().unwrap();
    assert_eq!(loaded.iter().map(|session| &session["sessionId"]).collect::<Vec<_>>(), ["shared"]);
}

#[tokio::test]
async fn requests_that_still_wait_are_answered_when_their_connection_shuts_down() {
    let served = Served::new(|_| {});
    let mut holder = served.peer(json!({})).await;
    holder.call("session/create", json!({ "sessionId": "s" })).await;
    let mut peer = served.peer(json!({})).await;
    let id = peer.prompt("s", "stall").await;
    peer.until_status("s", "running").await;
    peer.call("shutdown", json!({})).await;
    assert_eq!(kind(&peer.reply(id).await), "shutting_down");
    assert_eq!(peer.next().await, None);
}

#[tokio::test]
async fn the_end_of_the_input_lets_what_is_in_flight_be_answered() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let id = peer.prompt("s", "hello").await;
    peer.write.shutdown().await.unwrap();
    peer.end().await;
    assert_eq!(peer.seen.last().unwrap()["id"], id);
    assert_eq!(peer.seen.last().unwrap()["result"]["status"], "ok");
}

#[tokio::test]
async fn a_connection_that_is_gone_takes_its_turns_along_only_if_it_said_so() {
    let served = Served::new(|config| config.shutdown.drain_timeout = Duration::from_millis(50));
    let mut watcher = served.peer(json!({ "sessions": "all" })).await;
    for manners in ["keep", "abort"] {
        let mut peer = served.peer(json!({ "onDisconnect": manners })).await;
        peer.prompt(manners, "stall").await;
        watcher.until_status(manners, "running").await;
    }
    let ended = watcher.until(|frame| frame["params"]["event"]["type"] == "turn/end").await;
    assert_eq!(ended["params"]["sessionId"], "abort");
    assert_eq!(ended["params"]["event"]["data"]["reason"]["kind"], "aborted");
    watcher.call("server/ping", json!({})).await;
    assert!(watcher.events("keep").iter().all(|event| event["type"] != "turn/end"));
}

#[tokio::test]
async fn clients_are_told_once_that_the_daemon_drains() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    served.house.phase.send_replace(Phase::Draining { deadline: Duration::from_secs(7) });
    let told = peer.next().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["deadlineMs"]), (&json!("server.draining"), &json!(7000)));
    let after = told["params"]["reconnectAfterMs"].as_u64().unwrap();
    assert!((500..5000).contains(&after), "{after}");
    assert_eq!(peer.call("server/ping", json!({})).await["result"], json!({}));
    served.service.scope.drain();
    assert_eq!(peer.next().await, None);
    assert!(served.service.scope.wait(PATIENCE).await);
}

/// An idle daemon ends so fast that its clients were sometimes not told why.
#[tokio::test]
async fn clients_are_told_that_the_daemon_drains_however_fast_it_ends() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    served.house.phase.send_replace(Phase::Draining { deadline: Duration::ZERO });
    served.service.scope.drain();
    assert_eq!(peer.next().await.unwrap()["method"], "server.draining");
    assert_eq!(peer.next().await, None);
}

#[tokio::test]
async fn a_peer_that_has_not_authenticated_does_not_delay_the_end() {
    let served = Served::new(|_| {});
    let mut peer = served.connect_as(PeerKind::Tcp { address: "127.0.0.1:9".parse().unwrap() });
    peer.raw("{").await;
    served.service.scope.drain();
    assert_eq!(peer.next().await, None);
    assert!(served.service.scope.wait(PATIENCE).await);
}
