//! `dshd attach`: a session shared by terminals, scripts and clients, over connections that come and go.

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::stage::{Stage, leave};
use crate::support::{Home, Proxy, Terminal, finish, within};

fn attach(home: &Home, arguments: &[&str]) -> Terminal {
    let mut command = home.dshd(["attach"]);
    command.args(arguments).current_dir(home.work());
    Terminal::run(command)
}

#[tokio::test]
async fn two_terminals_share_a_session() {
    let stage = Stage::new().await;
    stage.says(&["the beginning"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "first").await;
    peer.take_aside();
    let mut a = attach(&stage.home, &["s"]);
    let b = attach(&stage.home, &["s"]);
    for terminal in [&a, &b] {
        terminal.shows("session s · ").await;
        terminal.shows("› first").await;
        terminal.shows("the beginning").await;
        terminal.shows("> ").await;
    }
    let live = stage.live();
    a.types("secon\u{7f}nd\r");
    stage.model.request().await;
    stage.model.request().await;
    live.send(chat::text("half a li")).await;
    for terminal in [&a, &b] {
        terminal.shows("› second").await;
        terminal.shows("half a li").await;
        terminal.shows("thinking… ").await;
    }
    live.send(chat::text("ne\nand more\n") + &chat::finish("stop") + chat::DONE).await;
    live.end().await;
    for terminal in [&a, &b] {
        terminal.shows("half a line").await;
        terminal.shows("and more").await;
        // The first turn's, and this one's.
        within("the turn's end", async {
            while terminal.seen().matches("✓\u{1b}[0m ok").count() < 2 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    a.types("\u{4}");
    let (status, seen) = a.end().await;
    assert_eq!(status.code(), Some(0), "nothing runs: {seen}");
    assert!(seen.contains("detached: dshd attach s"), "{seen}");
    let mut b = b;
    b.types("~.");
    assert_eq!(b.end().await.0.code(), Some(0));
    peer.leave_unread();
}

#[tokio::test]
async fn ctrl_c_cancels_what_runs_and_detaching_leaves_it_running() {
    let stage = Stage::new().await;
    let _first = stage.live();
    let mut peer = stage.peer().await;
    let running = peer.send_prompt("s", "x").await;
    stage.model.request().await;
    // The one that runs in this directory is meant.
    let mut terminal = attach(&stage.home, &[]);
    terminal.shows("^C cancel").await;
    terminal.types("\u{3}");
    assert_eq!(peer.reply(running).await["result"]["status"], "aborted");
    terminal.shows("cancelled").await;
    let _second = stage.live();
    terminal.types("again\r");
    stage.model.request().await;
    terminal.shows("› again").await;
    peer.take(|message| message["params"]["event"]["type"] == "step/start").await;
    terminal.types("\u{4}");
    let (status, seen) = terminal.end().await;
    assert_eq!(status.code(), Some(3), "{seen}");
    assert!(seen.contains("detached; still running: dshd attach s"), "{seen}");
    let listed = peer.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["status"], "running");
    peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    peer.leave_unread();
    // When nothing runs, the second one leaves.
    let mut terminal = attach(&stage.home, &["s"]);
    terminal.shows("> ").await;
    terminal.types("\u{3}");
    terminal.shows("^C again to detach").await;
    terminal.types("\u{3}");
    assert_eq!(terminal.end().await.0.code(), Some(0));
}

#[tokio::test]
async fn a_lost_connection_is_told_in_place_and_no_text_comes_twice() {
    let stage = Stage::new().await;
    let proxy = Proxy::start(stage.home.path("proxy.sock"), stage.home.socket(), |_nth| None);
    let live = stage.live();
    let mut peer = stage.peer().await;
    let running = peer.send_prompt("s", "x").await;
    stage.model.request().await;
    let address = format!("unix:{}", proxy.path().display());
    let terminal = attach(&stage.home, &["s", "--connect", &address]);
    live.send(chat::text("before the cut\n")).await;
    terminal.shows("before the cut").await;
    proxy.cut();
    terminal.shows("reconnecting…").await;
    live.send(chat::text("after the cut\n")).await;
    terminal.shows("after the cut").await;
    live.send(chat::finish("stop") + chat::DONE).await;
    live.end().await;
    peer.reply(running).await;
    terminal.shows("✓\u{1b}[0m ok").await;
    let seen = terminal.seen();
    for once in ["before the cut", "after the cut"] {
        assert_eq!(seen.matches(once).count(), 1, "{once}: {seen}");
    }
    // The session goes; the terminal is told and put back.
    peer.call("session/delete", json!({ "sessionId": "s" })).await;
    let (status, seen) = terminal.end().await;
    assert_eq!(status.code(), Some(4), "{seen}");
    assert!(seen.contains("session s was deleted"), "{seen}");
    peer.leave_unread();
}

#[tokio::test]
async fn a_signal_puts_the_terminal_back() {
    let stage = Stage::new().await;
    stage.says(&["a"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "x").await;
    peer.take_aside();
    let terminal = attach(&stage.home, &["s"]);
    terminal.shows("> ").await;
    assert!(!terminal.is_cooked());
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(terminal.pid()).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    // Asserts that it was put back.
    assert_eq!(terminal.end().await.0.code(), Some(143));
    leave(peer).await;
}

#[tokio::test]
async fn who_only_watches_types_nothing() {
    let stage = Stage::new().await;
    stage.says(&["a"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "x").await;
    peer.take_aside();
    let mut terminal = attach(&stage.home, &["s", "--read-only", "--detach-keys", "ctrl-q"]);
    terminal.shows("✓\u{1b}[0m ok").await;
    terminal.types("text\r");
    terminal.shows("attached to watch only").await;
    terminal.types("\u{11}");
    assert_eq!(terminal.end().await.0.code(), Some(0));
    leave(peer).await;
}

#[tokio::test]
async fn without_a_terminal_events_come_as_the_wire_tells_them_until_the_session_ends() {
    let stage = Stage::new().await;
    stage.says(&["one", "two"]);
    let mut peer = stage.peer().await;
    peer.prompt("s", "first").await;
    peer.take_aside();
    let mut command = stage.home.dshd(["attach", "s", "--since", "all", "--json"]);
    command.current_dir(stage.home.work());
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdin(std::process::Stdio::null()).stdout(writer).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    let lines = tokio::task::spawn_blocking(move || {
        use std::io::BufRead as _;
        let lines = std::io::BufReader::new(reader).lines().map_while(Result::ok);
        lines.map(|line| serde_json::from_str::<Value>(&line).unwrap()).collect::<Vec<_>>()
    });
    // It follows from here on: its subscription is one of the session's.
    within("the subscription", async {
        loop {
            let status = peer.call("server/status", json!({})).await;
            let followers = status["connections"].as_array().unwrap().iter();
            if followers.filter(|one| one["subscriptions"] == 1).count() == 2 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    peer.prompt("s", "second").await;
    let read = peer.call("session/read", json!({ "sessionId": "s", "since": -1, "limit": 1000 })).await;
    peer.call("session/delete", json!({ "sessionId": "s" })).await;
    assert_eq!(within("the end", child.wait()).await.unwrap().code(), Some(4));
    let lines = lines.await.unwrap();
    let stored: Vec<&Value> =
        lines.iter().map(|line| &line["event"]).filter(|event| event["seq"].is_u64()).collect();
    assert_eq!(stored, read["events"].as_array().unwrap().iter().collect::<Vec<_>>());
    assert!(lines.iter().any(|line| line["event"]["transient"] == true), "text while it is written");
    peer.leave_unread();
}

#[tokio::test]
async fn what_is_meant_is_found_or_asked_for() {
    let stage = Stage::new().await;
    let home = &stage.home;
    let run = async |arguments: &[&str]| {
        let mut command = home.dshd(["attach"]);
        command.args(arguments).current_dir(home.work());
        finish(command, b"").await
    };
    let none = run(&["nothing"]).await.expect_code(4);
    assert!(none.stderr.contains("there is no session nothing"), "{}", none.stderr);
    assert!(run(&[]).await.expect_code(4).stderr.contains("there is no session in"));
    stage.says(&["a", "b"]);
    let mut peer = stage.peer().await;
    for session in ["alpha", "beta"] {
        peer.prompt(session, "x").await;
    }
    peer.take_aside();
    let several = run(&[]).await.expect_code(64);
    assert!(several.stderr.contains("dshd attach ID: beta, alpha"), "{}", several.stderr);
    assert!(run(&["--since", "soon"]).await.expect_code(64).stderr.contains("takes a seq or \"all\""));
    // On a terminal one is asked.
    let mut terminal = attach(home, &[]);
    terminal.shows("which one? [1]").await;
    terminal.types("2\r");
    terminal.shows("session alpha · ").await;
    terminal.types("\u{4}");
    assert_eq!(terminal.end().await.0.code(), Some(0));
    let mut made = attach(home, &["gamma", "--create"]);
    made.shows("session gamma").await;
    stage.says(&["made"]);
    made.types("hello\r");
    made.shows("made").await;
    made.types("\u{4}");
    made.end().await;
    leave(peer).await;
}
