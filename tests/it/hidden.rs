//! What no agent sees: the tools on files keep from it what the sandbox keeps from commands.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Peer, of_type};

/// A home with secrets in it that is the workspace itself, and a model that makes these calls, a step each.
fn home_with(calls: &[(&str, Value)]) -> Home {
    let home = Home::new();
    fs::create_dir(root(&home).join(".ssh")).unwrap();
    fs::write(root(&home).join(".ssh/id_ed25519"), "the secret needle\n").unwrap();
    fs::write(root(&home).join("plain.txt"), "a plain needle\n").unwrap();
    fs::create_dir_all(root(&home).join(".git/hooks")).unwrap();
    symlink(root(&home).join(".ssh/id_ed25519"), root(&home).join("link.txt")).unwrap();
    let mut lines: Vec<String> = (1..)
        .zip(calls)
        .map(|(step, (tool, arguments))| {
            json!({ "step": step, "parts": [{ "tool": tool, "arguments": arguments }] }).to_string()
        })
        .collect();
    lines.push(r#"{"parts":[{"text":"done"}]}"#.to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    home.scripted(&lines, "");
    home
}

async fn peer(daemon: &Daemon, home: &Home) -> Peer {
    let mut peer = daemon.connect().await;
    peer.initialize(json!({ "cwd": root(home), "deltas": false })).await;
    peer
}

/// The user's home.
fn root(home: &Home) -> PathBuf {
    home.path("home")
}

fn texts(home: &Home) -> Vec<String> {
    let events = home.logged("s");
    let text = |event: &&Value| {
        event["data"]["message"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    of_type(&events, "tool/result").iter().map(text).collect()
}

#[tokio::test]
async fn secrets_are_not_read_searched_listed_or_changed_even_in_a_workspace_that_holds_them() {
    let credentials = ".config/dshd/credentials.toml";
    let home = home_with(&[
        ("read", json!({ "file_path": ".ssh/id_ed25519" })),
        ("read", json!({ "file_path": "link.txt" })),
        ("read", json!({ "file_path": ".ssh/../.ssh/id_ed25519" })),
        ("grep", json!({ "pattern": "needle", "include": ".ssh/**" })),
        ("grep", json!({ "pattern": "needle", "path": ".ssh" })),
        ("grep", json!({ "pattern": "needle" })),
        ("glob", json!({ "pattern": ".ssh/**" })),
        ("write", json!({ "file_path": ".ssh/authorized_keys", "content": "x" })),
        ("write", json!({ "file_path": ".git/hooks/pre-commit", "content": "x" })),
        ("write", json!({ "file_path": credentials, "content": "x" })),
        ("write", json!({ "file_path": ".aws/credentials", "content": "x" })),
        (
            "bash",
            json!({ "command": "mkdir -p .aws .gnupg; echo x > .netrc; echo x > .bashrc; echo wrote nothing" }),
        ),
    ]);
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = peer(&daemon, &home).await;
    assert_eq!(peer.prompt("s", "go").await["status"], "ok");
    let texts = texts(&home);
    assert_eq!(texts.len(), 12, "{texts:#?}");
    assert!(texts[11].contains("wrote nothing"), "{}", texts[11]);
    for (at, text) in texts.iter().enumerate() {
        assert!(!text.contains("secret needle"), "{at}: {text}");
        assert!(!text.contains("id_ed25519") || text.starts_with("Error: may not look at"), "{at}: {text}");
    }
    assert!(texts[5].contains("a plain needle"), "{}", texts[5]);
    for made in
        [".ssh/authorized_keys", ".git/hooks/pre-commit", credentials, ".aws", ".gnupg", ".netrc", ".bashrc"]
    {
        assert!(!root(&home).join(made).exists(), "{made}");
    }
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn what_somebody_allows_is_read() {
    let home = home_with(&[("read", json!({ "file_path": ".ssh/id_ed25519" }))]);
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.connect().await;
    peer.initialize(json!({ "cwd": root(&home), "deltas": false, "approvals": true })).await;
    let id = peer.send_prompt("s", "go").await;
    let asked = peer.event("approval/asked").await["event"]["data"].clone();
    assert!(asked["reason"].as_str().unwrap().contains("hidden from agents"), "{asked}");
    let answer = json!({ "sessionId": "s", "approvalId": asked["id"], "outcome": "allow_once" });
    peer.call("session/approval/answer", answer).await;
    assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    assert!(texts(&home)[0].contains("1: the secret needle"));
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_agent_reads_the_rest_of_its_own_long_output() {
    let home = home_with(&[("bash", json!({ "command": "seq 1 200000" }))]);
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = peer(&daemon, &home).await;
    peer.prompt("s", "go").await;
    let text = texts(&home).remove(0);
    let path = text.split("all of it is in ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let call = json!({ "turn": 2, "step": 1, "parts": [{ "tool": "read", "arguments": { "file_path": path, "offset": 150_000, "limit": 1 } }] });
    home.scripted(&[&call.to_string(), r#"{"parts":[{"text":"done"}]}"#], "");
    peer.prompt("s", "read it").await;
    assert!(texts(&home)[1].contains("150000: 150000"), "{}", texts(&home)[1]);
    // Another session's is hidden.
    let call = json!({ "step": 1, "parts": [{ "tool": "read", "arguments": { "file_path": path } }] });
    home.scripted(&[&call.to_string(), r#"{"parts":[{"text":"done"}]}"#], "");
    peer.prompt("other", "read it").await;
    let other = home.logged("other");
    assert_eq!(of_type(&other, "tool/result")[0]["data"]["error"]["code"], "FS_SANDBOX_DENIED");
    peer.leave_unread();
    peer.finish().await;
    daemon.stop().await;
}
