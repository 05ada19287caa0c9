//! Delegation: a child session's whole life as its parent's clients see it.

#[path = "subagents/ends.rs"]
mod ends;

use serde_json::{Value, json};

use crate::stage::{events, outline};
use crate::support::{Daemon, Peer, assert_dense, of_type};

/// A parent that delegates once and then says what it was told; `child` are the parts of the child's answer.
pub(crate) fn delegating(child: &str) -> Vec<String> {
    vec![
        format!(r#"{{"prompt":"find the answer","step":1,"parts":{child}}}"#),
        r#"{"prompt":"find the answer","parts":[{"text":"and so on"}]}"#.to_owned(),
        r#"{"prompt":"delegate","step":1,"parts":[{"text":"delegating"},{"tool":"subagent","id":"call_1","arguments":{"description":"Find it","prompt":"find the answer"}}]}"#.to_owned(),
        r#"{"parts":[{"text":"done"}]}"#.to_owned(),
    ]
}

/// A daemon whose scripted model plays these lines.
pub(crate) fn daemon(lines: &[String], tables: &str) -> Daemon {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    Daemon::scripted(&lines, tables)
}

/// Prompts and takes everything up to the reply, which comes last.
pub(crate) async fn prompt_all(peer: &mut Peer, session: &str, text: &str) -> (Vec<Value>, Value) {
    let id = peer.send_prompt(session, text).await;
    let reply = peer.reply(id).await;
    (peer.take_aside(), reply)
}

/// The child that a parent's events name.
pub(crate) fn child_of(messages: &[Value]) -> String {
    let started = messages.iter().find(|message| message["method"] == "subagent.started").expect("a child");
    started["params"]["childSessionId"].as_str().unwrap().to_owned()
}

/// Messages of one session: its events and statuses.
fn of_session(messages: &[Value], session: &str) -> Vec<Value> {
    messages.iter().filter(|message| message["params"]["sessionId"] == session).cloned().collect()
}

fn at(words: &[String], word: &str) -> usize {
    words.iter().position(|other| other == word).unwrap_or_else(|| panic!("no {word} in {words:?}"))
}

/// The order of docs/protocol.md 6: tool/call, subagent.started, the child's events, subagent.finished, tool/result.
#[track_caller]
fn assert_order(messages: &[Value], parent: &str) {
    let child = child_of(messages);
    let words = outline(messages);
    let of_child: Vec<usize> = (messages.iter().enumerate())
        .filter(|(_, message)| message["params"]["sessionId"] == child.as_str())
        .map(|(at, _)| at)
        .collect();
    let method = |name: &str| messages.iter().position(|message| message["method"] == name).unwrap();
    let event = |kind: &str| {
        let fits = |message: &Value| {
            message["params"]["sessionId"] == parent && message["params"]["event"]["type"] == kind
        };
        messages.iter().position(fits).unwrap_or_else(|| panic!("no {kind}: {words:?}"))
    };
    let (first, last) = (of_child[0], of_child[of_child.len() - 1]);
    assert!(event("tool/call") < event("subagent/started"), "{words:?}");
    assert!(event("subagent/started") < method("subagent.started"), "{words:?}");
    assert!(method("subagent.started") < first, "{words:?}");
    assert!(last < event("subagent/finished"), "{words:?}");
    assert!(event("subagent/finished") < method("subagent.finished"), "{words:?}");
    assert!(method("subagent.finished") < event("tool/result"), "{words:?}");
}

#[tokio::test]
async fn a_child_works_in_its_own_session_and_its_last_message_is_the_tools_result() {
    let daemon = daemon(&delegating(r#"[{"text":"It is 42."}]"#), "");
    let mut peer = daemon.peer().await;
    let (messages, reply) = prompt_all(&mut peer, "p", "delegate").await;
    assert_eq!(reply["result"]["status"], "ok");
    assert_order(&messages, "p");
    let child = child_of(&messages);
    let parents = of_session(&messages, "p");
    let result = events(&parents).into_iter().find(|event| event["type"] == "tool/result").unwrap().clone();
    assert_eq!(result["data"]["message"]["content"][0]["text"], "It is 42.");
    assert_eq!(result["data"]["meta"], json!({ "childSessionId": child, "stopReason": "completed" }));
    let finished = messages.iter().find(|message| message["method"] == "subagent.finished").unwrap();
    assert_eq!(
        finished["params"],
        json!({
            "provider": "spawn", "agentId": child, "parentSessionId": "p", "childSessionId": child,
            "status": "ok", "stopReason": "completed", "lastAssistantMessage": [{ "type": "text", "text": "It is 42." }],
        })
    );
    // The child's own story, whole and in order, with its own status.
    let childs = of_session(&messages, &child);
    let words = outline(&childs);
    assert_eq!(at(&words, "running") + 1, at(&words, "turn/start"));
    assert_eq!(words.last().unwrap(), "idle");
    let log = daemon.home().logged(&child);
    assert_dense(&log);
    assert_eq!(log.len(), events(&childs).len());
    let listed = peer.call("session/list", json!({})).await;
    let sessions = listed["sessions"].as_array().unwrap();
    let entry = sessions.iter().find(|session| session["sessionId"] == child.as_str()).unwrap();
    assert_eq!(entry["parentSessionId"], "p");
}

#[tokio::test]
async fn a_child_inherits_route_limits_and_mode_and_delegates_nothing() {
    let lines = delegating(
        r#"[{"tool":"subagent","arguments":{"description":"deeper","prompt":"more"}},{"tool":"bash","arguments":{"command":"pwd"}}]"#,
    );
    let daemon = daemon(&lines, "");
    let mut peer = daemon.connect().await;
    let bind = json!({
        "cwd": daemon.home().work(), "maxTokens": 4321, "reasoningEffort": "low", "permissionMode": "full-access",
    });
    peer.initialize(bind).await;
    let (messages, _) = prompt_all(&mut peer, "p", "delegate").await;
    let log = daemon.home().logged(&child_of(&messages));
    let header = of_type(&log, "request/header")[0];
    assert_eq!(header["data"]["header"]["config"]["maxTokens"], 4321);
    assert_eq!(header["data"]["header"]["config"]["reasoningEffort"], "low");
    assert_eq!(of_type(&log, "permission/preset")[0]["data"]["preset"], "danger-full-access");
    let tools = header["data"]["header"]["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["name"] != "subagent"), "{tools:?}");
    let results = of_type(&log, "tool/result");
    assert_eq!(results[0]["data"]["error"]["code"], "UNKNOWN_TOOL");
    let place = results[1]["data"]["message"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(place.trim_end(), daemon.home().work().canonicalize().unwrap().to_str().unwrap());
}

#[tokio::test]
async fn several_children_work_at_the_same_time_and_those_over_the_limit_are_told_to_the_model() {
    let mut lines = delegating(r#"[{"text":"unused"}]"#);
    // Each waits for a file that the other one makes: one after the other they would never end.
    lines[0] = r#"{"prompt":"part one","step":1,"parts":[{"tool":"bash","arguments":{"command":"touch one; until [ -e two ]; do sleep 0.01; done","timeoutMs":15000}}]}"#.to_owned();
    lines[1] = r#"{"prompt":"part two","step":1,"parts":[{"tool":"bash","arguments":{"command":"touch two; until [ -e one ]; do sleep 0.01; done","timeoutMs":15000}}]}"#.to_owned();
    lines[2] = r#"{"prompt":"delegate","step":1,"parts":[
        {"tool":"subagent","id":"a","arguments":{"description":"a","prompt":"part one"}},
        {"tool":"subagent","id":"b","arguments":{"description":"b","prompt":"part two"}},
        {"tool":"subagent","id":"c","arguments":{"description":"c","prompt":"part three"}}]}"#
        .replace('\n', "");
    let daemon = daemon(&lines, "[limits]\nsubagents = 2\n");
    let mut peer = daemon.peer().await;
    let (messages, reply) = prompt_all(&mut peer, "p", "delegate").await;
    assert_eq!(reply["result"]["status"], "ok");
    let log = daemon.home().logged("p");
    let results = of_type(&log, "tool/result");
    let ids: Vec<&Value> = results.iter().map(|result| &result["data"]["message"]["toolCallId"]).collect();
    assert_eq!(ids, ["a", "b", "c"], "in the model's order");
    assert_eq!(results[0]["data"]["message"]["content"][0]["text"], "done");
    assert_eq!(
        results[2]["data"]["message"]["content"][0]["text"],
        "Error: 2 subagents run already, which is the limit (limits.subagents); call again when one has ended"
    );
    assert_eq!(of_type(&log, "subagent/started").len(), 2);
    assert_eq!(of_type(&log, "subagent/finished").len(), 2);
    let started = messages.iter().filter(|message| message["method"] == "subagent.started").count();
    assert_eq!(started, 2);
}

#[tokio::test]
async fn a_workspace_is_not_left_by_delegating_out_of_it() {
    let mut lines = delegating(r#"[{"text":"inside"}]"#);
    lines[2] = lines[2]
        .replace("\"prompt\":\"find the answer\"}}", "\"prompt\":\"find the answer\",\"cwd\":\"/\"}}");
    let daemon = daemon(&lines, "");
    let mut peer = daemon.peer().await;
    let id = peer.send_prompt("p", "delegate").await;
    assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    peer.take_aside();
    let log = daemon.home().logged("p");
    assert_eq!(of_type(&log, "tool/result")[0]["data"]["error"]["code"], "FS_SANDBOX_DENIED");
    assert!(of_type(&log, "subagent/started").is_empty());
}

#[tokio::test]
async fn who_hears_of_every_session_hears_a_child_once_and_after_its_start() {
    let daemon = daemon(&delegating(r#"[{"text":"It is 42."}]"#), "");
    let mut watcher = daemon.connect().await;
    watcher.initialize(json!({ "cwd": daemon.home().work(), "sessions": "all" })).await;
    let mut peer = daemon.peer().await;
    let (own, _) = prompt_all(&mut peer, "p", "delegate").await;
    let child = child_of(&own);
    let mut seen = Vec::new();
    while !(seen.last().is_some_and(|message: &Value| {
        message["method"] == "session.status"
            && message["params"] == json!({ "sessionId": "p", "status": "idle" })
    })) {
        seen.push(watcher.message().await);
    }
    assert_order(&seen, "p");
    let seqs: Vec<u64> =
        events(&of_session(&seen, &child)).iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn history_is_replayed_with_its_children_in_the_same_order() {
    let daemon = daemon(&delegating(r#"[{"text":"It is 42."}]"#), "");
    let mut peer = daemon.peer().await;
    let (live, _) = prompt_all(&mut peer, "p", "delegate").await;
    let child = child_of(&live);
    let mut late = daemon.peer().await;
    late.call("session/subscribe", json!({ "sessionId": "p", "since": -1 })).await;
    let mut seen = late.take_aside();
    let idle = |seen: &[Value]| {
        seen.iter().any(|message| {
            message["params"]["event"]["type"] == "turn/end" && message["params"]["sessionId"] == "p"
        })
    };
    while !idle(&seen) {
        seen.push(late.message().await);
    }
    assert_order(&seen, "p");
    assert_eq!(events(&of_session(&seen, &child)), events(&of_session(&live, &child)));
    late.leave_unread();

    // Alone, its descendants are not told; and one who knows a part of a child gets the rest.
    let mut alone = daemon.peer().await;
    alone.call("session/subscribe", json!({ "sessionId": "p", "since": -1, "tree": false })).await;
    alone.event("turn/end").await;
    assert!(of_session(&alone.take_aside(), &child).is_empty());
    alone.leave_unread();

    let mut knows = daemon.peer().await;
    let log = daemon.home().logged(&child);
    let epoch = log[0]["data"]["epoch"].clone();
    let (last, parents) = (log.len() - 1, daemon.home().logged("p"));
    let params = json!({
        "sessionId": "p", "since": parents.len() - 1, "epoch": parents[0]["data"]["epoch"],
        "children": { &child: { "epoch": epoch, "since": last - 2 } },
    });
    knows.call("session/subscribe", params).await;
    for seq in [last - 1, last] {
        let told = knows.message().await;
        assert_eq!(told["params"]["sessionId"], child.as_str());
        assert_eq!(told["params"]["event"]["seq"], seq);
    }
    knows.leave_unread();
    let wrong = json!({ "sessionId": "p", "since": -1, "children": { &child: { "epoch": 7, "since": 1 } } });
    let error = peer.refused("session/subscribe", wrong).await;
    assert_eq!(error["data"]["kind"], "cursor_invalid");
}

#[tokio::test]
async fn who_comes_in_the_middle_of_a_childs_work_hears_the_rest() {
    let daemon = daemon(
        &delegating(r#"[{"tool":"bash","arguments":{"command":"until [ -e go ]; do sleep 0.01; done"}}]"#),
        "",
    );
    let mut peer = daemon.peer().await;
    let id = peer.send_prompt("p", "delegate").await;
    let started = peer.notification("subagent.started").await;
    let child = started["childSessionId"].as_str().unwrap().to_owned();
    let mut late = daemon.peer().await;
    late.call("session/subscribe", json!({ "sessionId": "p" })).await;
    std::fs::write(daemon.home().work().join("go"), "").unwrap();
    let ends = late.take(|message| {
        message["params"]["sessionId"] == child.as_str() && message["params"]["event"]["type"] == "turn/end"
    });
    ends.await;
    late.notification("subagent.finished").await;
    peer.reply(id).await;
    peer.take_aside();
    // With its parent a child is left, too.
    late.call("session/unsubscribe", json!({ "sessionId": "p" })).await;
    late.take_aside();
    peer.prompt(&child, "anything").await;
    peer.take_aside();
    late.expect_silence().await;
}

/// A page from the store is held once a connection: a parent that waited for its child while it held it never went on.
#[tokio::test]
async fn a_reader_far_behind_gets_parent_and_children_from_the_file_in_the_same_order() {
    let line = "some output of a child\\n".repeat(100);
    let lines = delegating(&format!(r#"[{{"text":"{line}","repeat":400}}]"#));
    let daemon = daemon(&lines, "");
    let mut peer = daemon.peer().await;
    for _ in 0..2 {
        assert_eq!(peer.prompt("p", "delegate").await["status"], "ok");
    }
    peer.leave_unread();
    let home = daemon.home().clone();
    assert!(daemon.stop().await.success());

    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut late = daemon.peer().await;
    late.call("session/subscribe", json!({ "sessionId": "p", "since": -1 })).await;
    let mut seen = late.take_aside();
    let ended = |message: &Value| {
        message["params"]["event"]["type"] == "turn/end" && message["params"]["sessionId"] == "p"
    };
    while seen.iter().filter(|message| ended(message)).count() < 2 {
        seen.push(late.message().await);
    }
    let second = 1 + seen.iter().position(ended).unwrap();
    for turn in [&seen[..second], &seen[second..]] {
        assert_order(turn, "p");
        let child = child_of(turn);
        let of_child = of_session(turn, &child);
        let told: Vec<u64> = events(&of_child).iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!(told.len(), home.logged(&child).len());
    }
    late.leave_unread();
}
