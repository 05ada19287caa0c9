//! The start: what refuses it, with which code, and that nothing is served too early.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tokio::net::UnixStream;

use super::ANSWER;
use crate::support::{Home, Peer, finish, within};

const REMOTE: &str = "[tools]\nallow_unsandboxed_remote = true";

#[tokio::test]
async fn an_address_that_is_taken_is_69() {
    let home = Home::new();
    home.configure(REMOTE);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = home.run(["serve", "--listen", &format!("tcp:{address}")]).await.expect_code(69);
    assert!(ran.stderr.contains(&address), "{}", ran.stderr);
    assert!(ran.stdout.is_empty());
    assert!(home.daemon_file().is_none(), "nothing was announced");
}

#[tokio::test]
async fn of_several_addresses_none_is_served_if_one_is_taken() {
    let home = Home::new();
    home.configure(REMOTE);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = format!("tcp:{}", taken.local_addr().unwrap());
    let unix = format!("unix:{}", home.socket().display());
    home.run(["serve", "--listen", &unix, "--listen", &tcp]).await.expect_code(69);
    assert!(!home.socket().exists(), "the socket that could be bound was taken back");
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_is_74() {
    let home = Home::new();
    fs::write(home.path("file"), "").unwrap();
    let ran =
        home.run(["--data-dir", home.path("file/data").to_str().unwrap(), "serve"]).await.expect_code(74);
    assert!(ran.stderr.contains("file/data"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_wrong_configuration_is_78_and_names_key_file_and_line() {
    let home = Home::new();
    home.configure("default_model = \"m\"\n\n[shutdown]\ndrain_timeot = \"1s\"\n");
    let ran = home.run(["serve"]).await.expect_code(78);
    for part in ["drain_timeot", "dshd.toml", "4", "drain_timeout"] {
        assert!(ran.stderr.contains(part), "no {part} in: {}", ran.stderr);
    }
}

#[tokio::test]
async fn tcp_without_consent_to_unconfined_tools_and_tcp_for_all_the_world_are_78() {
    let home = Home::new();
    let mut command = home.dshd(["serve", "--listen", "tcp:127.0.0.1:0"]);
    command.env("DSHD_TOOLS__SANDBOX", "off");
    let ran = finish(command, b"").await.expect_code(78);
    assert!(ran.stderr.contains("allow_unsandboxed_remote"), "{}", ran.stderr);
    home.configure(REMOTE);
    home.run(["serve", "--listen", "tcp:0.0.0.0:0"]).await.expect_code(78);
}

#[tokio::test]
async fn a_token_file_that_is_none_is_78() {
    let home = Home::new();
    home.configure(REMOTE);
    fs::write(home.data().join("tokens.toml"), "nonsense").unwrap();
    let ran = home.run(["serve", "--listen", "tcp:127.0.0.1:0"]).await.expect_code(78);
    assert!(ran.stderr.contains("tokens.toml"), "{}", ran.stderr);
}

/// The port was open before the daemon was ready, so that the first request failed.
#[tokio::test]
async fn whoever_can_connect_is_served() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let mut command = home.dshd(["serve"]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut daemon = command.spawn().unwrap();
    let socket = home.socket();
    let stream = within("the socket", async {
        loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    })
    .await;
    let (reader, writer) = stream.into_split();
    let mut peer = Peer::over(reader, writer);
    peer.initialize(json!({ "cwd": home.work() })).await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    peer.take_aside();
    daemon.start_kill().unwrap();
    within("the end", daemon.wait()).await.unwrap();
}

#[tokio::test]
async fn a_check_serves_nothing() {
    let home = Home::new();
    home.run(["serve", "--check"]).await.expect_code(0);
    home.configure("no = 1");
    home.run(["serve", "--check"]).await.expect_code(78);
    home.configure("");
    let mut command = home.dshd(["serve", "--check"]);
    command.env("DSHD_LIMITS__CONNECTIONS", "many");
    let ran = finish(command, b"").await.expect_code(78);
    assert!(ran.stderr.contains("DSHD_LIMITS__CONNECTIONS"), "{}", ran.stderr);
    assert!(!home.data().join("LOCK").exists());
}
