//! `llmock serve` as a process of the test, and its control by plain HTTP.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::support::within;

/// Starts on a port that somebody took first are tried again.
const STARTS: u32 = 5;

#[derive(Debug)]
pub(super) struct Llmock {
    port: u16,
    /// Killed when dropped.
    _child: Child,
}

impl Llmock {
    pub(super) async fn start(peers: &Path) -> Self {
        for _ in 0..STARTS {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let mut child = Command::new(peers.join("bin/llmock"))
                .args([
                    "serve",
                    "--host",
                    "127.0.0.1",
                    "--log-level",
                    "error",
                    "--stream-chunk-delay-ms",
                    "5",
                    "--port",
                    &port.to_string(),
                ])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let up = within("llmock's start", async {
                loop {
                    if child.try_wait().unwrap().is_some() {
                        return false;
                    }
                    if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
                        return true;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
            if up {
                return Self { port, _child: child };
            }
        }
        panic!("llmock does not start");
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Queues behaviours for the next requests; those of an earlier turn that did not happen are forgotten.
    pub(super) async fn behave(&self, behaviors: Value) {
        self.ask("DELETE", "/_llmock/scenario", None).await;
        if !behaviors.as_array().unwrap().is_empty() {
            self.ask("POST", "/_llmock/scenario", Some(json!({ "behaviors": behaviors }))).await;
        }
    }

    /// Fails unless nothing can be said against how the server was called.
    pub(super) async fn assert_clean(&self) {
        let verdict = self.ask("GET", "/_llmock/verdict", None).await;
        assert!(verdict["calls"].as_u64().unwrap() > 0, "{verdict:#}");
        assert_eq!((&verdict["passed"], &verdict["findings"]), (&json!(true), &json!([])), "{verdict:#}");
    }

    /// Forgets all requests and behaviours.
    pub(super) async fn reset(&self) {
        self.ask("POST", "/_llmock/reset", None).await;
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let body = body.map_or_else(String::new, |body| body.to_string());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut response = String::new();
        within("llmock's answer", async {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.read_to_string(&mut response).await.unwrap();
        })
        .await;
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {response}");
        serde_json::from_str(body).unwrap()
    }
}
