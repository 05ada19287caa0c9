//! Servers behind streamable HTTP: the stub on a socket of the test. One message is answered as JSON, several as a stream.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::stub::Stub;
use super::{Scene, offers, results, script};
use crate::support::{Daemon, Home};

/// The server; it ends when it is dropped.
pub(super) struct HttpStub {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl HttpStub {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let seen = heads.clone();
        tasks.spawn(async move {
            let stub = Arc::new(Mutex::new(Stub::new("")));
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, stub.clone(), seen.clone()));
            }
        });
        Self { address, heads, _tasks: tasks }
    }

    /// Its address.
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The heads of the requests so far, in lower case.
    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, stub: Arc<Mutex<Stub>>, heads: Arc<Mutex<Vec<String>>>) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap().to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let length: usize = length.unwrap_or(0);
        while buffer.len() < length {
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let body: Vec<u8> = buffer.drain(..length).collect();
        let answer = answer(&head, &body, &stub);
        heads.lock().unwrap().push(head);
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(head: &str, body: &[u8], stub: &Mutex<Stub>) -> String {
    if head.starts_with("get ") {
        return "HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n".to_owned();
    }
    if head.starts_with("delete ") {
        return "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned();
    }
    let message: Value = serde_json::from_slice(body).unwrap();
    let said = stub.lock().unwrap().take(&message);
    let (kind, body) = match said.as_slice() {
        [] => return "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
        [one] => ("application/json", one.clone()),
        several => {
            let events = several.iter().map(|one| format!("event: message\ndata: {one}\n\n"));
            ("text/event-stream", events.collect())
        }
    };
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nmcp-session-id: s1\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_server_behind_http_is_called_with_its_headers_and_its_changes_are_followed() {
    let server = HttpStub::start().await;
    let tables = format!(
        "[mcp.servers.web]\nurl = \"{}\"\nheaders = {{ Authorization = \"Bearer ${{STUB_TOKEN}}\" }}\n",
        server.url()
    );
    let home = Home::new();
    let calls = [
        ("mcp__web__echo", "hi"),
        ("mcp__web__add", "fresh"),
        ("mcp__web__fresh", ""),
        ("mcp__web__fail", ""),
    ];
    let lines = script(&calls);
    home.scripted(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &tables);
    let mut command = home.dshd(["serve"]);
    command.env("STUB_TOKEN", "t0k");
    let daemon = Daemon::spawn(&home, command);
    let mut scene = Scene { peer: daemon.peer().await, daemon };
    let events = scene.turn("s").await;
    assert_eq!(results(&events), ["you said hi", "added", "this is fresh", "it went wrong"]);
    assert_eq!(offers(&events).len(), 2);
    let heads = server.heads();
    assert!(heads.iter().all(|head| head.contains("authorization: bearer t0k")), "{heads:?}");
    assert!(heads.last().unwrap().contains("mcp-session-id: s1"), "{heads:?}");
    drop(server);
    scene.end().await;
}

#[tokio::test]
async fn a_server_behind_http_that_is_gone_costs_the_call() {
    let server = HttpStub::start().await;
    let tables = format!("[mcp.servers.web]\nurl = \"{}\"\n", server.url());
    let mut scene = Scene::new(&[("mcp__web__echo", "hi")], &tables).await;
    assert_eq!(results(&scene.turn("one").await), ["you said hi"]);
    drop(server);
    let events = scene.turn("two").await;
    assert!(results(&events)[0].starts_with("Error: the MCP server web "), "{events:?}");
    scene.daemon.wait_for_line("an MCP server is down");
    scene.end().await;
}
