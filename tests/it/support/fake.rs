//! A daemon that says what a test tells it to: a listener on the socket where commands look, and the raw peer behind it.

use serde_json::{Value, json};
use tokio::net::UnixListener;

use super::{Home, Peer, within};

/// The listener.
#[derive(Debug)]
pub(crate) struct Fake {
    listener: UnixListener,
}

impl Fake {
    /// Listens on the user's socket of a home.
    pub(crate) fn listen(home: &Home) -> Self {
        let socket = home.socket();
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        Self { listener: UnixListener::bind(socket).unwrap() }
    }

    /// The next command that connects.
    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) = within("a command", self.listener.accept()).await.unwrap();
        let (reader, writer) = stream.into_split();
        Peer::over(reader, writer)
    }

    /// The next command that connects, after its `initialize` was answered as a daemon of this version does.
    pub(crate) async fn greet(&self) -> Peer {
        let mut command = self.accept().await;
        let hello = command.take(|message| message["method"] == "initialize").await;
        command.answer(&hello, hello_of(1)).await;
        command
    }
}

/// The result of `initialize` under a version of the protocol.
pub(crate) fn hello_of(protocol_version: u32) -> Value {
    json!({
        "serverInfo": { "name": "deepseek-harness-sdk-runtime", "version": env!("CARGO_PKG_VERSION") },
        "protocolVersion": protocol_version,
        "capabilities": [],
        "limits": {},
        "connectionId": "c1",
        "route": { "provider": "deepseek-official", "model": "deepseek-flash" },
    })
}
