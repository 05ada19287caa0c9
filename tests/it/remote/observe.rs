//! A token that observes changes nothing, whatever method it calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dshd::protocol::Method;
use serde_json::{Value, json};

use super::{ANSWER, create_token, serve};
use crate::stage::{leave, prompt};
use crate::support::{Home, Peer};

/// All files below a directory and what they hold.
fn files(directory: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all but a few take a session alone")]
fn params(method: Method, session: &str) -> Value {
    match method {
        Method::Prompt => prompt(session, "go", &json!({})),
        Method::Update => json!({ "sessionId": session, "title": "mine" }),
        Method::SetDirectory => json!({ "sessionId": session, "path": "/" }),
        Method::Blob => json!({ "sessionId": session, "attachmentId": "0".repeat(64) }),
        Method::Authenticate => json!({ "token": "x" }),
        Method::Models | Method::Ping | Method::Status | Method::Drain | Method::List => json!({}),
        _ => json!({ "sessionId": session }),
    }
}

#[tokio::test]
async fn no_method_lets_an_observer_change_anything() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let secret = create_token(&home, &["eye", "--scope", "observe"]).await;
    let daemon = serve(&home, "tcp:127.0.0.1:0");
    let mut owner = daemon.peer().await;
    owner.prompt("s", "hello").await;
    owner.take_aside();
    let mut before = BTreeMap::new();
    files(&home.data().join("sessions"), &mut before);

    let mut eye = Peer::tcp(&daemon.tcp()).await;
    eye.call("authenticate", json!({ "token": secret })).await;
    eye.initialize(json!({ "cwd": home.work() })).await;
    for &method in Method::ALL {
        if matches!(method, Method::Initialize | Method::Shutdown) {
            continue;
        }
        for session in ["s", "new"] {
            let id = eye.send(method.name(), params(method, session)).await;
            let reply = eye.reply(id).await;
            let kind = &reply["error"]["data"]["kind"];
            assert_eq!(
                kind == "permission_denied",
                method.needs_control(),
                "{} of {session}: {reply}",
                method.name()
            );
        }
        eye.take_aside();
    }
    eye.call("shutdown", json!({})).await;
    eye.leave_unread();

    let mut after = BTreeMap::new();
    files(&home.data().join("sessions"), &mut after);
    assert_eq!(before, after);
    let list = owner.call("session/list", json!({})).await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");
    let status = owner.call("server/status", json!({})).await;
    assert_eq!(status["phase"], "ready");
    leave(owner).await;
}
