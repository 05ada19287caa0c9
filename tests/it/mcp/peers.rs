//! The reference servers as their makers publish them (tests/interop/mcp), over stdio and streamable HTTP.
//!
//! .ci/run installs them below `DSHD_PEERS`. Without them these tests say that they were skipped; under `DSHD_CI` that is
//! a failure.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::{Scene, code, offers, results};
use crate::support::{Daemon, Home, of_type, within};

/// The program of a server, or none.
fn server(name: &str) -> Option<PathBuf> {
    let peers = std::env::var_os("DSHD_PEERS").map(PathBuf::from);
    let path = peers
        .map(|peers| peers.join("mcp/node_modules/@modelcontextprotocol").join(name).join("dist/index.js"));
    let found = path.filter(|path| path.exists());
    if found.is_none() {
        assert!(std::env::var_os("DSHD_CI").is_none(), "DSHD_CI needs DSHD_PEERS with mcp/{name}");
        // Not by a macro, whose output of a test that passes is not shown.
        let told =
            writeln!(std::io::stderr(), "skipped: no {name} in DSHD_PEERS (.ci/run shows how to install it)");
        told.unwrap();
    }
    found
}

/// A scene whose model makes these calls, one a step.
async fn scene(home: &Home, calls: &[(&str, Value)], tables: &str) -> Scene {
    let step = |(at, (tool, arguments)): (usize, &(&str, Value))| {
        json!({"step": at + 1, "parts": [{"tool": tool, "arguments": arguments}]}).to_string()
    };
    let mut lines: Vec<String> = calls.iter().enumerate().map(step).collect();
    lines.push(json!({"parts": [{"text": "done"}]}).to_string());
    home.scripted(&lines.iter().map(String::as_str).collect::<Vec<_>>(), tables);
    let daemon = Daemon::start_in(home, [] as [&str; 0]);
    Scene { peer: daemon.peer().await, daemon }
}

fn table(name: &str, program: &Path, args: &[&str]) -> String {
    let mut all = vec![program.to_str().unwrap()];
    all.extend(args);
    format!("[mcp.servers.{name}]\ncommand = \"node\"\nargs = {}\nstart_timeout = \"30s\"\n", json!(all))
}

/// Calls of server-everything's tools and what a model must read of the answers.
fn everything() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("mcp__all__echo", json!({"message": "hi"}), "Echo: hi"),
        ("mcp__all__get-sum", json!({"a": 2, "b": 40}), "The sum of 2 and 40 is 42."),
        ("mcp__all__get-tiny-image", json!({}), "image/png"),
        ("mcp__all__get-structured-content", json!({"location": "Chicago"}), "\"temperature\":36"),
        ("mcp__all__get-resource-links", json!({"count": 2}), "[resource link: "),
        (
            "mcp__all__get-resource-reference",
            json!({"resourceType": "Text", "resourceId": 1}),
            "[resource demo://",
        ),
        ("mcp__all__trigger-long-running-operation", json!({"duration": 1, "steps": 2}), "completed"),
        ("mcp__all__get-sum", json!({"a": "x"}), "expected number"),
    ]
}

async fn try_everything(home: &Home, tables: &str) {
    let expected = everything();
    let calls: Vec<(&str, Value)> =
        expected.iter().map(|(tool, arguments, _)| (*tool, arguments.clone())).collect();
    let mut scene = scene(home, &calls, tables).await;
    let events = scene.turn("s").await;
    let texts = results(&events);
    for (at, (tool, _, part)) in expected.iter().enumerate() {
        assert!(texts[at].contains(part), "{tool}: {}", texts[at]);
    }
    let structured = texts.iter().filter(|text| text.contains("\"temperature\":36"));
    assert!(structured.clone().all(|text| text.matches("temperature").count() == 1), "said once");
    let failed = |event: &&Value| event["data"]["message"]["isError"] == true;
    assert_eq!(of_type(&events, "tool/result").into_iter().filter(failed).count(), 1);
    let names = &offers(&events)[0].1;
    assert!(names.iter().any(|name| name == "mcp__all__get-env"), "{names:?}");
    // Offered only to clients that can sample or elicit.
    assert!(!names.iter().any(|name| name.contains("sampling") || name.contains("elicitation")), "{names:?}");
    scene.end().await;
}

#[tokio::test]
async fn server_everything_over_stdio() {
    let Some(program) = server("server-everything") else { return };
    try_everything(&Home::new(), &table("all", &program, &[])).await;
}

#[tokio::test]
async fn server_everything_over_streamable_http() {
    let Some(program) = server("server-everything") else { return };
    let (_child, url, _stderr) = serve_http(&program).await;
    try_everything(&Home::new(), &format!("[mcp.servers.all]\nurl = \"{url}\"\nstart_timeout = \"30s\"\n"))
        .await;
}

/// Starts it on a port that was free a moment ago.
async fn serve_http(program: &Path) -> (Child, String, JoinSet<()>) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = Command::new("node")
        .arg(program)
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    within("server-everything", async {
        while let Some(line) = said.next_line().await.unwrap() {
            if line.contains("listening") {
                return;
            }
        }
        panic!("server-everything ended");
    })
    .await;
    // Whoever closes this pipe kills it with its next word.
    let mut reader = JoinSet::new();
    reader.spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
    (child, format!("http://127.0.0.1:{port}/mcp"), reader)
}

#[tokio::test]
async fn server_everything_of_a_workspace_is_told_where_that_is() {
    let Some(program) = server("server-everything") else { return };
    let home = Home::new();
    std::fs::create_dir_all(home.work().join(".dshd")).unwrap();
    std::fs::write(home.work().join(".dshd/mcp.toml"), table("own", &program, &[])).unwrap();
    home.run(["mcp", "trust"]).await.expect_code(0);
    // It offers this tool once it has heard that there are roots.
    let calls = [
        ("mcp__own__trigger-long-running-operation", json!({"duration": 1, "steps": 1})),
        ("mcp__own__get-roots-list", json!({})),
    ];
    let mut scene = scene(&home, &calls, "").await;
    let texts = results(&scene.turn("s").await);
    let work = home.work().canonicalize().unwrap();
    assert!(texts[1].contains(work.to_str().unwrap()), "{texts:?}");
    scene.end().await;
}

#[tokio::test]
async fn server_filesystem_over_stdio() {
    let Some(program) = server("server-filesystem") else { return };
    let home = Home::new();
    let work = home.work().canonicalize().unwrap();
    let path = |name: &str| work.join(name).display().to_string();
    let calls = [
        ("mcp__files__read_text_file", json!({"path": path("notes.txt")})),
        ("mcp__files__write_file", json!({"path": path("new.txt"), "content": "made by a model\n"})),
        ("mcp__files__list_directory", json!({"path": path("")})),
        ("mcp__files__read_text_file", json!({"path": "/etc/passwd"})),
        ("mcp__files__read_text_file", json!({"path": 7})),
    ];
    let server = table("files", &program, &[work.to_str().unwrap()]);
    let mut scene = scene(&home, &calls, &format!("{server}writable = [{work:?}]\n")).await;
    let events = scene.turn("s").await;
    let texts = results(&events);
    assert_eq!(texts[0], "one\ntwo\n", "structured content is not said again");
    assert!(texts[1].starts_with("Successfully wrote to"), "{}", texts[1]);
    assert_eq!(std::fs::read_to_string(work.join("new.txt")).unwrap(), "made by a model\n");
    assert!(texts[2].contains("[FILE] new.txt"), "{}", texts[2]);
    assert!(texts[3].contains("Access denied"), "{}", texts[3]);
    let failed = of_type(&events, "tool/result");
    assert_eq!(failed[3]["data"]["message"]["isError"], true);
    assert!(failed[4]["data"]["message"]["isError"] == true, "{} {}", texts[4], code(&events, 4));
    scene.end().await;
}
