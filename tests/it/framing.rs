//! What a line gets (docs/protocol.md, Framing): each row of the table over each transport, byte for byte.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::stage::{Stage, TRANSPORTS, Transport, leave, prompt};
use crate::support::{Peer, within};

const PARSE: (i64, &str) = (-32700, "parse_error");
const INVALID: (i64, &str) = (-32600, "invalid_request");
const UNKNOWN: (i64, &str) = (-32601, "unknown_method");
const PARAMS: (i64, &str) = (-32602, "invalid_params");

/// The next line must answer this id, byte for byte, with this error.
#[track_caller]
fn refused<'a>(
    peer: &'a mut Peer,
    id: &'a str,
    (code, kind): (i64, &'static str),
    what: &'a str,
) -> impl Future<Output = Value> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let line = peer.line().await.unwrap_or_else(|| panic!("closed at {what} ({caller})"));
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"#);
        assert!(line.starts_with(&head), "{what}\n got {line}\nwant {head} ({caller})");
        let mut reply: Value = serde_json::from_str(&line).unwrap();
        let data = reply["error"]["data"].take();
        assert_eq!(data["kind"], kind, "{what}: {line}");
        data
    }
}

/// The next line must be `{}` to this id, byte for byte.
#[track_caller]
fn served<'a>(peer: &'a mut Peer, id: &'a str, what: &'a str) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let line = peer.line().await.unwrap_or_else(|| panic!("closed at {what} ({caller})"));
        assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), "{what} ({caller})");
    }
}

fn nested(depth: usize) -> String {
    format!(
        r#"{{"id":1,"method":"server/ping","params":{{"a":{}{}}}}}"#,
        "[".repeat(depth),
        "]".repeat(depth)
    )
}

#[tokio::test]
async fn a_bad_line_is_answered_and_the_next_is_served() {
    let batch = r#"[{"id":1,"method":"server/ping"},{"id":2,"method":"server/ping"}]"#;
    let long = format!(r#"{{"id":"{}","method":"server/ping"}}"#, "x".repeat(1023));
    let (hollow, too_deep) = ("[".repeat(200_000), nested(127));
    let rows: &[(&[u8], &str, (i64, &'static str))] = &[
        (b"not json", "null", PARSE),
        (b"{\"id\":1,\"method\":\"server/ping\"", "null", PARSE),
        (b"{\"id\":1,\"method\":\"server/ping\"} x", "null", PARSE),
        (b"{\"id\":1,\"method\":\"server/ping\",\"params\":{\"a\":NaN}}", "null", PARSE),
        (b"{\"id\":1,\"method\":\"\xff\"}", "null", PARSE),
        (hollow.as_bytes(), "null", PARSE),
        (too_deep.as_bytes(), "null", PARSE),
        (b"[]", "null", INVALID),
        (batch.as_bytes(), "null", INVALID),
        (b"7", "null", INVALID),
        (b"\"server/ping\"", "null", INVALID),
        (b"null", "null", INVALID),
        (b"{}", "null", INVALID),
        (b"{\"id\":3}", "3", INVALID),
        (b"{\"id\":null,\"method\":\"server/ping\"}", "null", INVALID),
        (b"{\"id\":{},\"method\":\"server/ping\"}", "null", INVALID),
        (b"{\"id\":[1],\"method\":\"server/ping\"}", "null", INVALID),
        (b"{\"id\":true,\"method\":\"server/ping\"}", "null", INVALID),
        (b"{\"id\":1.5,\"method\":\"server/ping\"}", "1.5", INVALID),
        (b"{\"id\":1.0,\"method\":\"server/ping\"}", "1.0", INVALID),
        (b"{\"id\":1e300,\"method\":\"server/ping\"}", "1e300", INVALID),
        (long.as_bytes(), "null", INVALID),
        (b"{\"jsonrpc\":\"1.0\",\"id\":4,\"method\":\"server/ping\"}", "4", INVALID),
        (b"{\"jsonrpc\":2.0,\"id\":4,\"method\":\"server/ping\"}", "4", INVALID),
        (b"{\"jsonrpc\":null,\"id\":4,\"method\":\"server/ping\"}", "4", INVALID),
        (b"{\"id\":5,\"method\":\"server/ping\",\"method\":\"shutdown\"}", "null", INVALID),
        (b"{\"id\":5,\"id\":6,\"method\":\"server/ping\"}", "null", INVALID),
        (b"{\"id\":7,\"method\":7}", "7", INVALID),
        (b"{\"id\":8,\"method\":\"foo/bar\"}", "8", UNKNOWN),
        (
            "{\"id\":\"a\u{2028}\u{41}\\u0041\",\"method\":\"foo\"}".as_bytes(),
            "\"a\\u2028A\\u0041\"",
            UNKNOWN,
        ),
        (b"{\"id\":9,\"method\":\"initialize\",\"params\":[]}", "9", PARAMS),
        (b"{\"id\":9,\"method\":\"initialize\",\"params\":null}", "9", PARAMS),
        (b"{\"id\":9,\"method\":\"initialize\",\"params\":{\"maxTokens\":1e999}}", "9", PARAMS),
    ];
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.connect().await;
        for (line, id, error) in rows {
            let what = format!("{transport:?} {}", String::from_utf8_lossy(&line[..line.len().min(80)]));
            peer.send_bytes(&[line, &b"\n{\"id\":0,\"method\":\"server/ping\"}\n"[..]].concat()).await;
            refused(&mut peer, id, *error, &what).await;
            served(&mut peer, "0", &what).await;
        }
        leave(peer).await;
    }
}

#[tokio::test]
async fn what_is_well_meant_is_served() {
    let deepest = nested(126);
    let rows: &[(&str, &str)] = &[
        (r#"{"jsonrpc":"2.0","id":1,"method":"server/ping","params":{}}"#, "1"),
        (r#"{"id":1,"method":"server/ping"}"#, "1"),
        (r#"{"id":"1","method":"server/ping"}"#, "\"1\""),
        (r#"{"id":-9007199254740993000,"method":"server/ping"}"#, "-9007199254740993000"),
        (r#"{"id":123456789012345678901234567890,"method":"server/ping"}"#, "123456789012345678901234567890"),
        (r#"{"id":"\u0041\n\/","method":"server/ping"}"#, r#""\u0041\n\/""#),
        (r#"{"id":"","method":"server/ping"}"#, r#""""#),
        (r#"{"id":2,"method":"server\/\u0070ing"}"#, "2"),
        (r#"{"id":3,"method":"server/ping","params":{"unknown":[1,{}]},"unknown":7}"#, "3"),
        (r#"{"id":4,"method":"server/ping","params":{"text":"\ud800"}}"#, "4"),
        (r#"  {"id":5,"method":"server/ping"}	 "#, "5"),
        (&deepest, "1"),
    ];
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.connect().await;
        for (line, id) in rows {
            peer.send_line(line).await;
            served(&mut peer, id, line).await;
        }
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_mark_before_the_first_line_blank_lines_and_carriage_returns_are_passed_over() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.stranger().await;
        peer.send_bytes(b"\xEF\xBB\xBF").await;
        if transport == Transport::Tcp {
            peer.call("authenticate", json!({ "token": stage.token() })).await;
        }
        let lines =
            "{\"id\":1,\"method\":\"server/ping\"}\r\n\r\n\n \n{\"id\":2,\"method\":\"server/ping\"}\r\n";
        peer.send_bytes(lines.as_bytes()).await;
        served(&mut peer, "1", "after the mark").await;
        served(&mut peer, "2", "after blank lines").await;
        leave(peer).await;
    }
}

#[tokio::test]
async fn notifications_and_responses_get_nothing_and_do_nothing() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        for line in [
            r#"{"jsonrpc":"2.0","method":"foo/bar"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","method":"server/drain"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","method":"shutdown"}"#.to_owned(),
            r#"{"method":"session/read","params":7}"#.to_owned(),
            json!({ "method": "session/prompt", "params": prompt("s", "hello", &json!({})) }).to_string(),
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}"#.to_owned(),
            r#"{"id":null,"result":null}"#.to_owned(),
        ] {
            peer.send_line(&line).await;
            peer.expect_silence().await;
        }
        let error = peer.refused("session/read", json!({ "sessionId": "s" })).await;
        assert_eq!(error["data"]["kind"], "session_not_found");
        leave(peer).await;
    }
}

#[tokio::test]
async fn the_hundredth_bad_frame_in_a_row_is_answered_and_ends_the_connection() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.connect().await;
        let bad = "[]\n".repeat(99);
        peer.send_bytes(format!("{bad}{{\"id\":0,\"method\":\"server/ping\"}}\n{bad}").as_bytes()).await;
        for _ in 0..99 {
            refused(&mut peer, "null", INVALID, "before the good one").await;
        }
        served(&mut peer, "0", "the good one").await;
        for _ in 0..99 {
            refused(&mut peer, "null", INVALID, "after the good one").await;
        }
        peer.send_bytes(b"x\n{\"id\":1,\"method\":\"server/ping\"}\n").await;
        refused(&mut peer, "null", PARSE, "the hundredth").await;
        peer.expect_eof().await;
        leave(peer).await;
    }
}

#[tokio::test]
async fn a_line_over_the_limit_is_told_once_and_never_held() {
    for transport in TRANSPORTS {
        let stage = Stage::build(transport, "", "[limits]\nline_bytes = \"64KiB\"").await;
        let mut peer = stage.connect().await;
        let pid = match transport {
            Transport::Stdio => peer.child().id().unwrap(),
            Transport::Unix | Transport::Tcp => u32::try_from(stage.daemon().pid()).unwrap(),
        };
        peer.expect_silence().await;
        let before = peak_kib(pid);
        for _ in 0..64 {
            peer.send_bytes(&vec![b'a'; 1 << 20]).await;
        }
        peer.send_bytes(b"\n{\"id\":1,\"method\":\"server/ping\"}\n").await;
        refused(&mut peer, "null", (-32600, "line_too_long"), "64 MiB").await;
        served(&mut peer, "1", "after the long line").await;
        let grown = peak_kib(pid) - before;
        assert!(grown < 16 * 1024, "{transport:?}: {grown} KiB for a line that is skipped");
        leave(peer).await;
    }
}

/// The most memory that a process has had, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_line_as_long_as_the_limit_is_served() {
    let stage = Stage::with("", "[limits]\nline_bytes = \"64KiB\"").await;
    let mut peer = stage.connect().await;
    let line = |length: usize| {
        let head = r#"{"id":1,"method":"server/ping","params":{"x":""#;
        format!("{head}{}\"}}}}", "x".repeat(length - head.len() - 3))
    };
    peer.send_line(&line(64 * 1024)).await;
    served(&mut peer, "1", "64 KiB").await;
    peer.send_line(&line(64 * 1024 + 1)).await;
    refused(&mut peer, "null", (-32600, "line_too_long"), "one byte more").await;
    leave(peer).await;
}

#[tokio::test]
async fn ten_thousand_requests_may_be_written_before_one_reply_is_read() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.connect().await;
        let request = |id| format!("{{\"id\":{id},\"method\":\"server/ping\"}}\n");
        peer.send_bytes((0..10_000).map(request).collect::<String>().as_bytes()).await;
        for id in 0..10_000 {
            served(&mut peer, &id.to_string(), "pipelined").await;
        }
        leave(peer).await;
    }
}

/// Far more than the daemon and the sockets hold: it stops reading, and goes on when it is read.
#[tokio::test]
async fn who_writes_without_reading_is_not_read_from_until_it_reads() {
    let stage = Stage::new().await;
    let stream = tokio::net::UnixStream::connect(stage.home.socket()).await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let request = |id| format!("{{\"id\":{id},\"method\":\"server/ping\"}}\n");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        for from in (0..100_000).step_by(1000) {
            let lines: String = (from..from + 1000).map(request).collect();
            writer.write_all(lines.as_bytes()).await.unwrap();
        }
        writer
    });
    // Another client is served meanwhile, and sees that no byte of the first one's replies moves.
    let mut other = stage.peer().await;
    loop {
        let status = other.call("server/status", json!({})).await;
        let mut lags =
            status["connections"].as_array().unwrap().iter().map(|connection| &connection["lagBytes"]);
        if lags.any(|lag| lag.as_u64().unwrap() > 900_000) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(tasks.try_join_next().is_none());
    let mut peer = Peer::over(reader, tokio::io::sink());
    for id in 0..100_000 {
        served(&mut peer, &id.to_string(), "after the stop").await;
    }
    drop(within("the writer", tasks.join_next()).await.unwrap().unwrap());
    peer.expect_eof().await;
    leave(other).await;
}

#[tokio::test]
async fn the_end_of_input_is_a_half_close_and_a_last_line_needs_no_end() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        stage.says(&["hi"]);
        let mut peer = stage.connect().await;
        let hello = json!({ "id": 100, "method": "initialize", "params": stage.bind(&json!({})) });
        let ask =
            json!({ "id": 101, "method": "session/prompt", "params": prompt("s", "hello", &json!({})) });
        peer.send_bytes(format!("{hello}\n{ask}").as_bytes()).await;
        peer.close_write().await;
        peer.reply(100).await;
        let reply = peer.reply(101).await;
        assert_eq!(reply["result"]["status"], "ok", "{reply}");
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn an_id_is_in_flight_once_on_a_connection() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let live = stage.live();
        let mut peer = stage.peer().await;
        let mut other = stage.peer().await;
        let ask = json!({ "id": 70, "method": "session/prompt", "params": prompt("s", "hello", &json!({})) });
        peer.send_line(&ask.to_string()).await;
        stage.model.request().await;
        peer.send_line(r#"{"id":70,"method":"server/ping"}"#).await;
        let twin = peer.reply(70).await;
        assert_eq!(twin["error"]["data"]["kind"], "duplicate_id", "{twin}");
        assert_eq!(twin["error"]["code"], -32600);
        // A string is another id, and another connection's ids are its own.
        peer.send_line(r#"{"id":"70","method":"server/ping"}"#).await;
        assert_eq!(peer.take(|message| message["id"] == "70").await["result"], json!({}));
        other.send_line(r#"{"id":70,"method":"server/ping"}"#).await;
        served(&mut other, "70", "another connection").await;
        live.send(crate::model_server::chat::text("hi")).await;
        live.send(crate::model_server::chat::finish("stop")).await;
        live.end().await;
        assert_eq!(peer.reply(70).await["result"]["status"], "ok");
        peer.take_aside();
        peer.send_line(r#"{"id":70,"method":"server/ping"}"#).await;
        served(&mut peer, "70", "after the reply").await;
        leave(peer).await;
        leave(other).await;
    }
}
