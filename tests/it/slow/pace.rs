//! One reader and its own pace.

use serde_json::json;

use super::{Told, follower, position};
use crate::model_server::chat;
use crate::stage::{Stage, Transport, leave, text_of};
use crate::support::Daemon;

/// Deltas of the turn that is read at two paces.
const DELTAS: usize = 3000;

/// For one frame that the slow one reads, the other reads so many.
const PACE: usize = 100;

/// Once every delta was queued for every client, and one at a hundredth of the pace was a hundred times behind.
#[tokio::test]
async fn at_a_hundredth_of_the_pace_there_are_fewer_and_longer_deltas_and_every_character() {
    let stage = Stage::with("", "[limits]\nsocket_bytes = \"4KiB\"").await;
    let mut fast = stage.peer().await;
    let live = stage.live();
    let running = fast.send_prompt("s", "x").await;
    stage.model.request().await;
    let mut slow = follower(&stage, "s").await;
    let (mut of_fast, mut of_slow) = (Told::default(), Told::default());
    for at in 0..DELTAS {
        live.send(chat::text(&format!("{at} "))).await;
        // The next one is written when the fast one has read this.
        let before = of_fast.text.len();
        while of_fast.text.len() == before {
            of_fast.take(&fast.message().await, u64::MAX);
        }
        if at % PACE == 0 {
            of_slow.take(&slow.message().await, u64::MAX);
        }
    }
    live.send(chat::finish("stop") + chat::DONE).await;
    live.end().await;
    let reply = loop {
        let message = fast.message().await;
        if message["id"] == running {
            break message;
        }
        of_fast.take(&message, u64::MAX);
    };
    assert_eq!(reply["result"]["status"], "ok");
    let last = of_fast.events.last().unwrap()["seq"].as_u64().unwrap();
    of_slow.read_to(&mut slow, last).await;
    assert!(of_fast.frames >= DELTAS, "the fast one got each: {}", of_fast.frames);
    // What its own buffer and the kernel's hold at first, and one for each hundred.
    assert!(of_slow.frames < DELTAS / 20, "{} frames of {DELTAS}", of_slow.frames);
    let said = of_fast.events.iter().find(|event| event["type"] == "assistant/message").unwrap();
    let whole = text_of(&said["data"]["message"]);
    assert_eq!(of_slow.text, whole, "every character");
    assert_eq!(of_fast.text, whole);
    of_slow.assert_dense(0);
    slow.leave_unread();
    leave(fast).await;
}

#[tokio::test]
async fn who_takes_no_byte_is_cut_with_a_line_that_says_who_and_how_far_behind_and_goes_on_by_its_cursor() {
    for transport in [Transport::Unix, Transport::Tcp] {
        let stage =
            Stage::build(transport, "", "[limits]\nwrite_progress = \"500ms\"\nsocket_bytes = \"4KiB\"")
                .await;
        let mut prompting = stage.peer().await;
        let mut stopped = follower_of_new(&stage, &mut prompting).await;
        let text = "t".repeat(900_000);
        for _ in 0..12 {
            stage.says(&[&text]);
            assert_eq!(prompting.prompt("s", "x").await["status"], "ok");
            prompting.take_aside();
        }
        let line = stage.daemon().wait_for_line("cut a connection that does not read");
        let who = if transport == Transport::Tcp { "peer=\"tcp" } else { "peer=\"unix" };
        for part in [who, "events=", "lines=", "bytes="] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        // What it had been sent is still read, and the rest is fetched from behind it.
        let mut told = Told::default();
        while let Some(line) = stopped.whole_line().await {
            told.take(&serde_json::from_str(&line).unwrap(), u64::MAX);
        }
        let seen = told.events.last().map(|event| event["seq"].as_u64().unwrap());
        let (epoch, last) = position(&mut prompting, "s").await;
        assert!(seen < Some(last), "it was cut before the end");
        let mut again = stage.peer().await;
        let since = seen.map_or(json!(-1), |seen| json!(seen));
        again.call("session/subscribe", json!({ "sessionId": "s", "since": since, "epoch": epoch })).await;
        told.read_to(&mut again, last).await;
        told.assert_dense(0);
        again.leave_unread();
        stopped.leave_unread();
        assert_eq!(prompting.call("server/status", json!({})).await["counts"]["connections"], 2);
        leave(prompting).await;
    }
}

/// A follower of a session that has had one turn.
async fn follower_of_new(stage: &Stage, prompting: &mut crate::support::Peer) -> crate::support::Peer {
    stage.says(&["hello"]);
    prompting.prompt("s", "x").await;
    prompting.take_aside();
    let mut peer = stage.connect().await;
    peer.initialize(stage.bind(&json!({ "deltas": false }))).await;
    peer.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    peer
}

/// A client that writes on without reading once filled memory, or was closed.
#[tokio::test]
async fn ten_thousand_requests_may_be_written_before_a_reply_is_read() {
    for transport in [Transport::Unix, Transport::Tcp, Transport::Stdio] {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        let line =
            |at: usize| format!("{{\"jsonrpc\":\"2.0\",\"id\":\"r{at}\",\"method\":\"server/ping\"}}\n");
        let requests: String = (0..10_000).map(line).collect();
        peer.send_bytes(requests.as_bytes()).await;
        for at in 0..10_000 {
            let reply = peer.message().await;
            assert_eq!((&reply["id"], &reply["result"]), (&json!(format!("r{at}")), &json!({})));
        }
        leave(peer).await;
    }
}

/// What a connection has queued is bounded, and a small reply need not wait behind all of it.
#[tokio::test]
async fn a_reply_waits_for_no_more_than_what_is_queued_already() {
    let daemon = Daemon::scripted(
        &[r#"{"prompt":"flood","parts":[{"text":["xxxxxxxxxxxxxxxx"],"repeat":400000}]}"#],
        "[limits]\nmessage_bytes = \"16MiB\"\noutbound_bytes = \"256KiB\"",
    );
    let mut peer = daemon.peer().await;
    peer.send_prompt("s", "flood").await;
    peer.event("assistant/chunk").await;
    peer.take_aside();
    let ping = peer.send("server/ping", json!({})).await;
    let mut bytes = 0;
    loop {
        let message = peer.message().await;
        if message["id"] == ping {
            break;
        }
        bytes += message.to_string().len();
    }
    // The queue, the kernel's buffers and the peer's own; one delta may be longer, since it holds all that waited.
    assert!(bytes < 4 << 20, "{bytes} bytes came before the reply");
    peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    peer.leave_unread();
    peer.finish().await;
}
