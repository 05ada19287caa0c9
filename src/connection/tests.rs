//! Connections over in-memory streams: what a peer hears, and in which order.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

use super::{Service, framing, serve};
use crate::auth::peer::{PeerInfo, PeerKind};
use crate::auth::token::Tokens;
use crate::config::Config;
use crate::handler::caller::Defaults;
use crate::handler::shared::Phase;
use crate::handler::testing::House;
use crate::shutdown::Scope;

const PATIENCE: Duration = Duration::from_secs(20);

/// Says a little; `stall` begins to speak and never ends.
const SCRIPT: &str = r#"
{"prompt":"stall","parts":[{"text":["one ","two "]},{"stall":true}]}
{"parts":[{"text":["a ","b ","c"]}]}
"#;

struct Served {
    house: House,
    service: Service,
}

impl Served {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let house = House::new(SCRIPT, framing(), change);
        let service = Service {
            shared: house.shared.clone(),
            tokens: Arc::new(Tokens::new(house.dir.path().join("tokens.toml"))),
            defaults: Defaults::sockets(),
            scope: Scope::new(),
            input_ended: None,
        };
        Self { house, service }
    }

    fn connect_as(&self, kind: PeerKind) -> Peer {
        let (ours, theirs) = tokio::io::duplex(16 * 1024);
        let peer = PeerInfo::new(kind);
        self.service.scope.spawn(serve(ours, peer, None, self.service.clone()));
        let (read, write) = tokio::io::split(theirs);
        Peer { read: BufReader::new(read), write, seen: Vec::new(), last_id: 0 }
    }

    async fn peer(&self, manners: Value) -> Peer {
        let mut peer = self.connect_as(PeerKind::Unix { uid: 0, pid: None });
        let mut params = json!({ "cwd": self.house.dir.path() });
        params.as_object_mut().unwrap().extend(manners.as_object().unwrap().clone());
        assert!(peer.call("initialize", params).await.get("result").is_some());
        peer
    }
}

struct Peer {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
    /// Every frame that was read.
    seen: Vec<Value>,
    last_id: u64,
}

impl Peer {
    async fn raw(&mut self, bytes: &str) {
        tokio::time::timeout(PATIENCE, self.write.write_all(bytes.as_bytes())).await.unwrap().unwrap();
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.raw(&format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })))
            .await;
        id
    }

    async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let blocks = json!([{ "type": "text", "text": text }]);
        self.send("session/prompt", json!({ "sessionId": session, "contentBlocks": blocks })).await
    }

    fn said(&self) -> String {
        self.seen.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
    }

    /// The next frame; none at the end.
    async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.read.read_line(&mut line)).await;
        if read.unwrap_or_else(|_| panic!("nothing came after\n{}", self.said())).unwrap() == 0 {
            return None;
        }
        let frame: Value = serde_json::from_str(&line).unwrap();
        self.seen.push(frame.clone());
        Some(frame)
    }

    async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.next().await.unwrap_or_else(|| panic!("ended after\n{}", self.said()));
            if is_it(&frame) {
                return frame;
            }
        }
    }

    async fn reply(&mut self, id: u64) -> Value {
        if let Some(seen) = self.seen.iter().find(|frame| frame["id"] == id) {
            return seen.clone();
        }
        self.until(|frame| frame["id"] == id).await
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.reply(id).await
    }

    async fn until_status(&mut self, session: &str, status: &str) {
        self.until(|frame| {
            frame["method"] == "session.status"
                && frame["params"]["sessionId"] == session
                && frame["params"]["status"] == status
        })
        .await;
    }

    async fn end(&mut self) {
        while self.next().await.is_some() {}
    }

    /// The numbered events of a session that were read.
    fn events(&self, session: &str) -> Vec<Value> {
        let of_session = |frame: &&Value| frame["params"]["sessionId"] == session;
        let events = self.seen.iter().filter(of_session).map(|frame| frame["params"]["event"].clone());
        events.filter(|event| event.get("seq").is_some()).collect()
    }
}

fn kind(reply: &Value) -> &str {
    reply["error"]["data"]["kind"].as_str().unwrap_or_else(|| panic!("no error: {reply}"))
}

#[tokio::test]
async fn every_event_of_a_turn_precedes_its_reply() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let id = peer.prompt("s", "hello").await;
    let reply = peer.reply(id).await;
    assert_eq!(reply["result"]["status"], "ok");
    let before = &peer.seen[peer.seen.len() - 2];
    assert_eq!((&before["method"], &before["params"]["status"]), (&json!("session.status"), &json!("idle")));
    let events = peer.events("s");
    assert_eq!(events.first().unwrap()["type"], "session/opened");
    assert_eq!(events.last().unwrap()["type"], "turn/end");
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn of_prompts_at_once_one_wins_whoever_sends_them() {
    let served = Served::new(|_| {});
    let mut peers = Vec::new();
    for _ in 0..8 {
        peers.push(served.peer(json!({})).await);
    }
    let mut busy = 0;
    let mut ids = Vec::new();
    for peer in &mut peers {
        ids.push(peer.prompt("s", "stall").await);
    }
    let mut winner = None;
    for (at, (peer, id)) in peers.iter_mut().zip(&ids).enumerate() {
        let first = peer.until(|frame| frame["id"] == *id || frame["method"] == "session.status").await;
        if first["id"] == *id {
            assert_eq!(kind(&first), "session_busy");
            busy += 1;
        } else {
            winner = Some(at);
        }
    }
    assert_eq!(busy, 7);
    let winner = &mut peers[winner.unwrap()];
    assert_eq!(winner.call("session/cancel", json!({ "sessionId": "s" })).await["result"]["cancelled"], true);
}

#[tokio::test]
async fn a_refused_prompt_subscribes_to_nothing() {
    let served = Served::new(|_| {});
    let mut first = served.peer(json!({})).await;
    first.prompt("s", "stall").await;
    first.until_status("s", "running").await;
    let mut second = served.peer(json!({})).await;
    let id = second.prompt("s", "hello").await;
    assert_eq!(kind(&second.reply(id).await), "session_busy");
    first.call("session/cancel", json!({ "sessionId": "s" })).await;
    second.call("server/ping", json!({})).await;
    assert_eq!(second.events("s"), Vec::<Value>::new());
}

/// A task for each request let a cancel overtake the prompt before it.
#[tokio::test]
async fn a_cancel_never_overtakes_the_prompt_before_it() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    for round in 0..50 {
        let session = format!("s{round}");
        let prompt = peer.prompt(&session, "stall").await;
        let cancel = peer.send("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(peer.reply(cancel).await["result"]["cancelled"], true);
        assert_eq!(peer.reply(prompt).await["result"]["status"], "aborted");
        assert_eq!(peer.events(&session).last().unwrap()["type"], "turn/end");
    }
}

#[tokio::test]
async fn requests_behind_initialize_see_an_initialized_connection() {
    let served = Served::new(|_| {});
    let mut peer = served.connect_as(PeerKind::Unix { uid: 0, pid: None });
    let first = peer.send("session/list", json!({})).await;
    let initialize = peer.send("initialize", json!({ "cwd": served.house.dir.path() })).await;
    let prompt = peer.prompt("s", "hello").await;
    assert_eq!(kind(&peer.reply(first).await), "not_initialized");
    assert_eq!(peer.reply(initialize).await["result"]["protocolVersion"], 1);
    assert_eq!(peer.reply(prompt).await["result"]["status"], "ok");
}

#[tokio::test]
async fn an_id_in_flight_is_not_taken_twice_and_may_be_used_again() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let blocks = r#"[{"type":"text","text":"stall"}]"#;
    peer.raw(&format!(
        "{}\n{}\n",
        format_args!(
            r#"{{"id":"x","method":"session/prompt","params":{{"sessionId":"s","contentBlocks":{blocks}}}}}"#
        ),
        r#"{"id":"x","method":"server/ping"}"#
    ))
    .await;
    let refused = peer.until(|frame| frame["id"] == "x").await;
    assert_eq!(kind(&refused), "duplicate_id");
    peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    if !peer.seen.iter().any(|frame| frame["result"]["status"] == "aborted") {
        peer.until(|frame| frame["id"] == "x").await;
    }
    peer.raw("{\"id\":\"x\",\"method\":\"server/ping\"}\n").await;
    assert_eq!(peer.until(|frame| frame["id"] == "x").await["result"], json!({}));
}

#[tokio::test]
async fn over_the_limit_requests_are_refused_but_not_those_that_let_go() {
    let served = Served::new(|config| config.limits.in_flight = 2);
    let mut peer = served.peer(json!({})).await;
    peer.prompt("a", "stall").await;
    peer.prompt("b", "stall").await;
    let third = peer.prompt("c", "hello").await;
    let refused = peer.reply(third).await;
    assert_eq!(kind(&refused), "overloaded");
    assert!(refused["error"]["data"]["retryAfterMs"].as_u64().unwrap() > 0);
    assert_eq!(peer.call("server/ping", json!({})).await["result"], json!({}));
    assert!(peer.call("server/status", json!({})).await["result"]["counts"]["inFlight"].as_u64() >= Some(2));
    assert_eq!(peer.call("session/cancel", json!({ "sessionId": "a" })).await["result"]["cancelled"], true);
    let again = peer.prompt("c", "hello").await;
    assert_eq!(peer.reply(again).await["result"]["status"], "ok");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_not_read_from() {
    let served = Served::new(|_| {});
    let mut peer = served.connect_as(PeerKind::Unix { uid: 0, pid: None });
    let ping = "{\"id\":1,\"method\":\"nothing/there\"}\n".repeat(1000);
    let flood = async {
        loop {
            peer.write.write_all(ping.as_bytes()).await.unwrap();
        }
    };
    // Paused time stands still while bytes move, so this ends only when nothing does.
    let blocked = tokio::time::timeout(Duration::from_secs(2), flood).await;
    assert!(blocked.is_err());
    let lag = served.house.shared.connections().pop().unwrap().lag_bytes;
    assert!(lag <= 128 * 1024, "{lag}");
    peer.next().await.unwrap();
}

#[tokio::test]
async fn too_many_bad_frames_in_a_row_end_a_connection_after_the_last_answer() {
    let served = Served::new(|config| config.limits.bad_frames = 5);
    let mut peer = served.peer(json!({})).await;
    peer.raw("x\nx\nx\nx\n{\"id\":9,\"method\":\"server/ping\"}\nx\nx\nx\n[]\n7\nx\nx\n").await;
    peer.end().await;
    let bad = peer.seen.iter().filter(|frame| frame.get("error").is_some()).count();
    assert_eq!(bad, 9);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_answered_once_and_passed_over() {
    let served = Served::new(|config| config.limits.line_bytes = crate::config::ByteSize(1024));
    let mut peer = served.peer(json!({})).await;
    peer.raw(&format!("{}\n", "a".repeat(10_000))).await;
    let answer = peer.next().await.unwrap();
    assert_eq!((kind(&answer), &answer["id"]), ("line_too_long", &Value::Null));
    assert_eq!(peer.call("server/ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn before_authentication_whoever_does_not_speak_the_protocol_gets_no_byte() {
    let served = Served::new(|_| {});
    let tcp = PeerKind::Tcp { address: "127.0.0.1:9".parse().unwrap() };
    let long =
        format!("{{\"id\":1,\"method\":\"authenticate\",\"params\":{{\"token\":\"{}", "x".repeat(9000));
    for bytes in [
        "POST / HTTP/1.1\r\n\r\n{\"id\":1,\"method\":\"server/ping\"}\n",
        "GET",
        "[]\n",
        "{\"method\":\"server/ping\"}\n",
        "{nonsense}\n",
        long.as_str(),
    ] {
        let mut peer = served.connect_as(tcp);
        peer.raw(bytes).await;
        let mut rest = Vec::new();
        tokio::time::timeout(PATIENCE, peer.read.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.is_empty(), "{bytes}: {}", String::from_utf8_lossy(&rest));
    }
}

#[tokio::test]
async fn a_peer_without_a_valid_token_is_told_and_closed() {
    let served = Served::new(|_| {});
    for request in [
        r#"{"id":1,"method":"authenticate","params":{"token":"dshd_wrong"}}"#,
        r#"{"id":1,"method":"authenticate","params":{"token":""}}"#,
        r#"{"id":1,"method":"initialize","params":{}}"#,
    ] {
        let mut peer = served.connect_as(PeerKind::Tcp { address: "127.0.0.1:9".parse().unwrap() });
        peer.raw(&format!("{request}\n{{\"id\":2,\"method\":\"server/ping\"}}\n")).await;
        assert_eq!(kind(&peer.next().await.unwrap()), "unauthenticated");
        assert_eq!(peer.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_closed_when_its_time_to_authenticate_is_over() {
    let served = Served::new(|_| {});
    let mut peer = served.connect_as(PeerKind::Tcp { address: "127.0.0.1:9".parse().unwrap() });
    assert_eq!(peer.next().await, None);
}

#[tokio::test]
async fn who_subscribes_later_hears_what_was_and_what_comes() {
    let served = Served::new(|_| {});
    let mut first = served.peer(json!({})).await;
    let id = first.prompt("s", "hello").await;
    first.reply(id).await;
    let mut second = served.peer(json!({ "deltas": false })).await;
    let subscribed = second.call("session/subscribe", json!({ "sessionId": "s", "since": -1 })).await;
    assert_eq!(second.seen.len(), 2, "the reply precedes the events");
    second.until_status("s", "idle").await;
    assert_eq!(subscribed["result"]["lastSeq"], second.events("s").last().unwrap()["seq"]);
    let id = first.prompt("s", "again").await;
    first.reply(id).await;
    second.until_status("s", "idle").await;
    assert_eq!(second.events("s"), first.events("s"));
    let statuses: Vec<&Value> = second
        .seen
        .iter()
        .filter(|frame| frame["method"] == "session.status")
        .map(|frame| &frame["params"]["status"])
        .collect();
    assert_eq!(statuses, ["running", "idle", "running", "idle"]);
    assert!(second.seen.iter().all(|frame| frame["params"]["event"].get("transient").is_none()));
}

#[tokio::test]
async fn since_starts_a_subscription_over_and_a_wrong_cursor_changes_nothing() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({ "deltas": false })).await;
    let id = peer.prompt("s", "hello").await;
    peer.reply(id).await;
    let epoch = peer.seen.iter().find_map(|frame| frame["params"]["epoch"].as_u64()).unwrap();
    let count = peer.events("s").len();
    let wrong =
        peer.call("session/subscribe", json!({ "sessionId": "s", "since": count + 5, "epoch": epoch })).await;
    assert_eq!(kind(&wrong), "cursor_invalid");
    let same = peer.call("session/subscribe", json!({ "sessionId": "s" })).await;
    assert_eq!(same["result"]["lastSeq"], count - 1);
    assert_eq!(peer.events("s").len(), count, "it was followed already: nothing is said twice");
    peer.call("session/subscribe", json!({ "sessionId": "s", "since": 1, "epoch": epoch })).await;
    peer.until_status("s", "idle").await;
    let again = peer.events("s").split_off(count);
    assert_eq!(again, peer.events("s")[2..count]);
}

#[tokio::test]
async fn who_unsubscribed_hears_no_more_and_is_answered_at_once() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let id = peer.prompt("s", "hello").await;
    peer.reply(id).await;
    let heard = peer.events("s").len();
    assert_eq!(peer.call("session/unsubscribe", json!({ "sessionId": "s" })).await["result"], json!({}));
    let mut other = served.peer(json!({})).await;
    let id = other.prompt("s", "again").await;
    other.reply(id).await;
    peer.call("server/ping", json!({})).await;
    assert_eq!(peer.events("s").len(), heard);
}

#[tokio::test]
async fn over_the_limit_of_subscriptions_the_idle_implicit_one_ends() {
    let served = Served::new(|config| config.limits.subscriptions = 2);
    let mut peer = served.peer(json!({})).await;
    for session in ["a", "b", "c"] {
        let id = peer.prompt(session, "hello").await;
        assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    }
    let mut other = served.peer(json!({})).await;
    for session in ["a", "b", "c"] {
        let id = other.prompt(session, "again").await;
        other.reply(id).await;
    }
    peer.until_status("c", "running").await;
    peer.until_status("c", "idle").await;
    let turns = |session| peer.events(session).iter().filter(|event| event["type"] == "turn/end").count();
    assert_eq!((turns("a"), turns("b"), turns("c")), (1, 2, 2));
    for session in ["b", "c"] {
        peer.call("session/subscribe", json!({ "sessionId": session })).await;
    }
    let refused = peer.call("session/subscribe", json!({ "sessionId": "a" })).await;
    assert_eq!((kind(&refused), &refused["error"]["data"]["max"]), ("limit_exceeded", &json!(2)));
}

#[tokio::test]
async fn who_hears_of_all_sessions_hears_each_from_its_first_event() {
    let served = Served::new(|_| {});
    let mut all = served.peer(json!({ "sessions": "all" })).await;
    let mut peer = served.peer(json!({})).await;
    for session in ["a", "b"] {
        let id = peer.prompt(session, "hello").await;
        peer.reply(id).await;
        all.until_status(session, "idle").await;
        assert_eq!(all.events(session), peer.events(session));
    }
}

#[tokio::test]
async fn shutdown_disposes_of_what_nobody_else_holds_and_closes() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let mut other = served.peer(json!({})).await;
    for session in ["mine", "shared"] {
        let id = peer.prompt(session, "hello").await;
        peer.reply(id).await;
    }
    other.call("session/subscribe", json!({ "sessionId": "shared" })).await;
    assert_eq!(peer.call("shutdown", json!({})).await["result"], json!({}));
    assert_eq!(peer.next().await, None);
    let status = other.call("server/status", json!({})).await;
    let loaded = status["result"]["sessions"].as_array().unwrap();
    assert_eq!(loaded.iter().map(|session| &session["sessionId"]).collect::<Vec<_>>(), ["shared"]);
}

#[tokio::test]
async fn requests_that_still_wait_are_answered_when_their_connection_shuts_down() {
    let served = Served::new(|_| {});
    let mut holder = served.peer(json!({})).await;
    holder.call("session/create", json!({ "sessionId": "s" })).await;
    let mut peer = served.peer(json!({})).await;
    let id = peer.prompt("s", "stall").await;
    peer.until_status("s", "running").await;
    peer.call("shutdown", json!({})).await;
    assert_eq!(kind(&peer.reply(id).await), "shutting_down");
    assert_eq!(peer.next().await, None);
}

#[tokio::test]
async fn the_end_of_the_input_lets_what_is_in_flight_be_answered() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    let id = peer.prompt("s", "hello").await;
    peer.write.shutdown().await.unwrap();
    peer.end().await;
    assert_eq!(peer.seen.last().unwrap()["id"], id);
    assert_eq!(peer.seen.last().unwrap()["result"]["status"], "ok");
}

#[tokio::test]
async fn a_connection_that_is_gone_takes_its_turns_along_only_if_it_said_so() {
    let served = Served::new(|config| config.shutdown.drain_timeout = Duration::from_millis(50));
    let mut watcher = served.peer(json!({ "sessions": "all" })).await;
    for manners in ["keep", "abort"] {
        let mut peer = served.peer(json!({ "onDisconnect": manners })).await;
        peer.prompt(manners, "stall").await;
        watcher.until_status(manners, "running").await;
    }
    let ended = watcher.until(|frame| frame["params"]["event"]["type"] == "turn/end").await;
    assert_eq!(ended["params"]["sessionId"], "abort");
    assert_eq!(ended["params"]["event"]["data"]["reason"]["kind"], "aborted");
    watcher.call("server/ping", json!({})).await;
    assert!(watcher.events("keep").iter().all(|event| event["type"] != "turn/end"));
}

#[tokio::test]
async fn a_receipt_comes_after_the_event_that_it_is_for() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({ "completion": "receipt" })).await;
    let id = peer.prompt("s", "hello").await;
    let receipt = peer.reply(id).await;
    assert_eq!(receipt["result"].as_object().unwrap().len(), 1);
    let events = peer.events("s");
    let insert = events.iter().find(|event| event["type"] == "agent/inbox/spliced").unwrap();
    assert_eq!(insert["data"]["inserted"][0]["id"], receipt["result"]["messageId"]);
    peer.until_status("s", "idle").await;
}

#[tokio::test]
async fn clients_are_told_once_that_the_daemon_drains() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    served.house.phase.send_replace(Phase::Draining { deadline: Duration::from_secs(7) });
    let told = peer.next().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["deadlineMs"]), (&json!("server.draining"), &json!(7000)));
    let after = told["params"]["reconnectAfterMs"].as_u64().unwrap();
    assert!((500..5000).contains(&after), "{after}");
    assert_eq!(peer.call("server/ping", json!({})).await["result"], json!({}));
    served.service.scope.drain();
    assert_eq!(peer.next().await, None);
    assert!(served.service.scope.wait(PATIENCE).await);
}

#[tokio::test]
async fn a_closed_session_is_told_and_can_be_prompted_again() {
    let served = Served::new(|_| {});
    let mut peer = served.peer(json!({})).await;
    for _ in 0..3 {
        let id = peer.prompt("s", "hello").await;
        peer.reply(id).await;
        peer.call("session/close", json!({ "sessionId": "s" })).await;
    }
    let closed = |peer: &Peer| peer.seen.iter().filter(|frame| frame["method"] == "session.closed").count();
    while closed(&peer) < 3 {
        peer.next().await.unwrap();
    }
    let turns = peer.events("s").iter().filter(|event| event["type"] == "turn/end").count();
    assert_eq!(turns, 3);
    let seqs: Vec<u64> = peer.events("s").iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>(), "nothing is lost or doubled");
}
