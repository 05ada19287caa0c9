//! Servers that a workspace brings: started when its file is trusted as it is, and not before.

use serde_json::json;

use super::{Scene, code, fact, lives, offers, results, stub};
use crate::support::{Daemon, Home};

/// The stub as other programs' configuration names it.
fn mcp_json(more: &str) -> String {
    let exe = std::env::current_exe().unwrap();
    json!({"mcpServers": {"own": {
        "command": exe, "args": stub::arguments(), "env": {"STUB_SERVE": "1", "MORE": more},
    }}})
    .to_string()
}

#[tokio::test]
async fn a_workspaces_servers_run_only_when_their_file_is_trusted_as_it_is() {
    let home = Home::new();
    let file = home.work().join(".mcp.json");
    std::fs::write(&file, mcp_json("1")).unwrap();
    let lines = [
        json!({"turn": 1, "parts": [{"text": "no tools"}]}).to_string(),
        json!({"turn": 2, "step": 1, "parts": [{"tool": "mcp__own__env"}, {"tool": "mcp__own__roots"}]})
            .to_string(),
        json!({"turn": 3, "step": 1, "parts": [{"tool": "mcp__own__echo"}]}).to_string(),
        json!({"parts": [{"text": "done"}]}).to_string(),
    ];
    home.scripted(&lines.each_ref().map(String::as_str), "");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut scene = Scene { peer: daemon.peer().await, daemon };

    let events = scene.turn("s").await;
    assert!(offers(&events)[0].1.is_empty());
    let told = scene.daemon.wait_for_line("is not trusted");
    assert!(told.contains("dshd mcp trust"), "{told}");
    let listed = home.run(["mcp", "list"]).await.expect_code(0);
    assert!(listed.stdout.contains("own     untrusted"), "{}", listed.stdout);
    assert!(listed.stderr.contains("dshd mcp trust"), "{}", listed.stderr);

    let trusted = home.run(["mcp", "trust"]).await.expect_code(0);
    assert!(trusted.stderr.contains("own: "), "{}", trusted.stderr);
    let events = scene.turn("s").await;
    let offered = offers(&events);
    assert_eq!(offered[1].0, "change");
    assert_eq!(offered[1].1.len(), 13);
    let results = results(&events);
    let work = home.work().canonicalize().unwrap();
    assert_eq!(fact(&results[0], "cwd"), work.to_str());
    assert_eq!(results[1], json!([{"uri": format!("file://{}", work.display())}]).to_string());
    let pid = fact(&results[0], "pid").unwrap().to_owned();

    std::fs::write(&file, mcp_json("2")).unwrap();
    let events = scene.turn("s").await;
    assert_eq!(code(&events, 2), "UNKNOWN_TOOL", "a changed file is untrusted again");
    scene.daemon.wait_for_line("has changed since it was trusted");
    scene.daemon.wait_for_line("an MCP server is stopped");
    let listed = home.run(["mcp", "list", "--json"]).await.expect_code(0).json();
    assert_eq!(listed["servers"][0]["state"], "changed");
    assert_eq!(listed["servers"].as_array().unwrap().len(), 1);

    std::fs::remove_file(&file).unwrap();
    let listed = home.run(["mcp", "list", "--json"]).await.expect_code(0).json();
    assert_eq!(listed["servers"], json!([]));
    std::fs::write(&file, mcp_json("3")).unwrap();
    let again = home.run(["mcp", "trust", "--json", "."]).await.expect_code(0).json();
    assert_eq!(again["files"][0]["servers"], json!(["own"]));
    let untrusted = home.run(["mcp", "untrust", "--json"]).await.expect_code(0).json();
    assert_eq!(untrusted["files"].as_array().unwrap().len(), 1);
    scene.end().await;
    assert!(!lives(&pid));
}

#[tokio::test]
async fn a_workspace_that_the_configuration_trusts_needs_no_other_word() {
    let home = Home::new();
    std::fs::create_dir_all(home.work().join(".dshd")).unwrap();
    std::fs::write(home.work().join(".dshd/mcp.toml"), stub::table("own", "", &[])).unwrap();
    let tables = format!(
        "[mcp]\ntrusted_workspaces = [{}]\n{}",
        json!(home.work()),
        stub::table("own", "", &[("STUB_START", "die")])
    );
    let mut scene = Scene::in_home(&home, &[("mcp__own__echo", "hi")], &tables).await;
    let events = scene.turn("s").await;
    assert_eq!(
        results(&events),
        ["you said hi"],
        "the workspace's server stands for the user's of that name"
    );
    scene.end().await;
}

#[tokio::test]
async fn a_workspaces_file_that_is_wrong_is_told_with_the_nearest_key() {
    let home = Home::new();
    std::fs::create_dir_all(home.work().join(".dshd")).unwrap();
    std::fs::write(home.work().join(".dshd/mcp.toml"), "[mcp.servers.x]\ncomand = \"y\"\n").unwrap();
    let refused = home.run(["mcp", "trust"]).await.expect_code(78);
    assert!(refused.stderr.contains("did you mean `mcp.servers.x.command`?"), "{}", refused.stderr);
    let listed = home.run(["mcp", "list"]).await.expect_code(0);
    assert!(listed.stdout.contains("invalid"), "{}", listed.stdout);
    let refused = home.run(["mcp", "trust", "/nowhere"]).await.expect_code(1);
    assert!(refused.stderr.contains("neither .dshd/mcp.toml nor .mcp.json"), "{}", refused.stderr);
}
