//! How commands find a daemon, and what they say when they do not: each case has its own words and exit code.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Fake, Home, hello_of, within};

#[tokio::test]
async fn without_a_daemon_a_command_names_the_socket_it_looked_for() {
    let home = Home::new();
    let ran = home.run(["cancel", "--all"]).await.expect_code(69);
    assert_eq!(ran.stdout, "");
    let socket = home.socket().display().to_string();
    assert!(
        ran.stderr.starts_with("error: no dshd is running for this user (no socket at "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains(&socket), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhelp: dshd serve\n"), "{}", ran.stderr);
}

#[tokio::test]
async fn errors_are_one_json_object_on_stderr_when_asked() {
    let home = Home::new();
    let ran = home.run(["cancel", "--all", "--json"]).await.expect_code(69);
    assert_eq!(ran.stdout, "");
    let told: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(told["error"]["code"], 69);
    assert_eq!(told["error"]["kind"], "no_daemon");
    assert_eq!(told["error"]["help"], "dshd serve");
}

#[tokio::test]
async fn status_says_no_daemon_by_its_exit_code() {
    let home = Home::new();
    home.run(["status"]).await.expect_code(3);
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on_is_told_from_one_that_is_missing() {
    let home = Home::new();
    drop(Fake::listen(&home));
    let daemon = json!({
        "pid": 4711, "version": "0.1.0", "startedAt": "2026-12-01T00:00:00.000Z",
        "listeners": [{ "kind": "unix", "address": format!("unix:{}", home.socket().display()) }],
    });
    std::fs::write(home.data().join("daemon.json"), daemon.to_string()).unwrap();
    let ran = home.run(["status", "-v"]).await.expect_code(3);
    let said = "error: dshd died without cleaning up (socket there, nobody listens; last pid 4711)";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    assert!(ran.stderr.contains("is stale"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_socket_that_the_user_may_not_use_names_its_owner() {
    if rustix::process::geteuid().is_root() {
        // Root may use every socket.
        return;
    }
    let home = Home::new();
    let _fake = Fake::listen(&home);
    std::fs::set_permissions(home.socket(), std::fs::Permissions::from_mode(0o000)).unwrap();
    let ran = home.run(["status"]).await.expect_code(77);
    assert!(ran.stderr.starts_with("error: not allowed to use "), "{}", ran.stderr);
    assert!(ran.stderr.contains(", mode 0000)"), "{}", ran.stderr);
}

#[tokio::test]
async fn something_that_is_not_dshd_is_quoted() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    let web = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    };
    let mut command = home.dshd(["status"]);
    command.env("DSHD_CONNECT", &address);
    let (ran, ()) = tokio::join!(crate::support::finish(command, b""), web);
    let ran = ran.expect_code(69);
    let said = format!(
        "error: something answers at {address} but it is not dshd (got \"HTTP/1.1 400 Bad Request\")\n\
         help: check --connect (came from DSHD_CONNECT)\n"
    );
    assert_eq!(ran.stderr, said);
}

#[tokio::test]
async fn a_daemon_of_another_protocol_is_named_with_the_way_out() {
    let home = Home::new();
    let fake = Fake::listen(&home);
    let daemon = async {
        let mut command = fake.accept().await;
        let hello = command.request("initialize").await;
        command.answer(&hello, hello_of(7)).await;
        command.expect_eof().await;
    };
    let (ran, ()) = tokio::join!(home.run(["models"]), daemon);
    let ran = ran.expect_code(76);
    assert!(ran.stderr.contains("speaks protocol 7; this dshd is "), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhelp: dshd stop, "), "{}", ran.stderr);
}

#[tokio::test]
async fn a_daemon_of_another_protocol_can_be_stopped() {
    let home = Home::new();
    let fake = Fake::listen(&home);
    let daemon = async {
        let mut command = fake.accept().await;
        let hello = command.request("initialize").await;
        command.answer(&hello, json!({ "serverInfo": { "name": "x", "version": "9" } })).await;
        let drain = command.request("server/drain").await;
        assert_eq!(drain["params"], json!({ "deadlineMs": 0 }));
        command.answer(&drain, json!({})).await;
        std::fs::remove_file(home.socket()).unwrap();
    };
    let (ran, ()) = tokio::join!(home.run(["stop", "--now"]), daemon);
    assert!(ran.expect_code(0).stdout.starts_with("stopped dshd at unix:"));
}

#[tokio::test]
async fn a_refused_peer_reads_why_and_what_to_do() {
    let home = Home::new();
    let fake = Fake::listen(&home);
    let daemon = async {
        let mut command = fake.accept().await;
        command.leave_unread();
        let refusal = json!({
            "jsonrpc": "2.0", "id": null,
            "error": {
                "code": -32003, "message": "User 1007 may not use this socket.",
                "data": { "kind": "unauthenticated", "help": "ask for auth.allowed_uids" },
            },
        });
        command.send_line(&refusal.to_string()).await;
    };
    let (ran, ()) = tokio::join!(home.run(["models"]), daemon);
    let said = "error: user 1007 may not use this socket\nhelp: ask for auth.allowed_uids\n";
    assert_eq!(ran.expect_code(77).stderr, said);
}

#[tokio::test]
async fn a_daemon_that_takes_connections_and_says_nothing_is_not_taken_for_dead() {
    let home = Home::new();
    let fake = Fake::listen(&home);
    let daemon = async {
        let mut command = fake.accept().await;
        command.request("initialize").await;
        command.expect_eof().await;
    };
    // `prompt` must not start a second daemon beside it.
    let (ran, ()) = tokio::join!(home.run(["prompt", "hi", "--timeout", "300ms"]), daemon);
    let ran = ran.expect_code(69);
    assert!(ran.stderr.contains("takes connections but gave no answer"), "{}", ran.stderr);
    assert!(home.daemon_file().is_none());
}

#[tokio::test]
async fn a_wrong_address_says_the_forms_and_who_said_it() {
    let home = Home::new();
    let ran = home.run(["status", "--connect", "db:7433"]).await.expect_code(64);
    assert!(
        ran.stderr.contains("unix:/path, tcp:host:port, tls:host:port or ssh:[user@]host"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("\nhelp: mend --connect\n"), "{}", ran.stderr);
}

#[tokio::test]
async fn connect_passes_bytes_and_nothing_else() {
    let home = Home::new();
    let fake = Fake::listen(&home);
    let daemon = async {
        let mut command = fake.accept().await;
        assert_eq!(within("a line", command.line()).await.unwrap(), r#"{"not":"even a frame"}"#);
        command.send_bytes(b"as it \xff is\n").await;
        // stdin has ended, and what follows is still passed on.
        command.expect_eof().await;
        command.send_bytes(b"last words").await;
    };
    let mut command = home.dshd(["connect"]);
    command.stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"not\":\"even a frame\"}\n").await.unwrap();
    drop(stdin);
    let (output, ()) = tokio::join!(within("connect", child.wait_with_output()), daemon);
    let output = output.unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"as it \xff is\nlast words");
    assert_eq!(output.stderr, b"");
}
