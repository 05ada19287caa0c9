//! MCP servers through the daemon: offered, called, changed, dying, hanging, trusted.

mod http;
mod peers;
mod stub;
mod workspaces;

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::processes::{self, pids_in};
use crate::stage::{Stage, leave};
use crate::support::{Daemon, Home, Peer, of_type, within};

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

#[tokio::test]
async fn a_tool_that_comes_in_a_call_is_there_at_the_next_step() {
    let tables = stub::table("stub", "", &[]);
    let calls = [("mcp__stub__add", "fresh"), ("mcp__stub__fresh", ""), ("mcp__stub__echo", "x")];
    let mut scene = Scene::new(&calls, &tables).await;
    let events = scene.turn("s").await;
    assert_eq!(results(&events), ["added", "this is fresh", "you said x"]);
    let offers = offers(&events);
    assert_eq!(offers.len(), 2, "{offers:?}");
    assert_eq!((offers[0].0.as_str(), offers[1].0.as_str()), ("initial", "change"));
    assert!(!offers[0].1.contains(&"mcp__stub__fresh".to_owned()));
    assert!(offers[1].1.contains(&"mcp__stub__fresh".to_owned()));
    scene.end().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_costs_the_call_and_comes_back() {
    let tables = stub::table("stub", "", &[]);
    let calls = [("mcp__stub__die", "old age"), ("mcp__stub__echo", "again")];
    let mut scene = Scene::new(&calls, &tables).await;
    let events = scene.turn("s").await;
    let results = results(&events);
    assert_eq!(
        results[0],
        "Error: the MCP server stub went away during the call: it closed the connection; what it did is unknown"
    );
    assert_eq!(code(&events, 0), "TOOL_OUTCOME_UNKNOWN");
    assert_eq!(results[1], "you said again");
    assert_eq!(offers(&events).len(), 1, "its tools stay while it is started again");
    let down = scene.daemon.wait_for_line("an MCP server is down");
    assert!(down.contains("it said: the stub dies of old age"), "{down}");
    scene.end().await;
}

#[tokio::test]
async fn a_call_that_hangs_ends_and_the_server_is_told_and_goes_on() {
    let tables = stub::table("stub", "timeout = \"300ms\"", &[]);
    let calls = [("mcp__stub__hang", ""), ("mcp__stub__echo", "still here"), ("mcp__stub__cancelled", "")];
    let mut scene = Scene::new(&calls, &tables).await;
    let events = scene.turn("s").await;
    let results = results(&events);
    assert_eq!(results[0], "Error: the MCP server stub did not answer within 300 ms; what it did is unknown");
    assert_eq!(code(&events, 0), "TOOL_OUTCOME_UNKNOWN");
    assert_eq!(results[1..], ["you said still here", "1 cancelled"]);
    scene.end().await;
}

#[tokio::test]
async fn a_server_that_answers_nothing_any_more_is_started_anew() {
    let tables = stub::table("stub", "timeout = \"300ms\"", &[]);
    let mut scene = Scene::new(&[("mcp__stub__wedge", "")], &tables).await;
    let events = scene.turn("s").await;
    assert!(results(&events)[0].contains("did not answer"), "{events:?}");
    let down = scene.daemon.wait_for_line("an MCP server is down");
    assert!(down.contains("did not answer a ping"), "{down}");
    scene.end().await;
}

/// Keys of a server that works in the workspace, although it belongs to none.
fn may_write_in_work(home: &Home) -> String {
    format!("writable = [{}]", json!(home.work()))
}

#[tokio::test]
async fn a_servers_program_writes_where_it_may_and_nowhere_else() {
    let home = Home::new();
    let line = format!(
        "echo x > {0}/inside; echo x > {1}/outside; cat {1}/credentials > {0}/seen; exec \"$@\"",
        home.work().display(),
        home.path("home/.config/dshd").display()
    );
    std::fs::write(home.path("home/.config/dshd/credentials"), "secret").unwrap();
    let exe = std::env::current_exe().unwrap();
    let mut args = vec!["-c", &line, "sh", exe.to_str().unwrap()];
    args.extend(stub::arguments());
    let table = |more: &str| {
        let env = "env = { STUB_SERVE = \"1\" }";
        format!("[mcp.servers.stub]\ncommand = \"bash\"\nargs = {}\n{env}\n{more}\n", json!(args))
    };
    let outside = home.path("home/.config/dshd/outside");
    for (more, escapes) in
        [(may_write_in_work(&home), false), ("permission_mode = \"full-access\"".to_owned(), true)]
    {
        let mut scene = Scene::in_home(&home, &[("mcp__stub__echo", "hi")], &table(&more)).await;
        let session = if escapes { "free" } else { "held" };
        assert_eq!(results(&scene.turn(session).await), ["you said hi"]);
        assert!(home.work().join("inside").exists());
        assert_eq!(outside.exists(), escapes, "{more}");
        let seen = std::fs::read_to_string(home.work().join("seen")).unwrap();
        assert_eq!(seen == "secret", escapes, "{more}");
        scene.end().await;
    }
}

#[tokio::test]
async fn a_turn_that_is_cancelled_does_not_wait_for_a_server() {
    let home = Home::new();
    let tables = stub::table("stub", &may_write_in_work(&home), &[]);
    let asked = home.work().join("asked");
    let lines = [
        json!({"turn": 2, "step": 1, "parts": [{"tool": "mcp__stub__cancelled"}]}).to_string(),
        json!({"turn": 2, "parts": [{"text": "done"}]}).to_string(),
        call(1, "mcp__stub__hang", asked.to_str().unwrap()),
    ];
    home.scripted(&lines.each_ref().map(String::as_str), &tables);
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    let running = peer.send_prompt("s", "go").await;
    within("the call", async {
        while !asked.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let cancelled = peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    assert_eq!(cancelled, json!({ "cancelled": true }));
    assert_eq!(peer.reply(running).await["result"]["status"], "aborted");
    let events = home.logged("s");
    assert_eq!(code(&events, 0), "ABORTED");
    assert_eq!(peer.prompt("s", "again").await["status"], "ok");
    peer.take_aside();
    assert_eq!(results(&home.logged("s"))[1], "1 cancelled");
    peer.finish().await;
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn what_a_server_says_is_bounded() {
    let tables =
        format!("[mcp]\nmessage_bytes = \"64KiB\"\n{}", stub::table("stub", "result_bytes = \"1000B\"", &[]));
    let calls = [("mcp__stub__long", "5000"), ("mcp__stub__huge", "200000"), ("mcp__stub__echo", "after")];
    let mut scene = Scene::new(&calls, &tables).await;
    let events = scene.turn("s").await;
    let results = results(&events);
    assert!(results[0].len() <= 1000 && results[0].contains(" bytes cut ...]"), "{}", results[0]);
    assert!(results[0].starts_with("starté") && results[0].ends_with("éend"), "{}", results[0]);
    assert!(results[1].contains("it sent a message of more than 65536 bytes"), "{}", results[1]);
    assert_eq!(results[2], "you said after");
    scene.end().await;
}

#[tokio::test]
async fn an_answer_that_is_none_fails_its_call_alone() {
    let tables = stub::table("stub", "", &[]);
    let calls = [("mcp__stub__malformed", ""), ("mcp__stub__echo", "fine")];
    let mut scene = Scene::new(&calls, &tables).await;
    let results = results(&scene.turn("s").await);
    assert_eq!(
        results[0],
        "Error: the MCP server stub failed: the server's answer is not what MCP says an answer is"
    );
    assert_eq!(results[1], "you said fine");
    scene.end().await;
}

#[tokio::test]
async fn a_server_that_does_not_start_costs_its_tools_and_not_the_turn() {
    let tables = [
        stub::table("dies", "", &[("STUB_START", "die")]),
        stub::table("hangs", "start_timeout = \"300ms\"", &[("STUB_START", "hang")]),
        "[mcp.servers.none]\ncommand = \"no-such-program\"\n".to_owned(),
        "[mcp.servers.unset]\ncommand = \"x\"\nargs = [\"${NO_SUCH_VARIABLE}\"]\n".to_owned(),
        stub::table("well", "", &[]),
    ];
    let mut scene = Scene::new(&[("mcp__well__echo", "hi")], &tables.join("\n")).await;
    let events = scene.turn("s").await;
    assert_eq!(results(&events), ["you said hi"]);
    assert!(offers(&events)[0].1.iter().all(|name| name.starts_with("mcp__well__")));
    let listed = scene.daemon.home().run(["mcp", "list", "--json"]).await.expect_code(0).json();
    assert_eq!(listed["schema"], "dshd.mcp/1");
    let server = |name: &str| {
        let servers = listed["servers"].as_array().unwrap();
        servers.iter().find(|server| server["name"] == name).unwrap().clone()
    };
    assert_eq!((&server("well")["state"], &server("hangs")["state"]), (&json!("ready"), &json!("starting")));
    assert_eq!(server("well")["tools"].as_array().unwrap().len(), 13);
    let reason = |name: &str| server(name)["reason"].as_str().unwrap_or_default().to_owned();
    let dies = server("dies");
    assert!(
        dies["state"] == "starting" || reason("dies").ends_with("it said: the stub has no licence"),
        "{dies}"
    );
    assert!(scene.daemon.wait_for_line("the stub has no licence").contains("an MCP server is down"));
    assert!(scene.daemon.wait_for_line("cannot start no-such-program").contains("an MCP server is down"));
    assert!(scene.daemon.wait_for_line("NO_SUCH_VARIABLE").contains("is not set"));
    scene.end().await;
}

#[tokio::test]
async fn names_that_would_be_the_same_are_told_apart_and_there_are_no_more_than_allowed() {
    let odd = [("STUB_TOOLS", "a.b\na/b\na_b\nwith space")];
    let tables =
        format!("[mcp]\nmax_tools = 60\n{}{}", stub::table("one", "", &odd), stub::table("two", "", &odd));
    let mut scene = Scene::new(&[("mcp__one__a_b", "")], &tables).await;
    let events = scene.turn("s").await;
    assert_eq!(results(&events), ["this is a_b"], "the tool whose name fits has it");
    let header = &of_type(&events, "request/header")[0]["data"]["header"]["tools"];
    let names: Vec<&str> =
        header.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "{names:?}");
    assert_eq!(names.iter().filter(|name| name.starts_with("mcp__one__a_b")).count(), 3, "{names:?}");
    assert!(names.contains(&"mcp__two__with_space"), "{names:?}");
    scene.end().await;

    let tables = format!("[mcp]\nmax_tools = 14\n{}", stub::table("stub", "", &[]));
    let mut scene = Scene::new(&[], &tables).await;
    let events = scene.turn("s").await;
    let count = of_type(&events, "request/header")[0]["data"]["header"]["tools"].as_array().unwrap().len();
    assert_eq!(count, 14, "built-in tools are among them");
    assert!(!offers(&events)[0].1.is_empty());
    scene.end().await;
}

/// What the stub's `env` says of itself.
fn fact<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

fn lives(pid: &str) -> bool {
    processes::lives(pid.parse().unwrap())
}

#[tokio::test]
async fn sessions_share_a_server_which_sees_what_it_should_and_ends_with_the_daemon() {
    let tables =
        format!("[tools]\nenv = [\"PASSED\"]\n{}", stub::table("stub", "", &[("OWN", "${TAKEN}/x")]));
    let home = Home::new();
    let lines = script(&[("mcp__stub__env", "")]);
    home.scripted(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &tables);
    let mut command = home.dshd(["serve"]);
    command.env("PASSED", "yes").env("TAKEN", "took").env("DEEPSEEK_API_KEY", "sk-secret");
    let daemon = Daemon::spawn(&home, command);
    let mut scene = Scene { peer: daemon.peer().await, daemon };
    let first = results(&scene.turn("one").await).remove(0);
    let second = results(&scene.turn("two").await).remove(0);
    assert_eq!(first, second, "one process serves both");
    assert_eq!(fact(&first, "OWN"), Some("took/x"));
    assert_eq!(fact(&first, "PASSED"), Some("yes"));
    assert_eq!((fact(&first, "TAKEN"), fact(&first, "DEEPSEEK_API_KEY")), (None, None));
    assert_eq!(fact(&first, "cwd"), home.path("home").to_str());
    let pid = fact(&first, "pid").unwrap().to_owned();
    assert!(lives(&pid));
    scene.end().await;
    assert!(!lives(&pid), "the server outlives the daemon");
}

#[tokio::test]
async fn a_reload_restarts_the_servers_that_changed_and_keeps_the_others() {
    let lines = [
        json!({"step": 1, "parts": [{"tool": "mcp__kept__env"}, {"tool": "mcp__changed__env"}]}).to_string(),
        json!({"parts": [{"text": "done"}]}).to_string(),
    ];
    let lines = lines.each_ref().map(String::as_str);
    let home = Home::new();
    let tables = |value| stub::table("kept", "", &[]) + &stub::table("changed", "", &[("WHICH", value)]);
    home.scripted(&lines, &tables("first"));
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut scene = Scene { peer: daemon.peer().await, daemon };
    let before = results(&scene.turn("one").await);
    home.scripted(&lines, &tables("second"));
    scene.daemon.signal(rustix::process::Signal::HUP);
    scene.daemon.wait_for_line("the configuration was read again");
    let after = results(&scene.turn("two").await);
    assert_eq!(fact(&before[0], "pid"), fact(&after[0], "pid"));
    assert_ne!(fact(&before[1], "pid"), fact(&after[1], "pid"));
    assert_eq!(fact(&after[1], "WHICH"), Some("second"));
    scene.end().await;
}

#[tokio::test]
async fn a_server_that_is_late_brings_its_tools_to_a_later_step() {
    let home = Home::new();
    let gate = home.path("gate");
    let table = stub::table("late", "start_timeout = \"50ms\"", &[("STUB_START", gate.to_str().unwrap())]);
    let mut scene = Scene::in_home(&home, &[], &table).await;
    assert!(offers(&scene.turn("s").await)[0].1.is_empty());
    scene.daemon.wait_for_line("a step goes on without the tools of an MCP server that is slow");
    std::fs::write(&gate, "").unwrap();
    scene.daemon.wait_for_line("an MCP server is ready");
    // It may be ready a moment before it is heard of.
    let offers = within("its tools", async {
        loop {
            let told = offers(&scene.turn("s").await);
            if told.len() > 1 {
                return told;
            }
        }
    })
    .await;
    assert_eq!((offers.len(), offers[1].0.as_str(), offers[1].1.len()), (2, "change", 13));
    scene.end().await;
}

#[tokio::test]
async fn a_server_that_nobody_needs_ends_and_comes_back_when_it_is_needed() {
    let tables = format!("[mcp]\nidle_stop = \"1s\"\n{}", stub::table("stub", "", &[]));
    let mut scene = Scene::new(&[("mcp__stub__env", "")], &tables).await;
    let first = results(&scene.turn("one").await).remove(0);
    scene.daemon.wait_for_line("an MCP server is stopped");
    let second = results(&scene.turn("two").await).remove(0);
    assert_ne!(fact(&first, "pid"), fact(&second, "pid"));
    scene.end().await;
}

#[tokio::test]
async fn no_more_servers_run_than_allowed() {
    let tables =
        format!("[mcp]\nmax_servers = 1\n{}{}", stub::table("a", "", &[]), stub::table("b", "", &[]));
    let mut scene = Scene::new(&[("mcp__a__echo", "hi")], &tables).await;
    let events = scene.turn("s").await;
    assert_eq!(results(&events), ["you said hi"]);
    assert!(offers(&events)[0].1.iter().all(|name| name.starts_with("mcp__a__")));
    scene.daemon.wait_for_line("too many run (mcp.max_servers)");
    scene.end().await;
}

#[tokio::test]
async fn a_servers_picture_is_shown_to_a_model_that_takes_pictures_and_named_to_another() {
    for takes in [true, false] {
        let table = stub::table("stub", "", &[("STUB_TOOLS", "picture")]);
        let tables = format!("[providers.fake.models.m]\nimages = {takes}\n{table}");
        let stage = Stage::with("", &tables).await;
        stage.model.push(chat::calls(&[("call_1", "mcp__stub__picture", "{}")]));
        stage.says(&["a dot"]);
        let mut peer = stage.peer().await;
        assert_eq!(peer.prompt("s", "look").await["status"], "ok");
        stage.model.request().await;
        let sent = stage.model.request().await;
        assert_eq!(sent.text().contains(stub::PNG), takes, "{}", sent.text());
        let words = if takes { "[image, image/png, 1x1, 68 bytes]" } else { "the model takes no images" };
        assert!(sent.text().contains(words), "{}", sent.text());
        let results = stage.home.logged("s");
        let blocks = of_type(&results, "tool/result")[0]["data"]["message"]["content"].as_array().unwrap();
        assert_eq!(blocks.len(), if takes { 2 } else { 1 });
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn what_a_server_leaves_behind_ends_with_it() {
    let home = Home::new();
    let strays = home.work().join("strays");
    let line = format!(
        "setsid sleep 600 > /dev/null 2>&1 & echo $! >> {0}; (setsid setsid sleep 600 & echo $! >> {0}); exec \"$@\"",
        strays.display()
    );
    let exe = std::env::current_exe().unwrap();
    let mut args = vec!["-c", &line, "sh", exe.to_str().unwrap()];
    args.extend(stub::arguments());
    let table = format!(
        "[mcp.servers.stub]\ncommand = \"bash\"\nargs = {}\nenv = {{ STUB_SERVE = \"1\" }}\n{}\n",
        json!(args),
        may_write_in_work(&home)
    );
    let mut scene = Scene::in_home(&home, &[("mcp__stub__echo", "hi")], &table).await;
    assert_eq!(results(&scene.turn("s").await), ["you said hi"]);
    let pids = pids_in(&strays, 2).await;
    assert!(pids.iter().any(|pid| processes::lives(*pid)));
    scene.end().await;
    assert!(pids.iter().all(|pid| !processes::lives(*pid)), "{pids:?}");
}
