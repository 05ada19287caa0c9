//! Secrets stay where they belong: a token's and a provider's key are nowhere in what the daemon writes, says, or hands to
//! its tools.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::model_server::{ModelServer, chat};
use crate::support::{Daemon, Home, Peer};

const KEY: &str = "sk-canary-7f3a9c51e0d84b26";

/// The files below a directory that hold one of the secrets.
fn holding(directory: &Path, secrets: &[&str], found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holding(&path, secrets, found);
        } else if let Ok(bytes) = fs::read(&path) {
            let has = |secret: &&str| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            if secrets.iter().any(has) {
                found.push(path.display().to_string());
            }
        }
    }
}

#[tokio::test]
async fn secrets_are_in_no_log_no_session_no_environment_of_a_tool_and_no_line_on_stderr() {
    let model = ModelServer::start().await;
    let home = Home::new();
    home.configure(&format!(
        "default_provider = \"fake\"\ndefault_model = \"m\"\n[providers.fake]\nkind = \"chat\"\nbase_url = \"{}\"\n\
         api_key_env = \"CANARY_KEY\"\nheaders = {{ x-more = \"{KEY}\" }}\n[tools]\nallow_unsandboxed_remote = true\n",
        model.url()
    ));
    let token = home.run(["token", "create", "canary"]).await.expect_code(0).stdout.trim().to_owned();
    let mut command = home.dshd(["serve", "--listen", "tcp:127.0.0.1:0"]);
    command.env("CANARY_KEY", KEY).env("DSHD_LOG", "trace").env("DSHD_TOKEN", &token);
    let daemon = Daemon::spawn(&home, command);

    let arguments = json!({ "command": "env", "description": "test" }).to_string();
    model.push(chat::calls(&[("call_1", "bash", &arguments)]));
    model.push(chat::reply(&["done"]));
    let mut peer = Peer::tcp(&daemon.tcp()).await;
    peer.call("authenticate", json!({ "token": token })).await;
    peer.initialize(json!({ "cwd": home.work() })).await;
    assert_eq!(peer.prompt("s", "go").await["status"], "ok");
    let told = serde_json::to_string(&peer.take_aside()).unwrap();
    assert!(told.contains("DSHD_SESSION"), "the tool has shown its environment: {told}");
    // A wrong token is a secret too: it may be one of another daemon.
    let wrong = format!("dshd_{}", "w".repeat(43));
    let mut stranger = Peer::tcp(&daemon.tcp()).await;
    stranger.refused("authenticate", json!({ "token": wrong })).await;
    stranger.expect_eof().await;
    peer.finish().await;

    let secrets = [KEY, token.as_str(), wrong.as_str()];
    let said = daemon.stderr();
    assert!(daemon.stop().await.success());
    for secret in secrets {
        assert!(!told.contains(secret), "a client was told of a secret: {told}");
        assert!(!said.contains(secret), "a secret is on stderr");
    }
    assert!(said.contains("authenticated") && said.contains("canary"), "the token's name is logged: {said}");
    let mut found = Vec::new();
    holding(&home.data(), &secrets, &mut found);
    assert_eq!(found, Vec::<String>::new());
    let seen = model.requests();
    assert_eq!(seen.len(), 2, "the key was used");
}
