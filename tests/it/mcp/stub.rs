//! An MCP server of our own. Over stdio it is this very test program, started again; what the harness prints there is
//! chatter that a client has to pass over. Its tools misbehave on demand.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

/// What of the environment makes it start otherwise than well: `die`, `hang`, or a file to wait for.
const START: &str = "STUB_START";
/// Names of more tools, one a line.
const TOOLS: &str = "STUB_TOOLS";
/// Marks the process that is to serve.
const SERVE: &str = "STUB_SERVE";

/// The table of a server that is the stub, for `[mcp.servers.NAME]`: `more` is more keys, `env` more variables.
pub(super) fn table(name: &str, more: &str, env: &[(&str, &str)]) -> String {
    let exe = std::env::current_exe().unwrap();
    let more_variables = env.iter().map(|(name, value)| format!(", {name} = {}", json!(value)));
    let variables: String = [format!("{SERVE} = \"1\"")].into_iter().chain(more_variables).collect();
    format!(
        "[mcp.servers.{name}]\ncommand = {}\nargs = {}\nenv = {{ {variables} }}\n{more}\n",
        json!(exe),
        json!(arguments()),
    )
}

/// The arguments by which this program becomes the server.
pub(super) fn arguments() -> [&'static str; 5] {
    ["mcp::stub::serve", "--exact", "--ignored", "--nocapture", "-q"]
}

/// The smallest picture there is.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

#[test]
#[ignore = "is the server that other tests start"]
fn serve() {
    if std::env::var_os(SERVE).is_none() {
        return;
    }
    let mut stub = Stub::new(std::env::var(TOOLS).unwrap_or_default());
    eprintln!("the stub speaks");
    match std::env::var(START).as_deref() {
        Ok("die") => {
            eprintln!("the stub has no licence");
            return;
        }
        Ok("hang") => stub.deaf = true,
        Ok(path) => {
            while !std::path::Path::new(path).exists() {
                std::thread::yield_now();
            }
        }
        Err(_) => {}
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        for said in stub.take(&message) {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{said}").unwrap();
            out.flush().unwrap();
        }
        if stub.dead {
            return;
        }
        if stub.wedged {
            loop {
                std::thread::park();
            }
        }
    }
}

/// The server's mind: a message in, messages out.
pub(super) struct Stub {
    tools: Vec<String>,
    /// Ids of requests that the client has taken back.
    cancelled: Vec<Value>,
    /// The call that waits for the client's answer to `roots/list`.
    asks_roots: Option<Value>,
    /// Answers nothing.
    deaf: bool,
    /// Ends.
    dead: bool,
    /// Reads nothing more.
    wedged: bool,
}

const OWN_TOOLS: [&str; 12] =
    ["echo", "die", "hang", "wedge", "huge", "long", "malformed", "add", "fail", "refuse", "env", "roots"];

impl Stub {
    pub(super) fn new(more: impl AsRef<str>) -> Self {
        let more = more.as_ref().lines().map(str::to_owned);
        let mut tools: Vec<String> = OWN_TOOLS.iter().map(|name| (*name).to_owned()).collect();
        tools.push("cancelled".to_owned());
        tools.extend(more);
        Self { tools, cancelled: Vec::new(), asks_roots: None, deaf: false, dead: false, wedged: false }
    }

    /// What it says to a message, a line each.
    pub(super) fn take(&mut self, message: &Value) -> Vec<String> {
        let id = &message["id"];
        let answer = |result: Value| vec![json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()];
        if self.deaf {
            return Vec::new();
        }
        match message["method"].as_str() {
            Some("initialize") => answer(json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "stub", "version": "1"},
            })),
            Some("ping") => answer(json!({})),
            Some("tools/list") => answer(self.list(&message["params"]["cursor"])),
            Some("tools/call") => self.call(id, &message["params"]),
            Some("notifications/cancelled") => {
                self.cancelled.push(message["params"]["requestId"].clone());
                Vec::new()
            }
            Some(_) => Vec::new(),
            None => match self.asks_roots.take() {
                Some(call) => vec![text(&call, &message["result"]["roots"].to_string())],
                None => Vec::new(),
            },
        }
    }

    /// Two pages, the last tools first: the order is the client's business.
    fn list(&self, cursor: &Value) -> Value {
        let page = |names: &[String]| -> Vec<Value> {
            let tool = |name: &String| {
                json!({
                    "name": name,
                    "description": format!("The stub's {name}."),
                    "inputSchema": {
                        "$schema": "https://json-schema.org/draft/2020-12/schema",
                        "type": "object",
                        "properties": {"text": {"type": "string"}},
                    },
                    "annotations": {"readOnlyHint": name == "echo"},
                })
            };
            names.iter().rev().map(tool).collect()
        };
        let half = self.tools.len() / 2;
        if cursor.is_null() {
            json!({"tools": page(&self.tools[half..]), "nextCursor": "2"})
        } else {
            json!({"tools": page(&self.tools[..half])})
        }
    }

    fn call(&mut self, id: &Value, params: &Value) -> Vec<String> {
        let given = params["arguments"]["text"].as_str().unwrap_or_default();
        match params["name"].as_str().unwrap() {
            "echo" => vec![text(id, &format!("you said {given}"))],
            "die" => {
                eprintln!("the stub dies of {given}");
                self.dead = true;
                Vec::new()
            }
            "hang" => {
                if !given.is_empty() {
                    std::fs::write(given, "asked").unwrap();
                }
                Vec::new()
            }
            "wedge" => {
                self.wedged = true;
                Vec::new()
            }
            "huge" => vec![text(id, &"x".repeat(given.parse().unwrap()))],
            "long" => vec![text(id, &format!("start{}end", "é".repeat(given.parse().unwrap())))],
            "malformed" => vec![
                "{ this is no JSON".to_owned(),
                json!([1, 2]).to_string(),
                json!({"jsonrpc": "1.0", "id": id, "result": {"content": 7}}).to_string(),
            ],
            "add" => {
                self.tools.push(given.to_owned());
                let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                vec![changed.to_string(), text(id, "added")]
            }
            "fail" => vec![
                json!({"jsonrpc": "2.0", "id": id, "result": {
                    "content": [{"type": "text", "text": "it went wrong"}], "isError": true,
                }})
                .to_string(),
            ],
            "refuse" => vec![
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "`text` must be short"}})
                    .to_string(),
            ],
            "env" => {
                let mut all: Vec<String> =
                    std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                all.sort();
                let cwd = std::env::current_dir().unwrap();
                let pid = std::process::id();
                vec![text(id, &format!("pid={pid}\ncwd={}\n{}", cwd.display(), all.join("\n")))]
            }
            "roots" => {
                self.asks_roots = Some(id.clone());
                vec![json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"}).to_string()]
            }
            "cancelled" => vec![text(id, &format!("{} cancelled", self.cancelled.len()))],
            "picture" => vec![
                json!({"jsonrpc": "2.0", "id": id, "result": {"content": [
                    {"type": "text", "text": "a dot:"},
                    {"type": "image", "data": PNG, "mimeType": "image/png"},
                ]}})
                .to_string(),
            ],
            other => vec![text(id, &format!("this is {other}"))],
        }
    }
}

fn text(id: &Value, text: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}).to_string()
}
