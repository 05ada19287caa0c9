//! Following sessions: what is heard, once and in order.

use serde_json::{Value, json};

use super::{Peer, Served, kind};

#[tokio::test]
async fn every_event_of_a_turn_precedes_its_reply() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let id = peer.prompt("s", "hello").await;
    let reply = peer.reply(id).await;
    assert_eq!(reply["result"]["status"], "ok");
    let before = &peer.seen[peer.seen.len() - 2];
    assert_eq!((&before["method"], &before["params"]["status"]), (&json!("session.status"), &json!("idle")));
    let events = peer.events("s");
    assert_eq!(events.first().unwrap()["type"], "session/opened");
    assert_eq!(events.last().unwrap()["type"], "turn/end");
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_refused_prompt_subscribes_to_nothing() {
    let served = Served::new(|_| {});
    let mut first = served.peer(json!({})).await;
    first.prompt("s", "stall").await;
    first.until_status("s", "running").await;
    let mut second = served.peer(json!({})).await;
    let id = second.prompt("s", "hello").await;
    assert_eq!(kind(&second.reply(id).await), "session_busy");
    first.call("session/cancel", json!({ "sessionId": "s" })).await;
    second.call("server/ping", json!({})).await;
    assert_eq!(second.events("s"), Vec::<Value>::new());
}

#[tokio::test]
async fn who_subscribes_later_hears_what_was_and_what_comes() {
    let served = Served::new(|_| {});
    let mut first = served.peer(json!({})).await;
    let id = first.prompt("s", "hello").await;
    first.reply(id).await;
    let mut second = served.peer(json!({ "deltas": false })).await;
    let subscribed = second.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    assert_eq!(second.seen.len(), 2, "the reply precedes the events");
    second.until_status("s", "idle").await;
    assert_eq!(subscribed["result"]["lastSeq"], second.events("s").last().unwrap()["seq"]);
    let id = first.prompt("s", "again").await;
    first.reply(id).await;
    second.until_status("s", "idle").await;
    assert_eq!(second.events("s"), first.events("s"));
    let statuses: Vec<&Value> = second
        .seen
        .iter()
        .filter(|frame| frame["method"] == "session.status")
        .map(|frame| &frame["params"]["status"])
        .collect();
    assert_eq!(statuses, ["running", "idle", "running", "idle"]);
    assert!(second.seen.iter().all(|frame| frame["params"]["event"].get("transient").is_none()));
}

#[tokio::test]
async fn since_starts_a_subscription_over_and_a_wrong_cursor_changes_nothing() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({ "deltas": false })).await;
    let id = peer.prompt("s", "hello").await;
    peer.reply(id).await;
    let epoch = peer.seen.iter().find_map(|frame| frame["params"]["epoch"].as_u64()).unwrap();
    let count = peer.events("s").len();
    let wrong =
        peer.call("session/subscribe", json!({ "sessionId": "s", "since": count + 5, "epoch": epoch })).await;
    assert_eq!(kind(&wrong), "cursor_invalid");
    let same = peer.call("session/subscribe", json!({ "sessionId": "s" })).await;
    assert_eq!(same["result"]["lastSeq"], count - 1);
    assert_eq!(peer.events("s").len(), count, "it was followed already: nothing is said twice");
    peer.call("session/subscribe", json!({ "sessionId": "s", "since": 1, "epoch": epoch })).await;
    peer.until_status("s", "idle").await;
    let again = peer.events("s").split_off(count);
    assert_eq!(again, peer.events("s")[2..count]);
}

#[tokio::test]
async fn who_unsubscribed_hears_no_more_and_is_answered_at_once() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let id = peer.prompt("s", "hello").await;
    peer.reply(id).await;
    let heard = peer.events("s").len();
    assert_eq!(peer.call("session/unsubscribe", json!({ "sessionId": "s" })).await["result"], json!({}));
    let mut other = served.peer(json!({})).await;
    let id = other.prompt("s", "again").await;
    other.reply(id).await;
    peer.call("server/ping", json!({})).await;
    assert_eq!(peer.events("s").len(), heard);
}

#[tokio::test]
async fn over_the_limit_of_subscriptions_the_idle_implicit_one_ends() {
    let served = Served::new(|config| config.limits.subscriptions = 2);
    let mut peer = served.peer(json!({})).await;
    for session in ["a", "b", "c"] {
        let id = peer.prompt(session, "hello").await;
        assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    }
    let mut other = served.peer(json!({})).await;
    for session in ["a", "b", "c"] {
        let id = other.prompt(session, "again").await;
        other.reply(id).await;
    }
    peer.until_status("c", "running").await;
    peer.until_status("c", "idle").await;
    let turns = |session| peer.events(session).iter().filter(|event| event["type"] == "turn/end").count();
    assert_eq!((turns("a"), turns("b"), turns("c")), (1, 2, 2));
    for session in ["b", "c"] {
        peer.call("session/subscribe", json!({ "sessionId": session })).await;
    }
    let refused = peer.call("session/subscribe", json!({ "sessionId": "a" })).await;
    assert_eq!((kind(&refused), &refused["error"]["data"]["max"]), ("limit_exceeded", &json!(2)));
}

#[tokio::test]
async fn who_hears_of_all_sessions_hears_each_from_its_first_event() {
    let served = Served::new(|_| {});
    let mut all = served.peer(json!({ "sessions": "all" })).await;
    let mut peer = served.peer(json!({})).await;
    for session in ["a", "b"] {
        let id = peer.prompt(session, "hello").await;
        peer.reply(id).await;
        all.until_status(session, "idle").await;
        assert_eq!(all.events(session), peer.events(session));
    }
}

#[tokio::test]
async fn a_receipt_comes_after_the_event_that_it_is_for() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({ "completion": "receipt" })).await;
    let id = peer.prompt("s", "hello").await;
    let receipt = peer.reply(id).await;
    assert_eq!(receipt["result"].as_object().unwrap().len(), 1);
    let events = peer.events("s");
    let insert = events.iter().find(|event| event["type"] == "agent/inbox/spliced").unwrap();
    assert_eq!(insert["data"]["inserted"][0]["id"], receipt["result"]["messageId"]);
    peer.until_status("s", "idle").await;
}

#[tokio::test]
async fn a_closed_session_is_told_and_can_be_prompted_again() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    for _ in 0..3 {
        let id = peer.prompt("s", "hello").await;
        peer.reply(id).await;
        peer.call("session/close", json!({ "sessionId": "s" })).await;
    }
    let closed = |peer: &Peer| peer.seen.iter().filter(|frame| frame["method"] == "session.closed").count();
    while closed(&peer) < 3 {
        peer.next().await.unwrap();
    }
    let turns = peer.events("s").iter().filter(|event| event["type"] == "turn/end").count();
    assert_eq!(turns, 3);
    let seqs: Vec<u64> = peer.events("s").iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>(), "nothing is lost or doubled");
}

/// Those who lag read the store a few at a time, and those who are level do not wait for them.
#[tokio::test]
async fn who_lags_waits_for_a_reader_of_the_store_and_who_is_level_does_not() {
    let served = Served::new(|config| config.limits.feed_bytes.0 = 32 * 1024);
    let mut level = served.peer(json!({ "deltas": false })).await;
    // More than the tail holds.
    for _ in 0..40 {
        let id = level.prompt("s", "hello").await;
        level.reply(id).await;
    }
    let all = served.house.shared.readers.clone().acquire_many_owned(8).await.unwrap();
    assert_eq!(served.house.shared.readers.available_permits(), 0, "eight read at once");
    let mut late = served.peer(json!({ "deltas": false })).await;
    late.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    let id = level.prompt("s", "again").await;
    assert_eq!(level.reply(id).await["result"]["status"], "ok");
    late.call("server/ping", json!({})).await;
    assert_eq!(late.events("s"), Vec::<Value>::new(), "its page is not read yet");
    drop(all);
    let expected = level.events("s");
    let last = expected.last().unwrap()["seq"].clone();
    late.until(|frame| frame["params"]["event"]["seq"] == last).await;
    assert_eq!(late.events("s"), expected);
}
