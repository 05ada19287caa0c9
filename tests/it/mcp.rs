//! MCP servers through the daemon: offered, called, changed, dying, hanging, trusted.

mod stub;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Peer, of_type};

/// A daemon whose model plays calls of tools, one a step, and then says that it is done.
struct Scene {
    daemon: Daemon,
    peer: Peer,
}

/// A line of the script: one call.
fn call(step: usize, tool: &str, text: &str) -> String {
    json!({"step": step, "parts": [{"tool": tool, "arguments": {"text": text}}]}).to_string()
}

fn script(calls: &[(&str, &str)]) -> Vec<String> {
    let calls = calls.iter().enumerate().map(|(at, (tool, text))| call(at + 1, tool, text));
    calls.chain([json!({"parts": [{"text": "done"}]}).to_string()]).collect()
}

impl Scene {
    async fn new(calls: &[(&str, &str)], tables: &str) -> Self {
        Self::in_home(&Home::new(), calls, tables).await
    }

    async fn in_home(home: &Home, calls: &[(&str, &str)], tables: &str) -> Self {
        let lines = script(calls);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        home.scripted(&lines, tables);
        let daemon = Daemon::start_in(home, [] as [&str; 0]);
        let peer = daemon.peer().await;
        Self { daemon, peer }
    }

    /// One turn in a session, and its events.
    async fn turn(&mut self, session: &str) -> Vec<Value> {
        let outcome = self.peer.prompt(session, "go").await;
        assert_eq!(outcome["status"], "ok", "{outcome}");
        self.peer.take_aside();
        self.daemon.home().logged(session)
    }

    async fn end(self) {
        self.peer.finish().await;
        assert!(self.daemon.stop().await.success());
    }
}

/// The results of the calls, as the model reads them.
fn results(events: &[Value]) -> Vec<String> {
    let text = |event: &&Value| event["data"]["message"]["content"][0]["text"].as_str().unwrap().to_owned();
    of_type(events, "tool/result").iter().map(text).collect()
}

/// The code of a call's failure.
fn code(events: &[Value], at: usize) -> Value {
    of_type(events, "tool/result")[at]["data"]["error"]["code"].clone()
}

/// The names of the offered tools of MCP servers, by request header: reason, names.
fn offers(events: &[Value]) -> Vec<(String, Vec<String>)> {
    let offer = |event: &&Value| {
        let tools = event["data"]["header"]["tools"].as_array().unwrap();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        let reason = event["data"]["reason"].as_str().unwrap().to_owned();
        (reason, names.filter(|name| name.starts_with("mcp__")).collect())
    };
    of_type(events, "request/header").iter().map(offer).collect()
}

#[tokio::test]
async fn a_servers_tools_are_offered_and_called() {
    let tables = stub::table("stub", "", &[]);
    let calls = [
        ("mcp__stub__echo", "hi"),
        ("mcp__stub__fail", ""),
        ("mcp__stub__refuse", ""),
        ("mcp__stub__gone", ""),
    ];
    let mut scene = Scene::new(&calls, &tables).await;
    let events = scene.turn("s").await;
    let offers = offers(&events);
    assert_eq!(offers.len(), 1, "the same at every step: {offers:?}");
    let mut sorted = offers[0].1.clone();
    sorted.sort();
    assert_eq!(offers[0].1, sorted);
    assert_eq!(offers[0].1.len(), 13);
    let header = &of_type(&events, "request/header")[0]["data"]["header"]["tools"];
    let names: Vec<&str> =
        header.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(
        names[0] == "bash"
            && names.iter().rposition(|name| !name.starts_with("mcp__")) < Some(names.len() - 13)
    );
    let echo = header.as_array().unwrap().iter().find(|tool| tool["name"] == "mcp__stub__echo").unwrap();
    assert_eq!(echo["description"], "The stub's echo.");
    assert_eq!(echo["parameters"], json!({"properties": {"text": {"type": "string"}}, "type": "object"}));

    let results = results(&events);
    assert_eq!(results[0], "you said hi");
    assert_eq!(results[1], "it went wrong");
    assert_eq!(of_type(&events, "tool/result")[1]["data"]["message"]["isError"], true);
    assert_eq!(results[2], "Error: the MCP server stub refused the arguments: `text` must be short");
    assert_eq!(code(&events, 2), "INVALID_ARGS");
    assert_eq!(code(&events, 3), "UNKNOWN_TOOL");
    scene.end().await;
}
