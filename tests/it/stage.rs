//! What the protocol's tests play on: a model server, a daemon that calls it over the chat wire, and peers over each of
//! the three transports.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::model_server::{ModelServer, Reply, Wire, chat};
use crate::support::{Daemon, Home, Peer};

/// A way to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Unix,
    Tcp,
    Stdio,
}

/// All of them.
pub(crate) const TRANSPORTS: [Transport; 3] = [Transport::Unix, Transport::Tcp, Transport::Stdio];

/// The parts of a test. Over stdio there is no daemon: each peer has a process of its own.
pub(crate) struct Stage {
    pub(crate) model: ModelServer,
    pub(crate) home: Home,
    pub(crate) transport: Transport,
    daemon: Option<Daemon>,
    token: Option<String>,
}

impl Stage {
    /// With nothing configured but the model, over the Unix socket.
    pub(crate) async fn new() -> Self {
        Self::with("", "").await
    }

    /// With nothing configured but the model.
    pub(crate) async fn over(transport: Transport) -> Self {
        Self::build(transport, "", "").await
    }

    /// With keys of the model's provider and more tables, over the Unix socket.
    pub(crate) async fn with(provider: &str, tables: &str) -> Self {
        Self::build(Transport::Unix, provider, tables).await
    }

    /// With keys of the model's provider and more tables.
    pub(crate) async fn build(transport: Transport, provider: &str, tables: &str) -> Self {
        Self::set_up(transport, "chat", provider, tables).await
    }

    /// With a model that speaks this wire, keys of its provider and more tables, over the Unix socket.
    pub(crate) async fn speaking(wire: &Wire, provider: &str, tables: &str) -> Self {
        Self::set_up(Transport::Unix, wire.kind, provider, tables).await
    }

    async fn set_up(transport: Transport, kind: &str, provider: &str, tables: &str) -> Self {
        let model = ModelServer::start().await;
        let home = Home::new();
        let key = home.path("model.key");
        home.configure(&format!(
            "default_provider = \"fake\"\ndefault_model = \"m\"\n\
             [providers.fake]\nkind = \"{kind}\"\nbase_url = \"{}\"\napi_key_file = \"{}\"\nretry_base = \"5ms\"\n\
             {provider}\n{tables}\n",
            model.url(),
            key.display(),
        ));
        fs::write(&key, "sk-test").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let mut stage = Self { model, home, transport, daemon: None, token: None };
        stage.begin().await;
        stage
    }

    /// Starts the daemon that [`Stage::stop`] has stopped, on the same data.
    pub(crate) async fn begin(&mut self) {
        match self.transport {
            Transport::Stdio => {}
            Transport::Unix => self.daemon = Some(Daemon::spawn(&self.home, self.home.dshd(["serve"]))),
            Transport::Tcp => {
                let mut command = self.home.dshd(["serve"]);
                // The same things may be asked for over all transports.
                command
                    .env("DSHD_LISTEN", r#"[{tcp="127.0.0.1:0",mode_max="full-access"}]"#)
                    .env("DSHD_TOOLS__ALLOW_UNSANDBOXED_REMOTE", "true");
                self.daemon = Some(Daemon::spawn(&self.home, command));
                if self.token.is_none() {
                    let made = self.home.run(["token", "create", "test"]).await.expect_code(0);
                    self.token = Some(made.stdout.trim().to_owned());
                }
            }
        }
    }

    /// Starts a daemon by another command, e.g. under a shell's limits.
    pub(crate) fn begin_by(&mut self, command: Command) {
        self.daemon = Some(Daemon::spawn(&self.home, command));
    }

    /// Stops the daemon as a service manager does.
    pub(crate) async fn stop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let status = daemon.stop().await;
            assert!(status.success(), "{status:?}");
        }
    }

    /// Stops the daemon as a service manager does. The exit code.
    pub(crate) async fn stop_with_code(&mut self) -> i32 {
        let daemon = self.daemon.take().expect("a daemon runs");
        daemon.stop().await.code().expect("it has ended by itself")
    }

    /// Kills the daemon without warning.
    pub(crate) async fn kill(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.kill().await;
        }
    }

    /// The daemon.
    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a daemon runs")
    }

    /// The secret of a TCP token.
    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().expect("a token was made")
    }

    /// A peer that has said nothing; over TCP also no token.
    pub(crate) async fn stranger(&self) -> Peer {
        match self.transport {
            Transport::Unix => self.daemon().connect().await,
            Transport::Tcp => Peer::tcp(&self.daemon().tcp()).await,
            Transport::Stdio => Peer::stdio(self.home.dshd(["stdio"])),
        }
    }

    /// A peer that is let in and not initialized.
    pub(crate) async fn connect(&self) -> Peer {
        let mut peer = self.stranger().await;
        if self.transport == Transport::Tcp {
            peer.call("authenticate", json!({ "token": self.token() })).await;
        }
        peer
    }

    /// A peer that has initialized itself in the workspace.
    pub(crate) async fn peer(&self) -> Peer {
        self.peer_with(json!({})).await
    }

    /// A peer that has initialized itself in the workspace, with more parameters.
    pub(crate) async fn peer_with(&self, more: Value) -> Peer {
        let mut peer = self.connect().await;
        peer.initialize(self.bind(&more)).await;
        peer
    }

    /// Parameters of `initialize`: the workspace and more.
    pub(crate) fn bind(&self, more: &Value) -> Value {
        let mut params = json!({ "cwd": self.home.work() });
        params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        params
    }

    /// Queues answers of the model, each one text.
    pub(crate) fn says(&self, texts: &[&str]) {
        for text in texts {
            self.model.push(chat::reply(&[text]));
        }
    }

    /// Queues an answer of the model that calls `bash`.
    pub(crate) fn runs(&self, command: &str) {
        let arguments = json!({ "command": command, "description": "test" }).to_string();
        self.model.push(chat::calls(&[("call_1", "bash", &arguments)]));
    }

    /// Queues an answer that the test writes as it likes.
    pub(crate) fn live(&self) -> crate::model_server::Live {
        let (reply, live) = Reply::live();
        self.model.push(reply);
        live
    }

    /// The log file of the only session that has one.
    pub(crate) fn log_file(&self) -> PathBuf {
        let mut found = Vec::new();
        for shelf in fs::read_dir(self.home.data().join("sessions")).unwrap() {
            for session in fs::read_dir(shelf.unwrap().path()).unwrap() {
                found.push(session.unwrap().path().join("log.jsonl"));
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        found.pop().unwrap()
    }
}

/// Ends our side and makes sure that nothing was left unread. Over stdio the process ends with it, and says of the
/// sessions that it had that they are closed.
pub(crate) async fn leave(mut peer: Peer) {
    peer.close_write().await;
    while let Some(line) = peer.line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let closed = message["method"] == "session.closed" && message["params"]["cause"] == "shutting_down";
        assert!(closed, "left unread: {line}");
    }
    if let Some(status) = peer.exited().await {
        assert!(status.success(), "{status:?}");
    }
}

/// A prompt's parameters.
pub(crate) fn prompt(session: &str, text: &str, more: &Value) -> Value {
    let mut params = json!({ "sessionId": session, "contentBlocks": [{ "type": "text", "text": text }] });
    params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    params
}

/// A message in a word: an event's type, a status, a reply's id. Chunks in a row are one.
pub(crate) fn outline(messages: &[Value]) -> Vec<String> {
    let word = |message: &Value| match message["method"].as_str() {
        Some("session.event") => message["params"]["event"]["type"].as_str().unwrap().to_owned(),
        Some("session.status") => message["params"]["status"].as_str().unwrap().to_owned(),
        Some(other) => other.to_owned(),
        None => format!("reply {}", message["id"]),
    };
    let mut words: Vec<String> = messages.iter().map(word).collect();
    words.dedup_by(|next, last| next == "assistant/chunk" && last == "assistant/chunk");
    words
}

/// The stored events among messages.
pub(crate) fn events(messages: &[Value]) -> Vec<&Value> {
    let event =
        |message: &'_ Value| message["params"].get("event").is_some_and(|event| event["seq"].is_u64());
    messages.iter().filter(|message| event(message)).map(|message| &message["params"]["event"]).collect()
}

/// The text of an `assistant/message`, or of any message.
pub(crate) fn text_of(message: &Value) -> String {
    let blocks = message["content"].as_array().unwrap();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}
