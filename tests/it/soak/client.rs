//! A client of the soak: one connection, which may end at any moment, by either side.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::ledger::{Follower, Ledger};
use crate::support::{Random, within};

/// The connection lives, or has ended.
pub(super) type Life<T> = io::Result<T>;

/// Refusals that are part of the game.
const EXPECTED: [&str; 7] = [
    "session_busy",
    "shutting_down",
    "overloaded",
    "session_not_found",
    "session_closed",
    "limit_exceeded",
    "session_locked",
];

pub(super) struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    last_id: u64,
    told: VecDeque<String>,
    /// The text in flight of each session, as this connection was told it.
    texts: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Frame<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Value>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    session_id: String,
    epoch: u64,
    #[serde(borrow)]
    event: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    events: Vec<Box<RawValue>>,
    next_since: Option<u64>,
}

impl Client {
    /// Connects as soon as a daemon is there; none when it is over before.
    pub(super) async fn connect(socket: &Path, over: &AtomicBool) -> Option<Self> {
        within("a daemon", async {
            loop {
                if let Ok(stream) = UnixStream::connect(socket).await {
                    let (reader, writer) = stream.into_split();
                    let (told, texts) = (VecDeque::new(), HashMap::new());
                    return Some(Self { reader: BufReader::new(reader), writer, last_id: 0, told, texts });
                }
                if over.load(Ordering::Acquire) {
                    return None;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// Prompts, cancels and closes for a while; then leaves without a word.
    pub(super) async fn prompt_for_a_while(
        &mut self,
        work: &Path,
        sessions: &[String],
        ledger: &Ledger,
        random: &mut Random,
    ) -> Life<()> {
        ledger.count_connection();
        let completion = if random.below(2) == 0 { "receipt" } else { "settled" };
        let bound = json!({ "cwd": work, "completion": completion, "whenBusy": "queue", "deltas": random.below(2) == 0 });
        self.call("initialize", &bound).await?;
        for _ in 0..=random.below(12) {
            let session = &sessions[usize::try_from(random.below(sessions.len() as u64)).unwrap()];
            match random.below(12) {
                0 => drop(self.call("session/close", &json!({ "sessionId": session })).await?),
                1 | 2 => {
                    ledger.count_cancel();
                    self.call("session/cancel", &json!({ "sessionId": session })).await?;
                }
                3 => drop(self.call("session/list", &json!({})).await?),
                _ => {
                    let kinds = ["text", "tool", "fail", "long", "slow", "text"];
                    let kind = kinds[usize::try_from(random.below(6)).unwrap()];
                    let said = format!("{kind} {:x}", random.next());
                    let mut params =
                        json!({ "sessionId": session, "contentBlocks": [{ "type": "text", "text": said }] });
                    if random.below(2) == 0 {
                        params["idempotencyKey"] = json!(said);
                    }
                    let outcome = self.call("session/prompt", &params).await?;
                    ledger.promise(session, &outcome);
                }
            }
        }
        Ok(())
    }

    /// Follows some sessions from where the follower is, at a pace of its own, and leaves in the middle of a frame.
    pub(super) async fn follow_for_a_while(
        &mut self,
        work: &Path,
        sessions: &[String],
        ledger: &Ledger,
        follower: &mut Follower,
        random: &mut Random,
    ) -> Life<()> {
        ledger.count_connection();
        self.call("initialize", &json!({ "cwd": work })).await?;
        let first = usize::try_from(random.below(sessions.len() as u64)).unwrap();
        let many = usize::try_from(1 + random.below(4)).unwrap();
        for session in sessions.iter().cycle().skip(first).take(many) {
            self.subscribe(session, follower).await?;
        }
        let pause_ms = [0, 0, 1, 20][usize::try_from(random.below(4)).unwrap()];
        for _ in 0..=random.below(600) {
            let line = match self.told.pop_front() {
                Some(line) => line,
                // Where nothing happens for a while there is more elsewhere.
                None => match tokio::time::timeout(Duration::from_millis(300), self.line()).await {
                    Ok(line) => line?,
                    Err(_) => return Ok(()),
                },
            };
            self.take(&line, ledger, follower);
            if pause_ms > 0 && random.below(8) == 0 {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            }
        }
        if random.below(10) == 0 {
            // Long enough to be cut for taking no byte.
            tokio::time::sleep(Duration::from_millis(1500)).await;
        }
        Ok(())
    }

    /// Follows a session to its end.
    pub(super) async fn catch_up(
        &mut self,
        session: &str,
        last: u64,
        ledger: &Ledger,
        follower: &mut Follower,
    ) -> Life<()> {
        if follower.place(session).is_some_and(|(_, seq)| seq == last) {
            return Ok(());
        }
        self.subscribe(session, follower).await?;
        while follower.place(session).is_none_or(|(_, seq)| seq < last) {
            let line = match self.told.pop_front() {
                Some(line) => line,
                None => self.line().await?,
            };
            self.take(&line, ledger, follower);
        }
        self.call("session/unsubscribe", &json!({ "sessionId": session })).await?;
        self.told.clear();
        Ok(())
    }

    /// The last event of a session and the hash of all; none when it does not exist. Checks what was promised.
    pub(super) async fn whole(&mut self, session: &str, ledger: &Ledger) -> Life<Option<(u64, String)>> {
        let (mut hash, mut next, mut since) = (Sha256::new(), 0, json!(-1));
        let mut inserted = BTreeSet::new();
        loop {
            let page = self
                .request("session/read", &json!({ "sessionId": session, "since": since, "limit": 1000 }))
                .await?;
            let Ok(page) = page else { break };
            let page: Page = serde_json::from_str(page.get()).unwrap();
            for event in &page.events {
                hash.update(event.get().as_bytes());
                hash.update(b"\n");
                let event: Value = serde_json::from_str(event.get()).unwrap();
                assert_eq!(event["seq"], next, "{session}: dense");
                next += 1;
                for message in event["data"]["inserted"].as_array().into_iter().flatten() {
                    assert!(
                        inserted.insert(message["id"].as_str().unwrap().to_owned()),
                        "{session}: inserted twice"
                    );
                }
            }
            match page.next_since {
                Some(last) => since = json!(last),
                None => break,
            }
        }
        ledger.check(session, &inserted);
        let hash = format!("{:x?}", hash.finalize().as_slice());
        Ok((next > 0).then(|| (next - 1, hash)))
    }

    /// A request. A refusal that is part of the game is null; another fails the test.
    pub(super) async fn call(&mut self, method: &str, params: &Value) -> Life<Value> {
        match self.request(method, params).await? {
            Ok(result) => Ok(serde_json::from_str(result.get()).unwrap()),
            Err(error) => {
                let kind = error["data"]["kind"].as_str().unwrap_or_default();
                assert!(EXPECTED.contains(&kind), "{method} {params}: {error}");
                Ok(Value::Null)
            }
        }
    }

    async fn subscribe(&mut self, session: &str, follower: &Follower) -> Life<()> {
        let params = match follower.place(session) {
            Some((epoch, seq)) => json!({ "sessionId": session, "epoch": epoch, "since": seq }),
            None => json!({ "sessionId": session, "since": -1 }),
        };
        self.call("session/subscribe", &params).await.map(drop)
    }

    async fn request(&mut self, method: &str, params: &Value) -> Life<Result<Box<RawValue>, Value>> {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        within("write", self.writer.write_all(format!("{request}\n").as_bytes())).await?;
        loop {
            let line = self.line().await?;
            let frame: Frame<'_> = serde_json::from_str(&line).unwrap();
            if frame.id == Some(self.last_id) {
                return Ok(frame.result.map(ToOwned::to_owned).ok_or_else(|| frame.error.unwrap()));
            }
            self.told.push_back(line);
        }
    }

    async fn line(&mut self) -> Life<String> {
        let mut line = Vec::new();
        within("a line", self.reader.read_until(b'\n', &mut line)).await?;
        if line.pop() != Some(b'\n') {
            // What a dying daemon could not finish was not said.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        String::from_utf8(line).map_err(|error| panic!("{error}"))
    }

    /// Takes a notification: its place, and whether a message's text is what was told before it.
    fn take(&mut self, line: &str, ledger: &Ledger, follower: &mut Follower) {
        let frame: Frame<'_> = serde_json::from_str(line).unwrap();
        let Some(told) = frame.params.and_then(|params| serde_json::from_str::<Told<'_>>(params.get()).ok())
        else {
            return;
        };
        let event: Value = serde_json::from_str(told.event.get()).unwrap();
        let text = self.texts.entry(told.session_id.clone()).or_default();
        if event["transient"] == true {
            ledger.count_delta();
            let chunk = &event["data"]["chunk"];
            if chunk["type"] == "block-start" && chunk["index"] == 0 {
                text.clear();
            }
            if chunk["type"] == "text-delta" {
                text.push_str(chunk["text"].as_str().unwrap());
            }
            return;
        }
        ledger.count_event();
        follower.take(&told.session_id, told.epoch, event["seq"].as_u64().unwrap(), told.event.get());
        if event["type"] == "assistant/message" {
            let blocks = event["data"]["message"]["content"].as_array().unwrap();
            let texts = blocks.iter().filter(|block| block["type"] == "text");
            let said: String = texts.map(|block| block["text"].as_str().unwrap()).collect();
            let same = said.bytes().zip(text.bytes()).take_while(|(said, told)| said == told).count();
            assert!(
                said.starts_with(text.as_str()),
                "{}: of {} bytes told {same} are of the {} bytes said by {}",
                told.session_id,
                text.len(),
                said.len(),
                event["seq"],
            );
            if !text.is_empty() {
                ledger.count_message();
            }
        }
        if event["type"] == "assistant/message" || event["type"] == "assistant/attempt" {
            text.clear();
        }
    }
}
