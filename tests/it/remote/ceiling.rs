//! What a client may ask for is bounded by its address, its token and the configuration; and it is out when its token is.

use serde_json::{Value, json};

use super::{ANSWER, CONSENT, create_token, serve};
use crate::stage::leave;
use crate::support::{Daemon, Home, Peer};

async fn come_in(daemon: &Daemon, secret: &str) -> Peer {
    let mut peer = Peer::tcp(&daemon.tcp()).await;
    peer.call("authenticate", json!({ "token": secret })).await;
    peer
}

/// The mode of a session, as its log tells it.
async fn mode_of(peer: &mut Peer, session: &str) -> Value {
    let page = peer.call("session/read", json!({ "sessionId": session, "since": -1 })).await;
    let events = page["events"].as_array().unwrap();
    let mode = events.iter().rev().find(|event| event["type"] == "sandbox/mode");
    mode.unwrap_or_else(|| panic!("no mode: {page}"))["data"]["mode"].clone()
}

#[tokio::test]
async fn over_tcp_a_client_gets_the_workspace_and_may_ask_for_no_more() {
    let home = Home::new();
    home.scripted(&[ANSWER], "[sessions]\npermission_mode = \"full-access\"");
    let secret = create_token(&home, &["test"]).await;
    let daemon = serve(&home, "tcp:127.0.0.1:0");
    let mut peer = come_in(&daemon, &secret).await;
    let bind = |more: Value| {
        let mut params = json!({ "cwd": home.work() });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let denied = peer.refused("initialize", bind(json!({ "permissionMode": "full-access" }))).await;
    assert_eq!(denied["code"], -32013, "{denied}");
    assert_eq!(
        denied["data"],
        json!({ "kind": "permission_denied", "scope": "full-access", "modeMax": "workspace-write" })
    );
    peer.initialize(bind(json!({}))).await;
    let denied = peer.refused("session/create", json!({ "permissionMode": "full-access" })).await;
    assert_eq!(denied["data"]["kind"], "permission_denied");
    assert_eq!(peer.prompt("lowered", "hello").await["status"], "ok");
    assert_eq!(mode_of(&mut peer, "lowered").await, "workspace-write");
    let update = json!({ "sessionId": "lowered", "permissionMode": "full-access" });
    assert_eq!(peer.refused("session/update", update).await["code"], -32013);
    peer.call("session/update", json!({ "sessionId": "lowered", "permissionMode": "read-only" })).await;
    peer.take_aside();

    let mut owner = daemon.peer().await;
    assert_eq!(owner.prompt("full", "hello").await["status"], "ok");
    assert_eq!(mode_of(&mut owner, "full").await, "danger-full-access");
    owner.take_aside();
    let id = peer
        .send("session/prompt", crate::stage::prompt("full", "and now?", &json!({ "whenBusy": "queue" })))
        .await;
    let denied = peer.reply(id).await["error"].take();
    assert_eq!(
        (&denied["code"], &denied["data"]["modeMax"]),
        (&json!(-32013), &json!("workspace-write")),
        "{denied}"
    );
    leave(peer).await;
    leave(owner).await;
}

#[tokio::test]
async fn the_lowest_of_address_token_and_configuration_holds() {
    let home = Home::new();
    let tables = |more: &str| {
        let unix = home.socket();
        format!(
            "[[listen]]\nunix = {unix:?}\n[[listen]]\ntcp = \"127.0.0.1:0\"\nmode_max = \"full-access\"\n\
             [tools]\nallow_unsandboxed_remote = true\n{more}"
        )
    };
    home.scripted(&[ANSWER], &tables(""));
    let low = create_token(&home, &["low", "--mode-max", "read-only"]).await;
    let high = create_token(&home, &["high"]).await;
    let daemon = Daemon::spawn(&home, home.dshd(["serve"]));
    let mut peer = come_in(&daemon, &high).await;
    peer.initialize(json!({ "cwd": home.work(), "permissionMode": "full-access" })).await;
    let mut low = come_in(&daemon, &low).await;
    low.initialize(json!({ "cwd": home.work() })).await;
    low.prompt("s", "hello").await;
    assert_eq!(mode_of(&mut low, "s").await, "read-only");
    low.take_aside();

    home.scripted(&[ANSWER], &tables("[auth]\nmode_max = \"workspace-write\""));
    daemon.signal(rustix::process::Signal::HUP);
    daemon.wait_for_line("the configuration was read again");
    let denied = peer.refused("session/create", json!({ "permissionMode": "full-access" })).await;
    assert_eq!(denied["data"]["modeMax"], "workspace-write");
    leave(peer).await;
    leave(low).await;
}

/// A client whose ceiling is below full access can't go above it by asking and then allowing what it has asked for.
#[tokio::test]
async fn who_may_not_ask_for_full_access_allows_nothing_and_is_not_waited_for() {
    let home = Home::new();
    let call = json!({ "step": 1, "parts": [{ "tool": "bash", "arguments": {
        "command": "touch made", "sandbox_permissions": "require_escalated" } }] });
    let unix = home.socket();
    let tables = format!(
        "[[listen]]\nunix = {unix:?}\n[[listen]]\ntcp = \"127.0.0.1:0\"\n[tools]\nallow_unsandboxed_remote = true\n"
    );
    home.scripted(&[&call.to_string(), ANSWER], &tables);
    let token = create_token(&home, &["phone"]).await;
    let daemon = Daemon::spawn(&home, home.dshd(["serve"]));
    let mut phone = come_in(&daemon, &token).await;
    phone.initialize(json!({ "cwd": home.work(), "approvals": true, "deltas": false })).await;
    // Alone it has nobody to ask.
    assert_eq!(phone.prompt("s", "go").await["status"], "ok");
    assert_eq!(phone.event("approval/decided").await["event"]["data"]["outcome"], "unavailable");
    let mut desk = Peer::unix(&home.socket()).await;
    desk.initialize(json!({ "cwd": home.work(), "approvals": true, "deltas": false })).await;
    desk.call("session/subscribe", json!({ "sessionId": "s" })).await;
    phone.take_aside();
    let id = phone.send_prompt("s", "go").await;
    let asked = phone.event("approval/asked").await["event"]["data"].clone();
    let mut answer = json!({ "sessionId": "s", "approvalId": asked["id"], "outcome": "allow_once" });
    let denied = phone.refused("session/approval/answer", answer.clone()).await;
    assert_eq!((&denied["code"], &denied["data"]["modeMax"]), (&json!(-32013), &json!("workspace-write")));
    answer["outcome"] = json!("reject");
    phone.call("session/approval/answer", answer).await;
    assert_eq!(phone.reply(id).await["result"]["status"], "ok");
    assert!(!home.work().join("made").exists());
    for mut peer in [phone, desk] {
        peer.leave_unread();
        peer.finish().await;
    }
}

#[tokio::test]
async fn a_revoked_token_ends_its_connections_and_no_others() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let secret = create_token(&home, &["gone"]).await;
    let kept = create_token(&home, &["kept"]).await;
    let short = create_token(&home, &["short", "--expires", "3s"]).await;
    let daemon = serve(&home, "tcp:127.0.0.1:0");
    let mut expiring = come_in(&daemon, &short).await;
    let mut gone = come_in(&daemon, &secret).await;
    let mut stays = come_in(&daemon, &kept).await;
    stays.initialize(json!({ "cwd": home.work() })).await;
    home.run(["token", "revoke", "gone"]).await.expect_code(0);
    gone.expect_eof().await;
    let line = daemon.wait_for_line("closing the connections of a token");
    assert!(line.contains("gone"), "{line}");
    expiring.expect_eof().await;
    daemon.wait_for_line("it has expired");
    stays.call("server/status", json!({})).await;
    leave(stays).await;
    let mut again = Peer::tcp(&daemon.tcp()).await;
    assert_eq!(again.refused("authenticate", json!({ "token": secret })).await["code"], -32003);
    again.expect_eof().await;
}

#[tokio::test]
async fn a_loopback_address_without_tokens_is_served_and_admits_nobody() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let mut command = home.dshd(["serve", "--listen", "tcp:127.0.0.1:0"]);
    command.env(CONSENT.0, CONSENT.1);
    let daemon = Daemon::spawn(&home, command);
    let mut peer = Peer::tcp(&daemon.tcp()).await;
    assert_eq!(peer.refused("authenticate", json!({ "token": "x".repeat(48) })).await["code"], -32003);
    peer.expect_eof().await;
}
