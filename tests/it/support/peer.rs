//! A raw peer: lines in, lines out, over a Unix socket, TCP or a child's stdio. It knows JSON but no protocol types,
//! so that a mistake in those can't hide itself.
//!
//! A peer that is dropped with a message unread fails the test; [`Peer::leave_unread`] says that this is meant, and
//! [`Peer::finish`] makes sure to the last byte.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitStatus;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};

use super::within;

/// One peer.
pub(crate) struct Peer {
    reader: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    writer: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Messages that were read while another was awaited.
    stash: VecDeque<Value>,
    next_id: u64,
    may_leave_unread: bool,
    child: Option<Child>,
}

impl Peer {
    /// Over any streams.
    pub(crate) fn over(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self {
            reader: BufReader::new(Box::new(reader)),
            writer: Some(Box::new(writer)),
            stash: VecDeque::new(),
            next_id: 0,
            may_leave_unread: false,
            child: None,
        }
    }

    /// Connects to a Unix socket.
    pub(crate) async fn unix(path: &Path) -> Self {
        let stream = within("connect", UnixStream::connect(path)).await.unwrap();
        let (reader, writer) = stream.into_split();
        Self::over(reader, writer)
    }

    /// Connects to `host:port`.
    pub(crate) async fn tcp(address: &str) -> Self {
        let stream = within("connect", TcpStream::connect(address)).await.unwrap();
        let (reader, writer) = stream.into_split();
        Self::over(reader, writer)
    }

    /// Runs a command and speaks over its stdin and stdout. Its stderr goes to the test's own.
    pub(crate) fn stdio(mut command: Command) -> Self {
        let mut child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::inherit())
            .spawn()
            .unwrap();
        let mut peer = Self::over(child.stdout.take().unwrap(), child.stdin.take().unwrap());
        peer.child = Some(child);
        peer
    }

    /// Unread messages at the end are no failure.
    pub(crate) fn leave_unread(&mut self) {
        self.may_leave_unread = true;
    }

    /// Writes bytes as they are.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let writer = self.writer.as_mut().expect("the write side is open");
        within("write", async {
            writer.write_all(bytes).await.unwrap();
            writer.flush().await.unwrap();
        })
        .await;
    }

    /// Writes a line.
    pub(crate) async fn send_line(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes()).await;
    }

    /// Sends a request under a new id, and returns the id.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send_line(&request.to_string()).await;
        id
    }

    /// Ends our side; the daemon answers what is in flight.
    pub(crate) async fn close_write(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            // The peer may have closed first.
            let _ = within("shutdown", writer.shutdown()).await;
        }
    }

    /// The next line as it came, without its end; `None` at the end of the stream. Messages that were put aside are
    /// not lines any more and must have been taken before.
    pub(crate) async fn line(&mut self) -> Option<String> {
        assert!(self.stash.is_empty(), "put aside and not taken: {:?}", self.stash);
        self.read_line().await
    }

    /// The next line as it came; `None` at the end of the stream, whose last line may have been cut in its middle.
    pub(crate) async fn whole_line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let _ = within("a line", self.reader.read_until(b'\n', &mut line)).await;
        line.pop_if(|last| *last == b'\n')?;
        Some(String::from_utf8(line).unwrap())
    }

    async fn read_line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        // A reset is an end as well.
        let read = within("a line", self.reader.read_until(b'\n', &mut line)).await.unwrap_or(0);
        if read == 0 {
            return None;
        }
        assert_eq!(line.pop(), Some(b'\n'), "the last line has no end: {}", String::from_utf8_lossy(&line));
        assert_ne!(line.last(), Some(&b'\r'), "lines end in \\n alone");
        Some(String::from_utf8(line).unwrap())
    }

    /// The next message, one put aside first.
    #[track_caller]
    pub(crate) fn message(&mut self) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            match self.stash.pop_front() {
                Some(message) => message,
                None => self.read_message(caller).await,
            }
        }
    }

    async fn read_message(&mut self, caller: &std::panic::Location<'_>) -> Value {
        let Some(line) = self.read_line().await else { panic!("the stream ended ({caller})") };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line} ({caller})"))
    }

    /// Takes the first message that fits, read already or not; others are put aside in their order.
    #[track_caller]
    pub(crate) fn take(&mut self, fits: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            if let Some(at) = self.stash.iter().position(&fits) {
                return self.stash.remove(at).unwrap();
            }
            loop {
                let message = self.read_message(caller).await;
                if fits(&message) {
                    return message;
                }
                self.stash.push_back(message);
            }
        }
    }

    /// The whole reply to a request; what came before it is put aside.
    #[track_caller]
    pub(crate) fn reply(&mut self, id: u64) -> impl Future<Output = Value> {
        self.take(move |message| message["id"] == id)
    }

    /// Sends a request and awaits its result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let id = self.send(method, params).await;
            let mut reply = self.reply(id).await;
            assert!(reply.get("error").is_none(), "{method} was refused: {reply} ({caller})");
            reply["result"].take()
        }
    }

    /// Sends a request and awaits its refusal: the error object.
    #[track_caller]
    pub(crate) fn refused(&mut self, method: &str, params: Value) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let id = self.send(method, params).await;
            let mut reply = self.reply(id).await;
            assert!(reply.get("result").is_none(), "{method} was not refused: {reply} ({caller})");
            reply["error"].take()
        }
    }

    /// `initialize`, and its result.
    pub(crate) async fn initialize(&mut self, params: Value) -> Value {
        self.call("initialize", params).await
    }

    /// Sends a prompt of one text, and returns the request's id.
    pub(crate) async fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        let blocks = json!([{ "type": "text", "text": text }]);
        self.send("session/prompt", json!({ "sessionId": session, "contentBlocks": blocks })).await
    }

    /// Sends a prompt of one text and awaits its result; its events are put aside.
    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.send_prompt(session, text).await;
        let mut reply = self.reply(id).await;
        assert!(reply.get("error").is_none(), "the prompt was refused: {reply}");
        reply["result"].take()
    }

    /// As a daemon: answers a request.
    pub(crate) async fn answer(&mut self, request: &Value, result: Value) {
        self.send_line(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string()).await;
    }

    /// As a daemon: refuses a request.
    pub(crate) async fn refuse(&mut self, request: &Value, code: i64, message: &str, data: Value) {
        let error = json!({ "code": code, "message": message, "data": data });
        self.send_line(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }).to_string()).await;
    }

    /// As a daemon: takes the next request, which must be of this method.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let request = self.message().await;
            assert_eq!(request["method"], method, "{request} ({caller})");
            request
        }
    }

    /// The params of the next notification of this method; others are put aside.
    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        let mut message = self.take(|message| message["method"] == method).await;
        message["params"].take()
    }

    /// The next stored or transient event of this type, whole `params`; others are put aside.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        let fits = |message: &Value| {
            message["method"] == "session.event" && message["params"]["event"]["type"] == kind
        };
        let mut message = self.take(fits).await;
        message["params"].take()
    }

    /// Takes everything that was put aside, in its order.
    pub(crate) fn take_aside(&mut self) -> Vec<Value> {
        self.stash.drain(..).collect()
    }

    /// Makes sure that nothing was sent before now: a ping's answer is the next message.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let id = self.send("server/ping", json!({})).await;
            let next = self.message().await;
            assert_eq!(next["id"], id, "something was sent: {next} ({caller})");
        }
    }

    /// Waits for the end of the stream; a message before it fails the test.
    pub(crate) async fn expect_eof(&mut self) {
        assert!(self.stash.is_empty(), "put aside and not taken: {:?}", self.stash);
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = within("the stream's end", self.reader.read_to_end(&mut rest)).await;
        assert!(rest.is_empty(), "left unread: {}", String::from_utf8_lossy(&rest));
    }

    /// Ends our side, makes sure that nothing was left unread, and waits for the process if there is one.
    pub(crate) async fn finish(mut self) -> Option<ExitStatus> {
        self.close_write().await;
        if self.may_leave_unread {
            let _ = within("the stream's end", self.reader.read_to_end(&mut Vec::new())).await;
        } else {
            self.expect_eof().await;
        }
        self.exited().await
    }

    /// Waits for the process to end, if there is one.
    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        Some(within("the process's end", child.wait()).await.unwrap())
    }

    /// The process behind it.
    pub(crate) fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("a peer over stdio")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.may_leave_unread || std::thread::panicking() {
            return;
        }
        assert!(self.stash.is_empty(), "put aside and not taken: {:?}", self.stash);
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(Ok(bytes)) = Pin::new(&mut self.reader).poll_fill_buf(&mut context) {
            assert!(bytes.is_empty(), "left unread: {}", String::from_utf8_lossy(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Peer, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(4096);
        let (reader, writer) = tokio::io::split(ours);
        (Peer::over(reader, writer), theirs)
    }

    #[tokio::test]
    #[should_panic(expected = "left unread")]
    async fn a_peer_that_is_dropped_with_a_message_unread_fails() {
        let (peer, mut daemon) = pair();
        daemon.write_all(b"{}\n").await.unwrap();
        drop(peer);
    }

    #[tokio::test]
    #[should_panic(expected = "put aside and not taken")]
    async fn a_peer_that_is_dropped_with_a_message_put_aside_fails() {
        let (mut peer, mut daemon) = pair();
        daemon.write_all(b"{\"method\":\"x\"}\n{\"id\":1}\n").await.unwrap();
        peer.reply(1).await;
        drop(peer);
    }
}
