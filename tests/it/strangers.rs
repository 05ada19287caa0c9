//! What a TCP peer gets before it has authenticated: little, and a web page nothing at all.

pub(crate) mod recorded;

use serde_json::json;

use crate::stage::{Stage, Transport, leave, prompt};
use crate::support::within;

async fn stage() -> Stage {
    Stage::over(Transport::Tcp).await
}

/// Nothing was done: no session is there, and the model was not asked.
async fn nothing_ran(stage: &Stage) {
    let mut peer = stage.peer().await;
    let list = peer.call("session/list", json!({})).await;
    assert_eq!(list["sessions"], json!([]));
    let status = peer.call("server/status", json!({})).await;
    assert_eq!(status["phase"], "ready");
    assert!(stage.model.requests().is_empty());
    leave(peer).await;
}

#[tokio::test]
async fn a_web_page_that_posts_valid_lines_gets_no_byte_and_runs_nothing() {
    let stage = stage().await;
    let lines = format!(
        "{}\n{}\n{}\n",
        json!({ "id": 1, "method": "authenticate", "params": { "token": stage.token() } }),
        json!({ "id": 2, "method": "initialize", "params": stage.bind(&json!({})) }),
        json!({ "id": 3, "method": "session/prompt", "params": prompt("s", "hello", &json!({})) }),
    );
    let head = format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Length: {}\r\n\r\n",
        lines.len()
    );
    let mut page = stage.stranger().await;
    page.send_bytes((head + &lines).as_bytes()).await;
    page.expect_eof().await;
    nothing_ran(&stage).await;
}

#[tokio::test]
async fn what_browsers_and_other_programs_send_is_closed_without_a_byte_and_runs_nothing() {
    let stage = stage().await;
    let body = format!(
        "{}\n{}\n{}\n",
        json!({ "id": 1, "method": "authenticate", "params": { "token": stage.token() } }),
        json!({ "id": 2, "method": "initialize", "params": stage.bind(&json!({})) }),
        json!({ "id": 3, "method": "session/prompt", "params": prompt("s", "hello", &json!({})) }),
    );
    for (_, bytes) in recorded::all(&body) {
        let mut peer = stage.stranger().await;
        peer.send_bytes(&bytes).await;
        peer.expect_eof().await;
    }
    nothing_ran(&stage).await;
}

#[tokio::test]
async fn a_token_is_let_in_at_once_however_often_its_source_has_failed() {
    let stage = stage().await;
    let mut refusals = Vec::new();
    for _ in 0..6 {
        let mut peer = stage.stranger().await;
        let began = tokio::time::Instant::now();
        peer.refused("authenticate", json!({ "token": "x".repeat(48) })).await;
        refusals.push(began.elapsed());
        peer.expect_eof().await;
    }
    assert!(refusals[5] >= std::time::Duration::from_millis(400), "{refusals:?}");
    let began = tokio::time::Instant::now();
    let mut peer = stage.stranger().await;
    peer.call("authenticate", json!({ "token": stage.token() })).await;
    assert!(began.elapsed() < refusals[5], "{:?} beside {refusals:?}", began.elapsed());
    leave(peer).await;
    let said = stage.daemon().stderr();
    assert!(said.contains("a token was refused") && said.contains("authenticated"), "{said}");
}

/// Five thousand of them once kept everybody out.
#[tokio::test]
async fn thousands_that_say_nothing_hold_sixty_four_places_and_a_token_gets_in_meanwhile() {
    const WAVES: u8 = 20;
    const EACH: u8 = 250;
    let stage = stage().await;
    let address = stage.daemon().tcp().parse().unwrap();
    let mut owner = stage.peer().await;
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", stage.daemon().pid())).unwrap().count();
    let before = descriptors();
    let mut last = Vec::new();
    for wave in 0..WAVES {
        let mut now = Vec::new();
        for source in 0..EACH {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 1, wave, source + 1], 0).into()).unwrap();
            let stream = within("connect", socket.connect(address)).await.unwrap();
            // It may have been closed already.
            let _ = stream.try_write(b"{");
            now.push(stream);
        }
        last = now;
        leave(stage.peer().await).await;
        let status = owner.call("server/status", json!({})).await;
        let held = status["usage"]["preauth_connections"].as_u64().unwrap();
        assert!(held <= 64, "{held}");
    }
    drop(last);
    within("all to be gone", async {
        while descriptors() > before + 1 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let status = owner.call("server/status", json!({})).await;
    assert_eq!(status["usage"]["preauth_connections"], 0);
    leave(owner).await;
    nothing_ran(&stage).await;
}

#[tokio::test]
async fn what_is_no_request_is_closed_without_a_byte() {
    let stage = stage().await;
    for first in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00",
        b"[",
        b"\n\n7\n",
        b"{not json}\n",
        b"{\"method\":\"authenticate\",\"params\":{\"token\":\"x\"}}\n",
        b"{\"id\":1,\"result\":{}}\n",
        b"{\"id\":null,\"method\":\"authenticate\"}\n",
        b"\xEF\xBB\xBFx",
    ] {
        let mut peer = stage.stranger().await;
        peer.send_bytes(first).await;
        peer.expect_eof().await;
    }
    nothing_ran(&stage).await;
}

#[tokio::test]
async fn the_first_request_must_be_authenticate_and_its_token_right() {
    let stage = stage().await;
    for (method, params) in [
        ("initialize", stage.bind(&json!({}))),
        ("server/ping", json!({})),
        ("server/drain", json!({})),
        ("nonsense", json!({})),
        ("authenticate", json!({ "token": "wrong" })),
        ("authenticate", json!({ "token": "" })),
        ("authenticate", json!({ "token": stage.token().to_uppercase() })),
    ] {
        let mut peer = stage.stranger().await;
        let error = peer.refused(method, params).await;
        assert_eq!(error["code"], -32003, "{method}: {error}");
        assert_eq!(error["data"]["kind"], "unauthenticated");
        peer.expect_eof().await;
    }
    for params in [json!({}), json!({ "token": 7 })] {
        let mut peer = stage.stranger().await;
        let error = peer.refused("authenticate", params).await;
        assert_eq!(error["data"]["path"], "token", "{error}");
        peer.expect_eof().await;
    }
    nothing_ran(&stage).await;
}

#[tokio::test]
async fn requests_behind_a_wrong_token_are_not_served() {
    let stage = stage().await;
    let mut peer = stage.stranger().await;
    let wrong = json!({ "id": 1, "method": "authenticate", "params": { "token": "wrong" } });
    peer.send_bytes(format!("{wrong}\n{{\"id\":2,\"method\":\"server/drain\"}}\n").as_bytes()).await;
    assert_eq!(peer.reply(1).await["error"]["code"], -32003);
    peer.expect_eof().await;
    nothing_ran(&stage).await;
}

#[tokio::test]
async fn eight_kib_are_all_that_a_stranger_may_say() {
    let stage = stage().await;
    let line = |length: usize| {
        let head =
            format!(r#"{{"id":1,"method":"authenticate","params":{{"token":"{}","x":""#, stage.token());
        format!("{head}{}\"}}}}\n", "x".repeat(length - head.len() - 4))
    };
    let mut peer = stage.stranger().await;
    peer.send_bytes(line(8 * 1024).as_bytes()).await;
    assert_eq!(peer.reply(1).await["result"], json!({}));
    leave(peer).await;
    for (what, bytes) in [
        ("a byte more", line(8 * 1024 + 2).into_bytes()),
        ("no end", vec![b'{'; 9000]),
        ("blanks", vec![b'\n'; 9000]),
    ] {
        let mut peer = stage.stranger().await;
        peer.send_bytes(&bytes).await;
        peer.expect_eof().await;
        drop(peer);
        assert!(!stage.daemon().stderr().contains("panic"), "{what}");
    }
    nothing_ran(&stage).await;
}

#[tokio::test]
async fn the_limit_falls_away_with_the_right_token() {
    let stage = stage().await;
    let mut peer = stage.stranger().await;
    let first = json!({ "id": 1, "method": "authenticate", "params": { "token": stage.token() } });
    let long = "x".repeat(100_000);
    let second = json!({ "id": 2, "method": "server/ping", "params": { "x": long } });
    peer.send_bytes(format!("{first}\n{second}\n").as_bytes()).await;
    assert_eq!(peer.reply(1).await["result"], json!({}));
    assert_eq!(peer.reply(2).await["result"], json!({}));
    leave(peer).await;
}

#[tokio::test]
async fn who_says_nothing_is_closed_in_time_and_makes_room() {
    let limits = "[limits]\npreauth_time = \"300ms\"\npreauth_connections = 2";
    let stage = Stage::build(Transport::Tcp, "", limits).await;
    let mut silent = stage.stranger().await;
    let mut slow = stage.stranger().await;
    slow.send_bytes(b"{\"id\":1,").await;
    silent.expect_eof().await;
    slow.expect_eof().await;
    nothing_ran(&stage).await;
}

#[tokio::test]
async fn a_peer_that_needs_no_token_may_send_one() {
    for transport in [Transport::Unix, Transport::Stdio] {
        let stage = Stage::over(transport).await;
        let mut peer = stage.connect().await;
        assert_eq!(peer.call("authenticate", json!({ "token": "whatever" })).await, json!({}));
        peer.initialize(stage.bind(&json!({}))).await;
        leave(peer).await;
    }
}
