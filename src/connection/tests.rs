//! Connections over in-memory streams: what a peer hears, and in which order.

mod ending;
mod following;
mod model;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

use super::{Service, framing, serve};
use crate::auth::peer::{PeerInfo, PeerKind};
use crate::auth::token::Tokens;
use crate::config::Config;
use crate::handler::caller::Defaults;
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
