//! What is not served: addresses that other machines reach, without TLS or without a token.

use serde_json::json;

use super::{ANSWER, CONSENT, certified};
use crate::support::{Daemon, Home, Peer, finish};

#[tokio::test]
async fn an_address_of_the_world_without_tls_is_refused_with_the_lines_to_write() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    for address in ["tcp:0.0.0.0:0", "tcp:[::]:0", "tcp:[::ffff:0.0.0.0]:0", "192.0.2.1:7433"] {
        let mut command = home.dshd(["serve", "--listen", address]);
        command.env(CONSENT.0, CONSENT.1).env("DSHD_TOKEN", "");
        let ran = finish(command, b"").await.expect_code(78);
        let plain = address.trim_start_matches("tcp:");
        for line in [
            format!("tcp = \"{plain}\""),
            format!("tls = {{ cert = \"{}/tls/server.pem\"", home.data().display()),
            "dshd tls init --name".to_owned(),
            "dshd token create".to_owned(),
        ] {
            assert!(ran.stderr.contains(&line), "{address}: no {line} in {}", ran.stderr);
        }
    }
}

#[tokio::test]
async fn an_address_of_the_world_with_tls_and_no_token_is_refused() {
    let home = certified(&["localhost"]).await;
    home.run(["token", "revoke", "test"]).await.expect_code(0);
    let mut command = home.dshd(["serve", "--listen", "tls:0.0.0.0:0"]);
    command.env(CONSENT.0, CONSENT.1);
    let ran = finish(command, b"").await.expect_code(78);
    assert!(ran.stderr.contains("no token") && ran.stderr.contains("dshd token create"), "{}", ran.stderr);
}

#[tokio::test]
async fn tls_without_a_certificate_is_refused_with_the_command_that_makes_one() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let mut command = home.dshd(["serve", "--listen", "tls:127.0.0.1:0"]);
    command.env(CONSENT.0, CONSENT.1);
    let ran = finish(command, b"").await.expect_code(78);
    assert!(ran.stderr.contains("server.pem") && ran.stderr.contains("dshd tls init"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_token_file_with_an_empty_or_plain_secret_is_refused() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let entry = |more: &str| {
        format!("[tokens.a]\nscope = \"control\"\ncreated_at = \"2026-01-01T00:00:00Z\"\n{more}\n")
    };
    let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (text, said) in [
        (entry(&format!("sha256 = \"{of_nothing}\"")), "empty secret"),
        (entry("sha256 = \"\""), "64 hexadecimal digits"),
        (entry("secret = \"short\""), "unknown key `secret`"),
    ] {
        std::fs::write(home.data().join("tokens.toml"), text).unwrap();
        let mut command = home.dshd(["serve", "--listen", "tcp:127.0.0.1:0"]);
        command.env(CONSENT.0, CONSENT.1);
        let ran = finish(command, b"").await.expect_code(78);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn a_token_of_the_service_manager_is_one_unless_it_is_empty_or_short() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let file = home.path("run/dshd-token");
    let command = || {
        let mut command = home.dshd(["serve", "--listen", "tcp:127.0.0.1:0"]);
        command.env(CONSENT.0, CONSENT.1).env("CREDENTIALS_DIRECTORY", home.path("run"));
        command
    };
    for secret in ["", " \n", "hunter2\n"] {
        std::fs::write(&file, secret).unwrap();
        let ran = finish(command(), b"").await.expect_code(78);
        assert!(ran.stderr.contains("dshd-token") && ran.stderr.contains("it needs 32"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    }
    let secret = "4f".repeat(20);
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let daemon = Daemon::spawn(&home, command());
    let mut peer = Peer::tcp(&daemon.tcp()).await;
    peer.call("authenticate", json!({ "token": secret })).await;
    // Another token in the file changes nothing for it.
    home.run(["token", "create", "other"]).await.expect_code(0);
    let mut again = Peer::tcp(&daemon.tcp()).await;
    again.call("authenticate", json!({ "token": secret })).await;
    peer.finish().await;
    again.finish().await;
}
