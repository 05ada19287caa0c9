//! Requests: order, limits, frames that are none, authentication.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{PATIENCE, Served, kind};
use crate::auth::peer::PeerKind;

#[tokio::test]
async fn of_prompts_at_once_one_wins_whoever_sends_them() {
    let served = Served::new(|_| {});
    let mut peers = Vec::new();
    for _ in 0..8 {
        peers.push(served.peer(json!({})).await);
    }
    let mut busy = 0;
    let mut ids = Vec::new();
    for peer in &mut peers {
        ids.push(peer.prompt("s", "stall").await);
    }
    let mut winner = None;
    for (at, (peer, id)) in peers.iter_mut().zip(&ids).enumerate() {
        let first = peer.until(|frame| frame["id"] == *id || frame["method"] == "session.status").await;
        if first["id"] == *id {
            assert_eq!(kind(&first), "session_busy");
            busy += 1;
        } else {
            winner = Some(at);
        }
    }
    assert_eq!(busy, 7);
    let winner = &mut peers[winner.unwrap()];
    assert_eq!(winner.call("session/cancel", json!({ "sessionId": "s" })).await["result"]["cancelled"], true);
}

/// A task for each request let a cancel overtake the prompt before it.
#[tokio::test]
async fn a_cancel_never_overtakes_the_prompt_before_it() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    for round in 0..50 {
        let session = format!("s{round}");
        let prompt = peer.prompt(&session, "stall").await;
        let cancel = peer.send("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(peer.reply(cancel).await["result"]["cancelled"], true);
        assert_eq!(peer.reply(prompt).await["result"]["status"], "aborted");
        assert_eq!(peer.events(&session).last().unwrap()["type"], "turn/end");
    }
}

#[tokio::test]
async fn requests_behind_initialize_see_an_initialized_connection() {
    let served = Served::new(|_| {});
    let mut peer = served.connect_as(PeerKind::Unix { uid: 0, pid: None });
    let first = peer.send("session/list", json!({})).await;
    let initialize = peer.send("initialize", json!({ "cwd": served.house.dir.path() })).await;
    let prompt = peer.prompt("s", "hello").await;
    assert_eq!(kind(&peer.reply(first).await), "not_initialized");
    assert_eq!(peer.reply(initialize).await["result"]["protocolVersion"], 1);
    assert_eq!(peer.reply(prompt).await["result"]["status"], "ok");
}

#[tokio::test]
async fn an_id_in_flight_is_not_taken_twice_and_may_be_used_again() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let blocks = r#"[{"type":"text","text":"stall"}]"#;
    peer.raw(&format!(
        "{}\n{}\n",
        format_args!(
            r#"{{"id":"x","method":"session/prompt","params":{{"sessionId":"s","contentBlocks":{blocks}}}}}"#
        ),
        r#"{"id":"x","method":"server/ping"}"#
    ))
    .await;
    let refused = peer.until(|frame| frame["id"] == "x").await;
    assert_eq!(kind(&refused), "duplicate_id");
    peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    if !peer.seen.iter().any(|frame| frame["result"]["status"] == "aborted") {
        peer.until(|frame| frame["id"] == "x").await;
    }
    peer.raw("{\"id\":\"x\",\"method\":\"server/ping\"}\n").await;
    assert_eq!(peer.until(|frame| frame["id"] == "x").await["result"], json!({}));
}

#[tokio::test]
async fn over_the_limit_requests_are_refused_but_not_those_that_let_go() {
    let served = Served::new(|config| config.limits.in_flight = 2);
    let mut peer = served.peer(json!({})).await;
    peer.prompt("a", "stall").await;
    peer.prompt("b", "stall").await;
    let third = peer.prompt("c", "hello").await;
    let refused = peer.reply(third).await;
    assert_eq!(kind(&refused), "overloaded");
    assert!(refused["error"]["data"]["retryAfterMs"].as_u64().unwrap() > 0);
    assert_eq!(peer.call("server/ping", json!({})).await["result"], json!({}));
    assert!(peer.call("server/status", json!({})).await["result"]["counts"]["inFlight"].as_u64() >= Some(2));
    assert_eq!(peer.call("session/cancel", json!({ "sessionId": "a" })).await["result"]["cancelled"], true);
    let again = peer.prompt("c", "hello").await;
    assert_eq!(peer.reply(again).await["result"]["status"], "ok");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_not_read_from() {
    let served = Served::new(|_| {});
    let mut peer = served.connect_as(PeerKind::Unix { uid: 0, pid: None });
    let ping = "{\"id\":1,\"method\":\"nothing/there\"}\n".repeat(1000);
    let flood = async {
        loop {
            peer.write.write_all(ping.as_bytes()).await.unwrap();
        }
    };
    // Paused time stands still while bytes move, so this ends only when nothing does.
    let blocked = tokio::time::timeout(Duration::from_secs(2), flood).await;
    assert!(blocked.is_err());
    let lag = served.house.shared.connections().pop().unwrap().lag_bytes;
    assert!(lag <= served.house.shared.config.borrow().limits.outbound_bytes.0, "{lag}");
    peer.next().await.unwrap();
}

#[tokio::test]
async fn too_many_bad_frames_in_a_row_end_a_connection_after_the_last_answer() {
    let served = Served::new(|config| config.limits.bad_frames = 5);
    let mut peer = served.peer(json!({})).await;
    peer.raw("x\nx\nx\nx\n{\"id\":9,\"method\":\"server/ping\"}\nx\nx\nx\n[]\n7\nx\nx\n").await;
    peer.end().await;
    let bad = peer.seen.iter().filter(|frame| frame.get("error").is_some()).count();
    assert_eq!(bad, 9);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_answered_once_and_passed_over() {
    let served = Served::new(|config| config.limits.line_bytes = crate::config::ByteSize(1024));
    let mut peer = served.peer(json!({})).await;
    peer.raw(&format!("{}\n", "a".repeat(10_000))).await;
    let answer = peer.next().await.unwrap();
    assert_eq!((kind(&answer), &answer["id"]), ("line_too_long", &Value::Null));
    assert_eq!(peer.call("server/ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn before_authentication_whoever_does_not_speak_the_protocol_gets_no_byte() {
    let served = Served::new(|_| {});
    let tcp = PeerKind::Tcp { address: "127.0.0.1:9".parse().unwrap() };
    let long =
        format!("{{\"id\":1,\"method\":\"authenticate\",\"params\":{{\"token\":\"{}", "x".repeat(9000));
    for bytes in [
        "POST / HTTP/1.1\r\n\r\n{\"id\":1,\"method\":\"server/ping\"}\n",
        "GET",
        "[]\n",
        "{\"method\":\"server/ping\"}\n",
        "{nonsense}\n",
        long.as_str(),
    ] {
        let mut peer = served.connect_as(tcp);
        peer.raw(bytes).await;
        let mut rest = Vec::new();
        tokio::time::timeout(PATIENCE, peer.read.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.is_empty(), "{bytes}: {}", String::from_utf8_lossy(&rest));
    }
}

#[tokio::test]
async fn a_peer_without_a_valid_token_is_told_and_closed() {
    let served = Served::new(|_| {});
    for request in [
        r#"{"id":1,"method":"authenticate","params":{"token":"dshd_wrong"}}"#,
        r#"{"id":1,"method":"authenticate","params":{"token":""}}"#,
        r#"{"id":1,"method":"initialize","params":{}}"#,
    ] {
        let mut peer = served.connect_as(PeerKind::Tcp { address: "127.0.0.1:9".parse().unwrap() });
        peer.raw(&format!("{request}\n{{\"id\":2,\"method\":\"server/ping\"}}\n")).await;
        assert_eq!(kind(&peer.next().await.unwrap()), "unauthenticated");
        assert_eq!(peer.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_closed_when_its_time_to_authenticate_is_over() {
    let served = Served::new(|_| {});
    let mut peer = served.connect_as(PeerKind::Tcp { address: "127.0.0.1:9".parse().unwrap() });
    assert_eq!(peer.next().await, None);
}
