//! What a session may use, and what it has used.

use serde_json::json;

use crate::model_server::chat;
use crate::stage::{Stage, leave};

/// Each answer of the model server is 12 tokens: 6 read, 4 of the cache, 2 written.
const PRICES: &str =
    "[providers.fake.models.m]\nprice_input = 100000.0\nprice_cache_read = 50000.0\nprice_output = 200000.0";

#[tokio::test]
async fn a_budget_ends_the_turn_before_the_next_call_and_can_be_raised() {
    let stage = Stage::with("", "[sessions]\nbudget_tokens = 20").await;
    stage.says(&["one"]);
    stage.runs("echo hi");
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "first").await["status"], "ok");
    // 12 of 20 are used: one more call is made, and the step after it is not.
    let reply = peer.prompt("s", "second").await;
    assert_eq!((&reply["status"], &reply["reason"]["error"]["code"]), (&json!("error"), &json!("BUDGET")));
    assert_eq!(stage.model.requests().len(), 2);
    let reply = peer.prompt("s", "third").await;
    let message = reply["reason"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("24 of 20 tokens") && message.contains("session/update"), "{message}");
    assert_eq!(stage.model.requests().len(), 2);
    peer.call("session/update", json!({ "sessionId": "s", "budgetTokens": 30 })).await;
    stage.says(&["four"]);
    assert_eq!(peer.prompt("s", "fourth").await["status"], "ok");
    let sent = stage.model.requests().pop().unwrap();
    assert!(sent.text().contains("third"), "what was said meanwhile was not lost");
    peer.call("session/update", json!({ "sessionId": "s", "budgetTokens": 0 })).await;
    stage.says(&["five"]);
    assert_eq!(peer.prompt("s", "fifth").await["status"], "ok");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_budget_of_money_is_chosen_at_creation_and_survives_a_restart() {
    let mut stage = Stage::with("", PRICES).await;
    let mut peer = stage.peer_with(json!({ "budgetCost": 100 })).await;
    peer.call("session/create", json!({ "sessionId": "s", "budgetCost": 1.0 })).await;
    stage.says(&["one"]);
    assert_eq!(peer.prompt("s", "first").await["status"], "ok");
    peer.take_aside();
    leave(peer).await;
    stage.stop().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    // 6 at 0.1, 4 at 0.05, 2 at 0.2.
    let reply = peer.prompt("s", "second").await;
    let message = reply["reason"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("1.2000 of 1.0000"), "{message}");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn what_was_used_is_listed_while_it_runs_and_from_the_log() {
    let mut stage = Stage::with("", PRICES).await;
    stage.says(&["one", "two"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "first").await;
    peer.prompt("s", "second").await;
    peer.take_aside();
    let expected = json!({
        "inputTokens": 12, "outputTokens": 4, "cacheReadTokens": 8, "cacheWriteTokens": 0, "totalTokens": 24,
        "cost": 2.4,
    });
    let listed = peer.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["totals"], expected);
    leave(peer).await;
    stage.stop().await;
    let offline = stage.home.run(["sessions", "--json"]).await.expect_code(0);
    let offline: serde_json::Value = serde_json::from_str(&offline.stdout).unwrap();
    assert_eq!(offline["sessions"][0]["totals"], expected);
    assert_eq!(offline["sessions"][0]["cacheHitPercent"], 40);
    let table = stage.home.run(["sessions"]).await.expect_code(0).stdout;
    assert!(table.contains("40%") && table.contains("2.40"), "{table}");
    stage.begin().await;
    let mut peer = stage.peer().await;
    let listed = peer.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["totals"], expected);
    leave(peer).await;
}

#[tokio::test]
async fn what_a_subagent_uses_counts_to_its_parent() {
    let stage = Stage::new().await;
    let arguments = json!({ "description": "look", "prompt": "look around" }).to_string();
    stage.model.push(chat::calls(&[("call_1", "subagent", &arguments)]));
    stage.says(&["the child's answer", "the parent's"]);
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "delegate").await["status"], "ok");
    let listed = peer.call("session/list", json!({})).await;
    for session in listed["sessions"].as_array().unwrap() {
        let own = if session["sessionId"] == "s" { 36 } else { 12 };
        assert_eq!(session["totals"]["totalTokens"], own, "{session}");
    }
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_summary_counts_to_the_budget() {
    let tables =
        "[providers.fake.models.m]\ncontext_window = 3000\ntools = false\n[sessions]\nbudget_tokens = 30";
    let stage = Stage::with("", tables).await;
    let mut peer = stage.peer().await;
    // 12 tokens each by the provider's count; the third prompt alone has no room.
    stage.says(&["one", "two"]);
    peer.prompt("s", &"a".repeat(4000)).await;
    peer.prompt("s", &"b".repeat(4000)).await;
    stage.says(&["a summary"]);
    let reply = peer.prompt("s", &"c".repeat(9000)).await;
    assert_eq!(reply["reason"]["error"]["code"], "BUDGET", "{reply}");
    assert_eq!(stage.model.requests().len(), 3);
    let listed = peer.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["totals"]["totalTokens"], 36);
    peer.take_aside();
    leave(peer).await;
}
