//! A session over connections that end, against a daemon whose lines belong to the test.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use super::*;
use crate::client::Client;
use crate::protocol::Receipt;

/// The daemon's side of one connection.
struct Daemon {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Daemon {
    async fn request(&mut self, method: &str) -> Value {
        let line = within(self.lines.next_line()).await.unwrap().expect("a request");
        let request: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(request["method"], method, "{request}");
        request
    }

    async fn say(&mut self, text: &str) {
        within(self.writer.write_all(text.as_bytes())).await.unwrap();
    }

    async fn answer(&mut self, request: &Value, result: &Value) {
        self.say(&format!("{}\n", json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))).await;
    }

    async fn refuse(&mut self, request: &Value, kind: &str) {
        let error = json!({ "code": -32000, "message": kind, "data": { "kind": kind } });
        self.say(&format!("{}\n", json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }))).await;
    }

    async fn event(&mut self, seq: u64) {
        let params = json!({ "sessionId": "s", "epoch": 7, "event": { "type": "x", "seq": seq, "time": 1, "data": {} } });
        self.say(&format!("{}\n", json!({ "jsonrpc": "2.0", "method": "session.event", "params": params })))
            .await;
    }
}

/// Where connections come from; each is given to the test as its other side.
#[derive(Clone)]
struct Port(mpsc::Sender<Daemon>);

fn port() -> (Dial, mpsc::Receiver<Daemon>) {
    let (port, daemons) = mpsc::channel(4);
    let port = Port(port);
    let dial = Dial::by(move || {
        let port = port.clone();
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(4096);
            let (reader, writer) = tokio::io::split(theirs);
            let daemon = Daemon { lines: BufReader::new(reader).lines(), writer };
            port.0.send(daemon).await.map_err(|_| DialError::Later("nobody listens".to_owned()))?;
            let (reader, writer) = tokio::io::split(ours);
            Ok(Client::over(reader, writer))
        })
    });
    (dial, daemons)
}

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

fn id() -> SessionId {
    SessionId::new("s").unwrap()
}

fn subscribed(last: i64) -> Value {
    json!({ "epoch": 7, "lastSeq": last, "status": "idle" })
}

async fn open(dial: Dial, daemons: &mut mpsc::Receiver<Daemon>, from: From) -> (Session, Updates, Daemon) {
    let opening = Session::open(dial, id(), from, Options::default());
    let serving = async {
        let mut daemon = daemons.recv().await.unwrap();
        let request = daemon.request("session/subscribe").await;
        daemon.answer(&request, &subscribed(4)).await;
        daemon
    };
    let (opened, daemon) = within(async { tokio::join!(opening, serving) }).await;
    let (session, updates) = opened.unwrap();
    (session, updates, daemon)
}

async fn seq(updates: &mut Updates) -> u64 {
    let Some(Update::Told(told)) = within(updates.next()).await else { panic!("no event") };
    let params: Value = serde_json::from_str(told.params.get()).unwrap();
    params["event"]["seq"].as_u64().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again_from_the_last_event() {
    let (dial, mut daemons) = port();
    let (_session, mut updates, mut daemon) = open(dial, &mut daemons, From::Now).await;
    daemon.event(5).await;
    assert_eq!(seq(&mut updates).await, 5);
    // In the middle of a line.
    daemon.say("{\"jsonrpc\":\"2.0\",\"method\":\"session.ev").await;
    drop(daemon);
    assert!(matches!(within(updates.next()).await, Some(Update::Lost { .. })));
    let mut daemon = within(daemons.recv()).await.unwrap();
    let request = daemon.request("session/subscribe").await;
    assert_eq!((&request["params"]["since"], &request["params"]["epoch"]), (&json!(5), &json!(7)));
    daemon.answer(&request, &subscribed(6)).await;
    daemon.event(6).await;
    assert!(matches!(within(updates.next()).await, Some(Update::Back)));
    assert_eq!(seq(&mut updates).await, 6);
}

/// The connection was cut before `running` was told, and again before `idle` was: the second one took `running` as known,
/// and the third one `idle`.
#[tokio::test(start_paused = true)]
async fn that_the_agent_works_is_told_although_a_cut_connection_never_said_so() {
    let (dial, mut daemons) = port();
    let (_session, mut updates, daemon) = open(dial, &mut daemons, From::Now).await;
    drop(daemon);
    let mut statuses = Vec::new();
    for (status, last) in [("running", 5), ("idle", 6)] {
        let mut daemon = within(daemons.recv()).await.unwrap();
        let request = daemon.request("session/subscribe").await;
        daemon.answer(&request, &json!({ "epoch": 7, "lastSeq": last, "status": status })).await;
        daemon.event(u64::try_from(last).unwrap()).await;
        loop {
            let update = within(updates.next()).await.unwrap();
            let Update::Told(told) = update else { continue };
            let params: Value = serde_json::from_str(told.params.get()).unwrap();
            if let Some(status) = params["status"].as_str() {
                statuses.push(status.to_owned());
            } else if status == "running" {
                break;
            }
            if status == "idle" && statuses.len() == 2 {
                break;
            }
        }
    }
    assert_eq!(statuses, ["running", "idle"]);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_whose_reply_was_lost_is_asked_about_under_its_key() {
    let (dial, mut daemons) = port();
    let (session, _updates, mut daemon) = open(dial, &mut daemons, From::Now).await;
    let key = Arc::new(Mutex::new(Value::Null));
    let seen = Arc::clone(&key);
    let serving = async {
        let request = daemon.request("session/prompt").await;
        *seen.lock().unwrap() = request["params"]["idempotencyKey"].clone();
        drop(daemon);
        let mut daemon = daemons.recv().await.unwrap();
        let request = daemon.request("session/subscribe").await;
        daemon.answer(&request, &subscribed(6)).await;
        let request = daemon.request("session/prompt").await;
        assert_eq!(request["params"]["idempotencyKey"], *seen.lock().unwrap());
        assert!(request["params"]["idempotencyKey"].as_str().unwrap().len() > 20);
        daemon.answer(&request, &json!({ "messageId": "m" })).await;
        daemon
    };
    let (receipt, _daemon) =
        within(async { tokio::join!(session.prompt::<Receipt>(Vec::new()), serving) }).await;
    assert_eq!(receipt.unwrap().message_id.as_str(), "m");
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_no_more_is_told_and_the_new_one_comes_from_its_start() {
    let (dial, mut daemons) = port();
    let (_session, mut updates, daemon) = open(dial, &mut daemons, From::After(Epoch(7), Seq(4))).await;
    drop(daemon);
    assert!(matches!(within(updates.next()).await, Some(Update::Lost { .. })));
    let mut daemon = within(daemons.recv()).await.unwrap();
    let request = daemon.request("session/subscribe").await;
    daemon.refuse(&request, "cursor_invalid").await;
    let request = daemon.request("session/subscribe").await;
    assert_eq!(request["params"]["since"], -1);
    daemon.answer(&request, &subscribed(0)).await;
    assert!(matches!(within(updates.next()).await, Some(Update::Replaced)));
}

#[tokio::test(start_paused = true)]
async fn what_will_not_change_ends_it_and_so_does_the_end_of_patience() {
    let (dial, mut daemons) = port();
    let (session, mut updates, daemon) = open(dial, &mut daemons, From::Now).await;
    drop(daemon);
    assert!(matches!(within(updates.next()).await, Some(Update::Lost { .. })));
    let mut daemon = within(daemons.recv()).await.unwrap();
    let request = daemon.request("session/subscribe").await;
    daemon.refuse(&request, "session_not_found").await;
    let Some(Update::Ended(SessionError::Refused(error))) = within(updates.next()).await else {
        panic!("goes on")
    };
    assert_eq!(error.rpc().unwrap().kind, "session_not_found");
    assert!(within(updates.next()).await.is_none());
    let asked = within(session.prompt::<Receipt>(Vec::new())).await;
    assert!(matches!(asked, Err(SessionError::Refused(_))), "{asked:?}");

    let (dial, mut daemons) = port();
    let (_session, mut updates, daemon) = open(dial, &mut daemons, From::Now).await;
    drop((daemon, daemons));
    let error = tokio::time::timeout(Duration::from_mins(10), async {
        loop {
            match updates.next().await {
                Some(Update::Ended(error)) => return error,
                Some(_) => {}
                None => panic!("it ended without a word"),
            }
        }
    });
    assert!(matches!(error.await.unwrap(), SessionError::GaveUp { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_closed_ends_and_a_daemon_that_ends_is_waited_for() {
    for (cause, ends) in [("deleted", true), ("shutting_down", false)] {
        let (dial, mut daemons) = port();
        let (_session, mut updates, mut daemon) = open(dial, &mut daemons, From::Now).await;
        let params = json!({ "sessionId": "s", "cause": cause });
        daemon.say(&format!("{}\n", json!({ "method": "session.closed", "params": params }))).await;
        drop(daemon);
        assert!(matches!(within(updates.next()).await, Some(Update::Told(_))));
        let next = within(updates.next()).await;
        assert_eq!(
            matches!(next, Some(Update::Ended(SessionError::Closed { .. }))),
            ends,
            "{cause}: {next:?}"
        );
    }
}
