//! A model server whose bytes and timing belong to the test. HTTP/1.1 on a port of its own; it ends when it is dropped.
//!
//! ```ignore
//! let server = ModelServer::start().await;
//! server.push(chat::reply(&["Hel", "lo"]));                    // a whole answer, queued: one for each request
//! server.push(Reply::status(429).header("retry-after", "1"));  // a refusal
//! let (reply, live) = Reply::live();                           // bytes as the test sends them
//! server.push(reply);
//! // … make the daemon call server.url() + "/chat/completions" …
//! live.send(chat::text("Hel")).await;
//! live.closed().await;                                         // the client has gone
//! let request = server.request().await;                        // method, path, headers, body; in order of arrival
//! ```
//! A request that finds no reply queued waits for one.
#![allow(dead_code, unreachable_pub, reason = "each crate that includes this file uses another part of it")]

#[path = "model_server/anthropic.rs"]
pub mod anthropic;
#[path = "model_server/chat.rs"]
pub mod chat;
#[path = "model_server/responses.rs"]
pub mod responses;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Every wait of a test ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    pub path: String,
    /// Names are lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

#[derive(Debug)]
enum Step {
    /// Written as it is.
    Raw(Vec<u8>),
    /// Written as one chunk of HTTP.
    Chunk(Vec<u8>),
    /// As chunks of one byte, with a pause after each.
    Drip(Vec<u8>, Duration),
    Pause(Duration),
    /// What the test sends from now on.
    Live(mpsc::Receiver<Told>, Arc<Notify>),
    /// Nothing more, until the client goes.
    Stall,
    /// The end of a chunked body; the connection stays.
    End,
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
}

#[derive(Debug)]
enum Told {
    Chunk(Vec<u8>),
    End,
    Close,
    Reset,
}

/// A wire, for tests that hold on each.
#[derive(Debug)]
pub struct Wire {
    /// The provider's `kind`.
    pub kind: &'static str,
    /// The member of a request that holds the conversation.
    pub history: &'static str,
    /// A whole answer of text.
    pub reply: fn(&[&str]) -> Reply,
    /// A whole answer that calls tools: id, name, arguments.
    pub calls: fn(&[(&str, &str, &str)]) -> Reply,
}

/// All of them.
pub const WIRES: [Wire; 3] = [
    Wire { kind: "chat", history: "messages", reply: chat::reply, calls: chat::calls },
    Wire { kind: "anthropic", history: "messages", reply: anthropic::reply, calls: anthropic::calls },
    Wire { kind: "responses", history: "input", reply: responses::reply, calls: responses::calls },
];

/// What a request gets.
#[derive(Debug, Default)]
pub struct Reply {
    head: String,
    steps: Vec<Step>,
}

impl Reply {
    /// `200` with a chunked body of events; `send` its parts, then `end`.
    pub fn stream() -> Self {
        Self { head: "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n".to_owned(), steps: Vec::new() }
    }

    /// Another status; `json` or `text` gives the body.
    pub fn status(status: u16) -> Self {
        Self { head: format!("HTTP/1.1 {status} Status\r\n"), steps: Vec::new() }.end()
    }

    /// Bytes that need not be HTTP.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { head: String::new(), steps: vec![Step::Raw(bytes.into())] }
    }

    /// The connection closes without an answer.
    pub fn hang_up() -> Self {
        Self { head: String::new(), steps: vec![Step::Close] }
    }

    /// The connection stays, no byte comes.
    pub fn silence() -> Self {
        Self { head: String::new(), steps: vec![Step::Stall] }
    }

    /// A stream whose parts the test sends when it likes.
    pub fn live() -> (Self, Live) {
        let (sender, receiver) = mpsc::channel(1024);
        let gone = Arc::new(Notify::new());
        let mut reply = Self::stream();
        reply.steps.push(Step::Live(receiver, gone.clone()));
        (reply, Live { sender, gone })
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head += name;
        self.head += ": ";
        self.head += value;
        self.head += "\r\n";
        self
    }

    #[must_use]
    pub fn json(self, body: &str) -> Self {
        self.header("content-type", "application/json").text(body)
    }

    #[must_use]
    pub fn text(mut self, body: &str) -> Self {
        self.steps.insert(0, Step::Chunk(body.into()));
        self
    }

    /// One chunk of the body.
    #[must_use]
    pub fn send(mut self, part: impl Into<Vec<u8>>) -> Self {
        self.steps.push(Step::Chunk(part.into()));
        self
    }

    /// Chunks of one byte, with a pause after each.
    #[must_use]
    pub fn drip(mut self, part: impl Into<Vec<u8>>, pause: Duration) -> Self {
        self.steps.push(Step::Drip(part.into(), pause));
        self
    }

    #[must_use]
    pub fn pause(mut self, time: Duration) -> Self {
        self.steps.push(Step::Pause(time));
        self
    }

    #[must_use]
    pub fn end(mut self) -> Self {
        self.steps.push(Step::End);
        self
    }

    #[must_use]
    pub fn close(mut self) -> Self {
        self.steps.push(Step::Close);
        self
    }

    #[must_use]
    pub fn reset(mut self) -> Self {
        self.steps.push(Step::Reset);
        self
    }

    #[must_use]
    pub fn stall(mut self) -> Self {
        self.steps.push(Step::Stall);
        self
    }
}

/// The test's hand on a stream.
#[derive(Debug)]
pub struct Live {
    sender: mpsc::Sender<Told>,
    gone: Arc<Notify>,
}

impl Live {
    /// One chunk of the body.
    pub async fn send(&self, part: impl Into<Vec<u8>>) {
        self.tell(Told::Chunk(part.into())).await;
    }

    pub async fn end(&self) {
        self.tell(Told::End).await;
    }

    pub async fn close(&self) {
        self.tell(Told::Close).await;
    }

    pub async fn reset(&self) {
        self.tell(Told::Reset).await;
    }

    /// Waits until the client has closed the connection.
    pub async fn closed(&self) {
        timeout(PATIENCE, self.gone.notified()).await.expect("the client keeps the stream");
    }

    async fn tell(&self, told: Told) {
        timeout(PATIENCE, self.sender.send(told)).await.unwrap().expect("nobody reads the stream");
    }
}

#[derive(Debug, Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    received: Mutex<(Vec<Received>, usize)>,
    reply_came: Notify,
    request_came: Notify,
    connections: Mutex<usize>,
}

/// The server.
#[derive(Debug)]
pub struct ModelServer {
    port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl ModelServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, shared.clone()));
        Self { port, shared, _tasks: tasks }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Queues a reply for a request.
    pub fn push(&self, reply: Reply) {
        self.shared.replies.lock().unwrap().push_back(reply);
        self.shared.reply_came.notify_one();
    }

    /// Drops the replies that nobody has asked for.
    pub fn forget_replies(&self) {
        self.shared.replies.lock().unwrap().clear();
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().0.clone()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        *self.shared.connections.lock().unwrap()
    }

    /// The next request that this function has not given yet.
    pub async fn request(&self) -> Received {
        timeout(PATIENCE, async {
            loop {
                let came = self.shared.request_came.notified();
                {
                    let mut received = self.shared.received.lock().unwrap();
                    let (all, given) = &mut *received;
                    if let Some(next) = all.get(*given) {
                        *given += 1;
                        return next.clone();
                    }
                }
                came.await;
            }
        })
        .await
        .expect("no request came")
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        *shared.connections.lock().unwrap() += 1;
        connections.spawn(serve(stream, shared.clone()));
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        shared.received.lock().unwrap().0.push(request);
        shared.request_came.notify_one();
        let reply = loop {
            let came = shared.reply_came.notified();
            if let Some(reply) = shared.replies.lock().unwrap().pop_front() {
                break reply;
            }
            came.await;
        };
        if write_reply(&mut stream, reply).await.is_none() {
            return;
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Received> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Vec<_> = lines.filter_map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, length)| length.parse().unwrap());
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    Some(Received { method, path, headers, body })
}

/// Writes a reply; none when the connection must not be used again.
async fn write_reply(stream: &mut TcpStream, reply: Reply) -> Option<()> {
    if !reply.head.is_empty() {
        let head = format!("{}transfer-encoding: chunked\r\n\r\n", reply.head);
        stream.write_all(head.as_bytes()).await.ok()?;
    }
    for step in reply.steps {
        match step {
            Step::Raw(bytes) => stream.write_all(&bytes).await.ok()?,
            Step::Chunk(bytes) => write_chunk(stream, &bytes).await?,
            Step::Drip(bytes, pause) => {
                for byte in bytes {
                    write_chunk(stream, &[byte]).await?;
                    tokio::time::sleep(pause).await;
                }
            }
            Step::Pause(time) => tokio::time::sleep(time).await,
            Step::Live(receiver, gone) => write_live(stream, receiver, &gone).await?,
            Step::Stall => {
                let _ = stream.read(&mut [0]).await;
                return None;
            }
            Step::End => stream.write_all(b"0\r\n\r\n").await.ok()?,
            Step::Close => return None,
            Step::Reset => return reset(stream),
        }
    }
    Some(())
}

async fn write_live(stream: &mut TcpStream, mut receiver: mpsc::Receiver<Told>, gone: &Notify) -> Option<()> {
    let mut byte = [0];
    loop {
        tokio::select! {
            told = receiver.recv() => match told {
                Some(Told::Chunk(bytes)) => {
                    if write_chunk(stream, &bytes).await.is_none() {
                        gone.notify_one();
                        return None;
                    }
                }
                Some(Told::End) => return stream.write_all(b"0\r\n\r\n").await.ok(),
                Some(Told::Reset) => return reset(stream),
                Some(Told::Close) | None => return None,
            },
            // The client sends nothing in mid-answer: whatever this returns, it has gone.
            _ = stream.read(&mut byte) => {
                gone.notify_one();
                return None;
            }
        }
    }
}

fn reset(stream: &TcpStream) -> Option<()> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    None
}

async fn write_chunk(stream: &mut TcpStream, bytes: &[u8]) -> Option<()> {
    if bytes.is_empty() {
        return Some(());
    }
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    stream.write_all(&chunk).await.ok()
}

/// One event.
pub fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}
