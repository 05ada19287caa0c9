//! A client that prompts until the daemon dies, and notes all that it is told, byte for byte.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::notes::Notes;
use crate::support::{Random, within};

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Prompts and waits for each turn's end.
    Settled,
    /// Prompts several times at once and waits for receipts.
    Bursts,
    /// As the first, with commands.
    Tools,
    /// Listens from where the last one of its kind stood.
    Follower,
}

pub(super) struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    notes: Notes,
    last_id: u64,
    replies: VecDeque<(u64, Reply)>,
    /// Whether the last notice of a status said idle.
    idle: bool,
}

/// A result, or an error.
type Reply = Result<Box<RawValue>, Value>;

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
    #[serde(default)]
    session_id: String,
    epoch: Option<u64>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    status: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    events: Vec<Box<RawValue>>,
    next_since: Option<u64>,
}

/// Whether the daemon has died, or another fault of the stream.
type Alive<T> = io::Result<T>;

fn text(result: &RawValue) -> Value {
    serde_json::from_str(result.get()).unwrap()
}

impl Client {
    /// `None` when the daemon is dead already.
    pub(super) async fn connect(socket: &Path, notes: Notes) -> Option<Self> {
        let stream = within("connect", UnixStream::connect(socket)).await.ok()?;
        let (reader, writer) = stream.into_split();
        let reader = BufReader::new(reader);
        Some(Self { reader, writer, notes, last_id: 0, replies: VecDeque::new(), idle: true })
    }

    /// Plays a role until the daemon dies.
    pub(super) async fn play(
        &mut self,
        role: Role,
        work: &Path,
        sessions: &[String],
        mut random: Random,
    ) -> Alive<()> {
        let completion = if matches!(role, Role::Bursts) { "receipt" } else { "settled" };
        let bound = json!({ "cwd": work, "completion": completion, "whenBusy": "queue" });
        self.call("initialize", bound).await?;
        let session = &sessions[0];
        match role {
            Role::Follower => return self.follow(sessions).await,
            Role::Bursts => loop {
                self.burst(session, &mut random).await?;
            },
            Role::Settled | Role::Tools => {}
        }
        loop {
            let nonce = random.next();
            let kind = match role {
                Role::Tools => "tool",
                Role::Settled | Role::Bursts | Role::Follower if nonce.is_multiple_of(4) => "fail once",
                Role::Settled | Role::Bursts | Role::Follower => "text",
            };
            let key = format!("key {nonce:x}");
            let key = (nonce.is_multiple_of(3)).then_some(key.as_str());
            self.prompt(session, &format!("{kind} {nonce:x}"), key).await?;
        }
    }

    async fn follow(&mut self, sessions: &[String]) -> Alive<()> {
        for session in sessions {
            if let Some((epoch, seq)) = self.notes.cursor(session) {
                // What was seen is still there, so the place is good.
                let params = json!({ "sessionId": session, "epoch": epoch, "since": seq });
                self.call("session/subscribe", params).await?;
            }
        }
        loop {
            self.read_frame().await?;
        }
    }

    /// Prompts a few times without waiting, then waits for all receipts and until the session is idle.
    async fn burst(&mut self, session: &str, random: &mut Random) -> Alive<()> {
        let mut sent = Vec::new();
        for _ in 0..=random.below(3) {
            let nonce = random.next();
            let (said, key) = (format!("burst {nonce:x}"), format!("key {nonce:x}"));
            let key = (nonce.is_multiple_of(2)).then_some(key);
            sent.push((self.send_prompt(session, &said, key.as_deref()).await?, said, key));
        }
        self.idle = false;
        for (id, said, key) in sent {
            let receipt = text(&self.reply(id).await?.unwrap_or_else(|error| panic!("{error}")));
            self.notes.promise(session, &said, key.as_deref(), &receipt);
        }
        while !self.idle {
            self.read_frame().await?;
        }
        Ok(())
    }

    /// Prompts, waits, and notes what was promised.
    pub(super) async fn prompt(&mut self, session: &str, said: &str, key: Option<&str>) -> Alive<Value> {
        let id = self.send_prompt(session, said, key).await?;
        let outcome = text(&self.reply(id).await?.unwrap_or_else(|error| panic!("{said}: {error}")));
        self.notes.promise(session, said, key, &outcome);
        Ok(outcome)
    }

    async fn send_prompt(&mut self, session: &str, said: &str, key: Option<&str>) -> Alive<u64> {
        self.notes.will_say(session, said, key);
        let mut params = json!({ "sessionId": session, "contentBlocks": [{ "type": "text", "text": said }] });
        if let Some(key) = key {
            params["idempotencyKey"] = json!(key);
        }
        self.send("session/prompt", &params).await
    }

    /// Every event of a session, as it stands in the answers.
    pub(super) async fn read_all(&mut self, session: &str) -> Vec<String> {
        let mut events = Vec::new();
        let mut since = json!(-1);
        loop {
            let params = json!({ "sessionId": session, "since": since, "limit": 1000 });
            let id = self.send("session/read", &params).await.unwrap();
            let result = self.reply(id).await.unwrap().unwrap_or_else(|error| panic!("{session}: {error}"));
            let page: Page = serde_json::from_str(result.get()).unwrap();
            events.extend(page.events.iter().map(|event| event.get().to_owned()));
            match page.next_since {
                Some(next) => since = json!(next),
                None => return events,
            }
        }
    }

    /// A request that must not be refused.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Alive<Value> {
        let id = self.send(method, &params).await?;
        Ok(text(&self.reply(id).await?.unwrap_or_else(|error| panic!("{method} {params}: {error}"))))
    }

    async fn send(&mut self, method: &str, params: &Value) -> Alive<u64> {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        within("write", self.writer.write_all(format!("{request}\n").as_bytes())).await?;
        Ok(self.last_id)
    }

    async fn reply(&mut self, id: u64) -> Alive<Reply> {
        loop {
            if let Some(at) = self.replies.iter().position(|(known, _)| *known == id) {
                return Ok(self.replies.remove(at).unwrap().1);
            }
            self.read_frame().await?;
        }
    }

    async fn read_frame(&mut self) -> Alive<()> {
        let mut line = Vec::new();
        within("a line", self.reader.read_until(b'\n', &mut line)).await?;
        if line.pop() != Some(b'\n') {
            // What the dying daemon could not finish was not said.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let frame: Frame<'_> = serde_json::from_slice(&line).unwrap();
        if let Some(id) = frame.id {
            let reply = frame.result.map(ToOwned::to_owned).ok_or_else(|| frame.error.unwrap());
            self.replies.push_back((id, reply));
            return Ok(());
        }
        let told: Told<'_> = serde_json::from_str(frame.params.unwrap().get()).unwrap();
        if let (Some(epoch), Some(event)) = (told.epoch, told.event) {
            self.notes.saw(&told.session_id, epoch, event.get());
        }
        if let Some(status) = told.status {
            self.idle = status == "idle";
        }
        Ok(())
    }
}
