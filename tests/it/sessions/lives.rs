//! One log, several lives: restarts, crashes in the middle of a tool, closings, cursors of earlier lives.

use serde_json::{Value, json};

use super::{ANSWER, STALL, prompt, prompts_run, queued, read_all, seen};
use crate::support::{Daemon, Home, Peer, assert_dense, of_type};

const TOOL: &str = r#"{"prompt":"tool","step":1,"parts":[{"text":"let me see"},{"tool":"bash","arguments":{"command":"sleep 600"}},{"tool":"bash","arguments":{"command":"echo never"}}]}"#;

async fn start(home: &Home) -> (Daemon, Peer) {
    let daemon = Daemon::start_in(home, [] as [&str; 0]);
    let peer = daemon.peer().await;
    (daemon, peer)
}

/// Ends a life: well, or as a crash does.
async fn end(daemon: Daemon, mut peer: Peer, well: bool) {
    peer.leave_unread();
    drop(peer);
    if well {
        assert!(daemon.stop().await.success());
    } else {
        daemon.kill().await;
    }
}

#[tokio::test]
async fn after_a_restart_a_subscriber_gets_what_was_seen_live_and_then_what_comes() {
    for well in [true, false] {
        let home = Home::new();
        home.scripted(&[ANSWER], "");
        let (daemon, mut peer) = start(&home).await;
        peer.prompt("s", "first").await;
        peer.prompt("s", "second").await;
        let live = seen(&mut peer, "s");
        assert_dense(&live);
        end(daemon, peer, well).await;

        let (daemon, mut peer) = start(&home).await;
        let subscribed = peer.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
        assert_eq!(subscribed["status"], "idle");
        assert_eq!(subscribed["lastSeq"], live.len() - 1);
        assert_eq!(subscribed["epoch"], live[0]["data"]["epoch"], "looking starts no life");
        assert_eq!(peer.prompt("s", "third").await["status"], "ok");
        let all = seen(&mut peer, "s");
        assert_dense(&all);
        assert_eq!(all[..live.len()], live);
        assert_eq!(all[live.len()]["type"], "session/opened");
        assert_eq!(prompts_run(&all), ["first", "second", "third"]);
        end(daemon, peer, true).await;
        let logged = home.logged("s");
        assert_eq!(logged.len(), all.len());
    }
}

/// Every resume failed on calls without results.
#[tokio::test]
async fn a_turn_that_a_crash_cut_short_is_closed_once_and_the_next_prompt_runs() {
    let home = Home::new();
    home.scripted(&[TOOL, ANSWER], "");
    let (daemon, mut peer) = start(&home).await;
    peer.send_prompt("s", "tool").await;
    peer.event("tool/call").await;
    end(daemon, peer, false).await;

    let (daemon, mut peer) = start(&home).await;
    let open = read_all(&mut peer, "s").await;
    assert_eq!(open.last().unwrap()["type"], "tool/call", "looking repairs nothing");
    assert_eq!(peer.prompt("s", "next").await["status"], "ok");
    let all = read_all(&mut peer, "s").await;
    assert_dense(&all);
    assert_eq!(all[..open.len()], open);
    let opened = &all[open.len()];
    assert_eq!(opened["data"]["recovered"], json!({ "cutBytes": 0, "closedTurn": 1 }), "{opened}");
    let results = of_type(&all, "tool/result");
    let codes: Vec<_> = results.iter().map(|result| result["data"]["error"]["code"].clone()).collect();
    assert_eq!(codes, ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"]);
    let ends = of_type(&all, "turn/end");
    let reasons: Vec<_> = ends.iter().map(|end| end["data"]["reason"]["kind"].clone()).collect();
    assert_eq!(reasons, ["interrupted", "completed"]);
    end(daemon, peer, false).await;

    let (daemon, mut peer) = start(&home).await;
    assert_eq!(peer.prompt("s", "and next").await["status"], "ok");
    let again = read_all(&mut peer, "s").await;
    assert_eq!(again[..all.len()], all);
    assert_eq!(of_type(&again, "tool/result").len(), 2, "repaired once");
    end(daemon, peer, true).await;
}

#[tokio::test]
async fn queued_prompts_wait_in_the_log_for_the_next_prompt_and_run_before_it_in_order() {
    for well in [true, false] {
        let home = Home::new();
        home.scripted(&[STALL, ANSWER], "[shutdown]\ndrain_timeout = \"50ms\"");
        let daemon = Daemon::start_in(&home, [] as [&str; 0]);
        let mut peer = daemon.connect().await;
        peer.initialize(json!({ "cwd": home.work(), "completion": "receipt", "whenBusy": "queue" })).await;
        for text in ["stall", "one", "two"] {
            assert!(peer.call("session/prompt", prompt("s", text)).await["messageId"].is_string());
        }
        end(daemon, peer, well).await;

        let (daemon, mut peer) = start(&home).await;
        peer.call("session/resume", json!({ "sessionId": "s" })).await;
        let queue = peer.call("session/queue", json!({ "sessionId": "s" })).await;
        let texts: Vec<_> =
            queue["queued"].as_array().unwrap().iter().map(|one| one["text"].clone()).collect();
        assert_eq!(texts, ["one", "two"], "{queue}");
        assert!(queue.get("running").is_none(), "nothing runs by itself: {queue}");
        // It says `reject`, and what was recovered makes nobody busy.
        assert_eq!(peer.prompt("s", "three").await["status"], "ok");
        let all = read_all(&mut peer, "s").await;
        assert_dense(&all);
        assert_eq!(prompts_run(&all), ["stall", "one", "two", "three"]);
        let reasons: Vec<_> =
            of_type(&all, "turn/end").iter().map(|end| end["data"]["reason"]["kind"].clone()).collect();
        let first = if well { "aborted" } else { "interrupted" };
        assert_eq!(reasons, [first, "completed", "completed", "completed"]);
        end(daemon, peer, true).await;
    }
}

#[tokio::test]
async fn a_cursor_of_an_earlier_life_is_good_up_to_its_end_and_no_further() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let mut lives = Vec::new();
    for text in ["first", "second"] {
        let (daemon, mut peer) = start(&home).await;
        peer.prompt("s", text).await;
        let position = peer.call("session/resume", json!({ "sessionId": "s" })).await;
        lives.push(position);
        end(daemon, peer, true).await;
    }
    let (old, new) = (&lives[0], &lives[1]);
    assert_ne!(old["epoch"], new["epoch"]);
    let (daemon, mut peer) = start(&home).await;
    let cursor = |since: &Value, epoch: &Value| json!({ "sessionId": "s", "since": since, "epoch": epoch });
    let old_end = old["lastSeq"].as_u64().unwrap();
    let new_end = new["lastSeq"].as_u64().unwrap();

    let subscribed = peer.call("session/subscribe", cursor(&json!(old_end - 1), &old["epoch"])).await;
    assert_eq!(subscribed["epoch"], new["epoch"]);
    let last = peer.take(|message| message["params"]["event"]["seq"] == new_end).await;
    let mut replayed = seen(&mut peer, "s");
    replayed.push(last["params"]["event"].clone());
    peer.call("session/unsubscribe", json!({ "sessionId": "s" })).await;
    let seqs: Vec<u64> = replayed.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (old_end..=new_end).collect::<Vec<_>>(), "all that came after, of both lives");

    for (since, epoch) in
        [(json!(old_end + 1), &old["epoch"]), (json!(new_end + 1), &new["epoch"]), (json!(0), &json!(12345))]
    {
        let refused = peer.refused("session/subscribe", cursor(&since, epoch)).await;
        assert_eq!(refused["code"], -32011, "{refused}");
        assert_eq!(refused["data"]["kind"], "cursor_invalid");
        assert_eq!(refused["data"]["lastSeq"], new_end);
        assert_eq!(refused["data"]["epoch"], new["epoch"]);
    }
    let refused = peer.refused("session/subscribe", json!({ "sessionId": "s", "since": 3 })).await;
    assert_eq!(refused["code"], -32602, "a place without its life: {refused}");
    end(daemon, peer, true).await;
}

#[tokio::test]
async fn a_closed_session_tells_its_followers_and_can_be_resumed() {
    let home = Home::new();
    home.scripted(&[STALL, ANSWER], "");
    let (daemon, mut peer) = start(&home).await;
    let running = peer.send_prompt("s", "stall").await;
    peer.event("assistant/chunk").await;
    let mut other = daemon.peer().await;
    let before = other.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    assert_eq!(other.call("session/close", json!({ "sessionId": "s" })).await, json!({}));
    let reply = peer.reply(running).await;
    assert_eq!(reply["result"]["status"], "aborted", "{reply}");
    for told in [&mut peer, &mut other] {
        let closed = told.notification("session.closed").await;
        assert_eq!(closed, json!({ "sessionId": "s", "cause": "closed" }));
    }
    let live = seen(&mut peer, "s");
    assert_eq!(seen(&mut other, "s"), live, "both saw the same");
    assert_eq!(live.last().unwrap()["type"], "turn/end");

    let resumed = peer.call("session/resume", json!({ "sessionId": "s" })).await;
    assert_ne!(resumed["epoch"], before["epoch"], "a new life");
    assert!(resumed["lastSeq"].as_u64().unwrap() >= u64::try_from(live.len()).unwrap(), "{resumed}");
    assert_eq!(peer.prompt("s", "again").await["status"], "ok");
    let all = read_all(&mut peer, "s").await;
    assert_dense(&all);
    assert_eq!(all[..live.len()], live);
    other.expect_silence().await;
    other.finish().await;
    let unknown = peer.refused("session/resume", json!({ "sessionId": "unknown" })).await;
    assert_eq!(unknown["data"]["kind"], "session_not_found");
    peer.take_aside();
    end(daemon, peer, true).await;
}

#[tokio::test]
async fn a_key_is_known_in_the_next_life_and_starts_nothing_again() {
    for well in [true, false] {
        let home = Home::new();
        home.scripted(&[ANSWER], "");
        let keyed = |text: &str| {
            let mut params = queued("s", text);
            params["idempotencyKey"] = json!("once");
            params
        };
        let (daemon, mut peer) = start(&home).await;
        let first = peer.call("session/prompt", keyed("only once")).await;
        assert_eq!(first["status"], "ok");
        end(daemon, peer, well).await;

        let (daemon, mut peer) = start(&home).await;
        assert_eq!(peer.call("session/prompt", keyed("only once")).await, first);
        let refused = peer.refused("session/prompt", keyed("something else")).await;
        assert_eq!(refused["code"], -32602, "{refused}");
        assert_eq!(refused["data"]["path"], "idempotencyKey", "{refused}");
        let all = read_all(&mut peer, "s").await;
        assert_eq!(prompts_run(&all), ["only once"]);
        assert_eq!(of_type(&all, "turn/start").len(), 1);
        end(daemon, peer, true).await;
    }
}

/// The repeat waited for a turn that waited for a prompt, for ever.
#[tokio::test]
async fn the_repeat_of_a_prompt_that_waits_in_the_log_is_the_prompt_that_it_waits_for() {
    let home = Home::new();
    home.scripted(&[STALL, ANSWER], "");
    let (daemon, mut peer) = start(&home).await;
    peer.send_prompt("s", "stall").await;
    peer.event("assistant/chunk").await;
    peer.take_aside();
    let mut keyed = queued("s", "once");
    keyed["idempotencyKey"] = json!("key");
    peer.send("session/prompt", keyed.clone()).await;
    let inserted = peer.event("agent/inbox/spliced").await;
    end(daemon, peer, false).await;

    let (daemon, mut peer) = start(&home).await;
    let outcome = peer.call("session/prompt", keyed).await;
    assert_eq!(outcome["messageId"], inserted["event"]["data"]["inserted"][0]["id"]);
    assert_eq!(outcome["status"], "ok");
    let told = seen(&mut peer, "s");
    assert_eq!(told[0]["type"], "session/opened", "from the first event of this request on");
    assert_eq!(told.last().unwrap()["type"], "turn/end");
    let all = read_all(&mut peer, "s").await;
    assert_eq!(prompts_run(&all), ["stall", "once"]);
    end(daemon, peer, true).await;
}
