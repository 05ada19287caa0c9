//! Every bound of `[limits]` is crossed by a test: those that have no other home are here, and the table says where each is.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::stage::{Stage, Transport, events, leave, text_of};
use crate::support::{Daemon, Peer};

/// Each key of `[limits]`, and the test that crosses it.
const CROSSED: [(&str, &str, &str); 25] = [
    ("line_bytes", "framing.rs", "a_line_over_the_limit_is_told_once_and_never_held"),
    (
        "in_flight",
        "errors.rs",
        "over_the_limit_of_requests_in_flight_a_client_is_told_when_to_come_back_and_may_still_let_go",
    ),
    ("in_flight_total", "errors.rs", "the_requests_in_flight_of_all_connections_together_are_bounded"),
    ("outbound_bytes", "slow/pace.rs", "a_reply_waits_for_no_more_than_what_is_queued_already"),
    (
        "socket_bytes",
        "slow/pace.rs",
        "at_a_hundredth_of_the_pace_there_are_fewer_and_longer_deltas_and_every_character",
    ),
    (
        "feed_bytes",
        "limits.rs",
        "what_a_session_keeps_of_its_events_is_bounded_and_the_rest_is_read_from_its_log",
    ),
    ("mailbox", "limits.rs", "too_many_requests_for_one_session_are_refused_and_cancel_and_close_are_not"),
    (
        "loaded_sessions",
        "sessions/memory.rs",
        "above_the_limit_the_least_recently_used_goes_first_and_one_that_works_never",
    ),
    (
        "subagents",
        "subagents.rs",
        "several_children_work_at_the_same_time_and_those_over_the_limit_are_told_to_the_model",
    ),
    ("connections", "errors.rs", "a_connection_too_many_is_told_so_and_closed"),
    (
        "connections_per_uid",
        "limits.rs",
        "a_user_has_so_many_connections_and_four_more_are_kept_for_the_owner",
    ),
    ("subscriptions", "errors.rs", "limits_are_named_with_their_value"),
    (
        "write_progress",
        "slow/pace.rs",
        "who_takes_no_byte_is_cut_with_a_line_that_says_who_and_how_far_behind_and_goes_on_by_its_cursor",
    ),
    ("preauth_time", "strangers.rs", "who_says_nothing_is_closed_in_time_and_makes_room"),
    ("preauth_bytes", "strangers.rs", "eight_kib_are_all_that_a_stranger_may_say"),
    ("preauth_connections", "limits.rs", "strangers_have_so_many_connections_in_all"),
    ("preauth_per_source", "limits.rs", "a_source_of_strangers_has_so_many_connections"),
    ("children", "abuse.rs", "places_for_children_are_shared_by_all_sessions_and_nobody_waits_for_one"),
    ("jobs", "jobs.rs", "too_many_jobs_are_refused_with_the_name_of_the_limit"),
    ("bad_frames", "limits.rs", "so_many_bad_frames_in_a_row_end_a_connection"),
    ("event_bytes", "errors.rs", "limits_are_named_with_their_value"),
    ("message_bytes", "limits.rs", "a_message_of_a_model_is_stopped_at_its_bound"),
    ("image_bytes", "images.rs", "what_is_wrong_with_a_picture_is_told_before_anything_is_made"),
    ("request_image_bytes", "images.rs", "older_pictures_are_left_out_of_a_request_that_would_be_too_large"),
    // A request's id has no key: 1 KiB.
    ("", "limits.rs", "an_id_has_a_kibibyte_at_most"),
];

#[test]
fn every_limit_is_crossed_by_a_test() {
    let limits = serde_json::to_value(&dshd::config::Config::default().limits).unwrap();
    let keys: BTreeSet<&str> = limits.as_object().unwrap().keys().map(String::as_str).collect();
    let crossed: BTreeSet<&str> =
        CROSSED.iter().map(|(key, ..)| *key).filter(|key| !key.is_empty()).collect();
    assert_eq!(keys, crossed);
    for (key, file, test) in CROSSED {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(test), "{key}: {test} is not in {file}");
    }
}

#[tokio::test]
async fn what_a_session_keeps_of_its_events_is_bounded_and_the_rest_is_read_from_its_log() {
    let daemon = Daemon::scripted(
        &[r#"{"parts":[{"text":["0123456789abcdef"],"repeat":100}]}"#],
        "[limits]\nfeed_bytes = \"8KiB\"",
    );
    let mut peer = daemon.peer().await;
    for _ in 0..20 {
        peer.prompt("s", "x").await;
    }
    let told = peer.take_aside();
    let status = peer.call("server/status", json!({})).await;
    let kept = status["usage"]["feed_bytes"].as_u64().unwrap();
    assert!(kept <= 8192, "{kept}");
    let mut late = daemon.peer().await;
    late.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    let live: Vec<&Value> = events(&told);
    let mut replayed = Vec::new();
    while replayed.len() < live.len() {
        let message = late.message().await;
        replayed.extend(events(std::slice::from_ref(&message)).into_iter().cloned());
    }
    assert_eq!(replayed.iter().collect::<Vec<_>>(), live);
    late.leave_unread();
    leave(peer).await;
}

#[tokio::test]
async fn too_many_requests_for_one_session_are_refused_and_cancel_and_close_are_not() {
    let lines =
        [r#"{"prompt":"long","parts":[{"text":["0123456789abcdef0123456789abcdef"],"repeat":20000}]}"#];
    let mut daemon = Daemon::scripted(&lines, "[limits]\nmailbox = 1\nin_flight = 400");
    let mut peer = daemon.peer_without_deltas().await;
    for _ in 0..6 {
        peer.prompt("s", "long").await;
        peer.take_aside();
    }
    peer.leave_unread();
    peer.finish().await;
    let home = daemon.home().clone();
    daemon.signal(rustix::process::Signal::TERM);
    daemon.exited().await;
    // While its long log is read, requests wait for the session.
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer_without_deltas().await;
    let mut requests = String::new();
    for at in 0..300 {
        let request = json!({ "jsonrpc": "2.0", "id": format!("r{at}"), "method": "session/resume", "params": { "sessionId": "s" } });
        writeln!(requests, "{request}").unwrap();
    }
    for (id, method) in [("cancel", "session/cancel"), ("close", "session/close")] {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "sessionId": "s" } });
        writeln!(requests, "{request}").unwrap();
    }
    peer.send_bytes(requests.as_bytes()).await;
    let mut refused = 0;
    for at in 0..300 {
        let reply = reply(&mut peer, &format!("r{at}")).await;
        match reply["error"]["data"]["kind"].as_str() {
            None => assert!(reply["result"]["epoch"].is_u64(), "{reply}"),
            Some("overloaded") => refused += 1,
            Some(_) => panic!("{reply}"),
        }
    }
    assert!(refused > 0, "the mailbox holds one");
    assert!(reply(&mut peer, "cancel").await["result"].is_object());
    assert_eq!(reply(&mut peer, "close").await["result"], json!({}));
    peer.leave_unread();
}

async fn reply(peer: &mut Peer, id: &str) -> Value {
    peer.take(|message| message["id"] == id).await
}

#[tokio::test]
async fn a_user_has_so_many_connections_and_four_more_are_kept_for_the_owner() {
    let stage = Stage::with("", "[limits]\nconnections_per_uid = 3").await;
    let mut peers = Vec::new();
    for _ in 0..7 {
        peers.push(stage.peer().await);
    }
    let mut refused = stage.stranger().await;
    let answer = refused.message().await;
    assert_eq!(
        answer["error"]["data"],
        json!({ "kind": "limit_exceeded", "limit": "connections_per_uid", "max": 3 })
    );
    refused.expect_eof().await;
    let status = peers[0].call("server/status", json!({})).await;
    assert_eq!(
        (&status["usage"]["connections_per_uid"], &status["totals"]["refused"]),
        (&json!(7), &json!(1))
    );
    for peer in peers {
        leave(peer).await;
    }
}

#[tokio::test]
async fn strangers_have_so_many_connections_in_all() {
    let stage =
        Stage::build(Transport::Tcp, "", "[limits]\npreauth_connections = 2\npreauth_time = \"1m\"").await;
    let (mut one, mut two) = (stage.stranger().await, stage.stranger().await);
    let mut third = stage.stranger().await;
    // The one that has been there the longest makes room.
    one.expect_eof().await;
    third.call("authenticate", json!({ "token": stage.token() })).await;
    let mut fourth = stage.stranger().await;
    fourth.call("authenticate", json!({ "token": stage.token() })).await;
    two.call("authenticate", json!({ "token": stage.token() })).await;
    for peer in [two, third, fourth] {
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_source_of_strangers_has_so_many_connections() {
    let stage =
        Stage::build(Transport::Tcp, "", "[limits]\npreauth_per_source = 2\npreauth_time = \"1m\"").await;
    let mut one = stage.stranger().await;
    let (two, three) = (stage.stranger().await, stage.stranger().await);
    one.expect_eof().await;
    let mut good = stage.peer().await;
    let status = good.call("server/status", json!({})).await;
    assert_eq!(
        status["usage"]["preauth_connections"], 1,
        "the good one took the place of one, and has left it"
    );
    leave(good).await;
    drop((two, three));
}

#[tokio::test]
async fn so_many_bad_frames_in_a_row_end_a_connection() {
    let stage = Stage::with("", "[limits]\nbad_frames = 3").await;
    let mut peer = stage.peer().await;
    for good_between in [true, false] {
        for _ in 0..2 {
            peer.send_line("nonsense").await;
            assert_eq!(peer.message().await["error"]["code"], -32700);
        }
        if good_between {
            peer.call("server/ping", json!({})).await;
        }
    }
    peer.send_line("nonsense").await;
    assert_eq!(peer.message().await["error"]["code"], -32700, "the last one is answered");
    peer.expect_eof().await;
}

#[tokio::test]
async fn a_message_of_a_model_is_stopped_at_its_bound() {
    let script = [r#"{"parts":[{"text":["0123456789abcdef"],"repeat":100000}]}"#];
    let daemon = Daemon::scripted(&script, "[limits]\nmessage_bytes = \"1MiB\"");
    let mut peer = daemon.peer().await;
    let reply = peer.prompt("s", "x").await;
    assert_eq!(reply["reason"]["kind"], "max-tokens", "{reply}");
    let told = peer.take_aside();
    let message = events(&told).into_iter().find(|event| event["type"] == "assistant/message").unwrap();
    let text = text_of(&message["data"]["message"]);
    assert!(text.len() > 500_000 && text.len() <= 1 << 20, "{}", text.len());
    leave(peer).await;
}

#[tokio::test]
async fn an_id_has_a_kibibyte_at_most() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    for (bytes, served) in [(1022, true), (1023, false), (100_000, false)] {
        let id = "x".repeat(bytes);
        peer.send_line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"server/ping\"}}")).await;
        let reply = peer.message().await;
        assert_eq!(reply.get("result").is_some(), served, "{bytes}: {}", reply["error"]);
        assert_eq!(reply["id"].is_null(), !served);
    }
    leave(peer).await;
}
