//! Health and metrics over HTTP: what they say, and to whom.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::model_server::chat;
use crate::stage::{Stage, leave};
use crate::support::{Daemon, Home, within};

/// Where the daemon serves them: host and port.
fn address(daemon: &Daemon) -> String {
    let line = daemon.wait_for_line("health and metrics are served");
    let (_, rest) = line.split_once("tcp:").expect("an address of TCP");
    rest.trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned()
}

/// Sends these bytes and reads until the end.
async fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    // One that is closed with unread input resets.
    let _ = within("the reply", stream.read_to_end(&mut reply)).await;
    String::from_utf8(reply).unwrap()
}

async fn get(address: &str, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")).await
}

async fn stage() -> Stage {
    Stage::with("", "[metrics]\nlisten = \"127.0.0.1:0\"").await
}

#[tokio::test]
async fn metrics_count_what_was_done_and_status_says_the_same() {
    let stage = stage().await;
    let address = address(stage.daemon());
    assert!(get(&address, "/healthz").await.starts_with("HTTP/1.1 200 OK"));
    assert!(get(&address, "/readyz").await.ends_with("\r\n\r\nready\n"));
    stage.model.push(chat::reply(&["done"]));
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    peer.take_aside();
    let text = get(&address, "/metrics").await;
    assert!(text.contains("content-type: application/openmetrics-text"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in [
        "dshd_turns_total{outcome=\"completed\"} 1",
        "dshd_turns_total{outcome=\"failed\"} 0",
        "dshd_connections 1",
        "dshd_sessions_loaded 1",
        "dshd_turns_running 0",
        "dshd_turn_seconds_count 1",
        "dshd_turn_seconds_bucket{le=\"+Inf\"} 1",
        "dshd_first_token_seconds_count 1",
        "dshd_provider_retries_total 0",
        "dshd_mcp_restarts_total 0",
        "dshd_log_lines_dropped_total 0",
        "dshd_approvals_total{outcome=\"unavailable\"} 0",
        "dshd_storage_failed 0",
    ] {
        assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
    }
    let page = include_str!("../../docs/operations.md");
    for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(page.contains(&format!("`{family}")), "docs/operations.md says nothing of {family}");
    }
    let syncs = text.lines().find_map(|line| line.strip_prefix("dshd_fsync_seconds_count "));
    assert!(syncs.unwrap().parse::<u64>().unwrap() > 0, "{text}");
    let totals = peer.call("server/status", json!({})).await["totals"].take();
    assert_eq!(totals["turnsByEnd"], json!({"completed":1,"maxTokens":0,"failed":0,"aborted":0,"blocked":0}));
    let tokens = |direction: &str| {
        let prefix = format!("dshd_tokens_total{{direction=\"{direction}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(
        (totals["tokensIn"].as_u64(), totals["tokensOut"].as_u64()),
        (Some(tokens("in")), Some(tokens("out")))
    );
    assert!(tokens("out") > 0, "{text}");
    leave(peer).await;
}

#[tokio::test]
async fn browsers_strange_hosts_and_long_heads_get_nothing() {
    let stage = stage().await;
    let address = address(stage.daemon());
    let long = "x".repeat(9 * 1024);
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "403"),
        ("GET /metrics HTTP/1.1\r\n\r\n".to_owned(), "403"),
        (format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nOrigin: http://evil.example\r\n\r\n"), "403"),
        (format!("POST /metrics HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n"), "405"),
        (format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n"), "404"),
        (format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nX: {long}\r\n\r\n"), "431"),
        ("{\"jsonrpc\":\"2.0\"}\n".to_owned(), "400"),
    ] {
        let reply = exchange(&address, &request).await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?} got {reply:?}");
        assert!(!reply.contains("dshd_"), "{reply}");
    }
}

/// Whoever opens all places and says nothing keeps the others waiting for five seconds, not for ever.
#[tokio::test]
async fn those_who_say_nothing_give_their_places_back() {
    let stage = stage().await;
    let address = address(stage.daemon());
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    assert!(get(&address, "/healthz").await.starts_with("HTTP/1.1 200 OK"));
    drop(silent);
}

#[tokio::test]
async fn they_can_be_on_a_unix_socket_and_a_dead_one_is_taken_over() {
    let home = Home::new();
    let path = home.path("run/metrics.sock");
    home.configure(&format!("[metrics]\nlisten = \"unix:{}\"\n", path.display()));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    within("the reply", stream.read_to_string(&mut reply)).await.unwrap();
    assert!(reply.ends_with("ready\n"), "{reply}");
    assert!(daemon.stop().await.success());
    assert!(!path.exists());
}

#[tokio::test]
async fn an_address_that_others_could_reach_is_refused() {
    let home = Home::new();
    home.configure("[metrics]\nlisten = \"0.0.0.0:9464\"\n");
    let ran = home.run(["serve"]).await.expect_code(78);
    assert!(
        ran.stderr.contains("`metrics.listen`: 0.0.0.0:9464 is not a loopback address"),
        "{}",
        ran.stderr
    );
}
