//! `dshd top` and what `server/status` counts.

use serde_json::json;

use crate::stage::{Stage, leave};
use crate::support::{Daemon, Terminal, finish};

const SCRIPT: [&str; 2] = [
    r#"{"prompt":"stall","parts":[{"text":["one "]},{"stall":true}]}"#,
    r#"{"parts":[{"text":["a ","b"]}],"usage":{"inputTokens":10,"outputTokens":5}}"#,
];

#[tokio::test]
async fn status_tells_how_much_of_the_limits_is_used_and_what_was_done() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    for session in ["a", "b"] {
        peer.prompt(session, "x").await;
    }
    peer.send_prompt("c", "stall").await;
    peer.take(|message| message["params"]["event"]["data"]["chunk"]["text"] == "one ").await;
    let other = daemon.peer().await;
    let status = peer.call("server/status", json!({})).await;
    let usage = &status["usage"];
    for (name, used) in [
        ("in_flight", 2),
        // The request itself is of those that no limit refuses, and counts at its connection alone.
        ("in_flight_total", 1),
        ("loaded_sessions", 3),
        ("connections", 2),
        ("connections_per_uid", 2),
        ("subscriptions", 3),
        ("preauth_connections", 0),
        ("children", 0),
        ("mailbox", 0),
    ] {
        assert_eq!(usage[name], used, "{name}: {usage}");
        assert!(status["limits"].get(name).is_some(), "{name} is a limit");
    }
    assert!(usage["feed_bytes"].as_u64().unwrap() > 1000, "{usage}");
    assert!(usage.get("outbound_bytes").is_some());
    let totals = &status["totals"];
    assert_eq!(
        (&totals["turns"], &totals["tokens"], &totals["connections"]),
        (&json!(2), &json!(30), &json!(2)),
        "{totals}"
    );
    for name in ["events", "deltas", "bytesOut"] {
        assert!(totals[name].as_u64().unwrap() > 2, "{name}: {totals}");
    }
    assert!(totals["syncs"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>() > 0);
    assert_eq!((&totals["refused"], &totals["cut"]), (&json!(0), &json!(0)));
    leave(other).await;
    peer.call("session/cancel", json!({ "sessionId": "c" })).await;
    peer.leave_unread();
    peer.finish().await;
}

/// With ten thousand connections the answer would be megabytes.
#[tokio::test]
async fn status_tells_of_the_connections_that_are_furthest_behind_and_counts_the_rest() {
    let daemon = Daemon::scripted(&SCRIPT, "[limits]\nconnections_per_uid = 400");
    let mut peers = Vec::new();
    for _ in 0..230 {
        peers.push(daemon.peer().await);
    }
    let status = peers[0].call("server/status", json!({})).await;
    assert_eq!(status["counts"]["connections"], 230);
    assert_eq!(status["connections"].as_array().unwrap().len(), 200);
    assert_eq!(status["usage"]["connections"], 230);
    let shown = daemon.home().run(["status"]).await.expect_code(0).stdout;
    assert!(!shown.contains("limits "), "{shown}");
    let shown = daemon.home().run(["status", "-v"]).await.expect_code(0).stdout;
    assert!(shown.contains("limits     connections_per_uid 231 of 400\n"), "{shown}");
    for peer in peers {
        leave(peer).await;
    }
}

#[tokio::test]
async fn status_says_what_is_nearly_used_up() {
    let daemon = Daemon::scripted(&SCRIPT, "[limits]\nconnections_per_uid = 5");
    let mut peers = Vec::new();
    for _ in 0..4 {
        peers.push(daemon.peer().await);
    }
    let shown = daemon.home().run(["status"]).await.expect_code(0).stdout;
    assert!(shown.contains("limits     connections_per_uid 5 of 5  near its end\n"), "{shown}");
    for peer in peers {
        leave(peer).await;
    }
}

#[tokio::test]
async fn without_a_terminal_each_look_is_a_line_or_an_object() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    peer.prompt("s", "x").await;
    peer.take_aside();
    let home = daemon.home();
    let lines = home.run(["top", "-i", "0.1", "-n", "3"]).await.expect_code(0).stdout;
    let rows: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 4, "{lines}");
    assert_eq!(rows[0].join(" "), "time sess run wait conn turns/s ev/s delta/s tok/s lag_max fsync_p99 rss");
    for row in &rows[1..] {
        assert_eq!((row.len(), row[1], row[2], row[4]), (12, "1", "0", "2"), "{lines}");
    }
    let objects = home.run(["top", "--json", "-i", "0.1", "-n", "2"]).await.expect_code(0).json_lines();
    assert_eq!(objects.len(), 2);
    for object in &objects {
        assert_eq!(object["schema"], "dshd.top/1");
        assert!(object["usage"]["connections"] == 2 && object["rates"]["events"].is_number(), "{object}");
    }
    leave(peer).await;
    assert!(home.run(["top", "-i", "0"]).await.expect_code(64).stderr.contains("0.1 to 86400 seconds"));
}

#[tokio::test]
async fn on_a_terminal_it_is_refreshed_in_place_and_gives_the_terminal_back() {
    let daemon = Daemon::scripted(&SCRIPT, "");
    let mut peer = daemon.peer().await;
    peer.send_prompt("works", "stall").await;
    peer.event("assistant/chunk").await;
    let mut terminal = Terminal::run(daemon.home().dshd(["top", "-i", "0.1"]));
    terminal.shows("sessions 1 loaded, 1 running · clients 2").await;
    terminal.shows("works").await;
    terminal.shows("CLIENT").await;
    terminal.types("q");
    let (status, seen) = terminal.end().await;
    assert_eq!(status.code(), Some(0));
    assert!(seen.starts_with("\u{1b}[?1049h") && seen.ends_with("\u{1b}[?1049l"), "{seen}");
    peer.leave_unread();
}

#[tokio::test]
async fn it_starts_no_daemon_and_waits_for_one_that_went() {
    let mut stage = Stage::new().await;
    let terminal = {
        let terminal = Terminal::run(stage.home.dshd(["top", "-i", "0.1"]));
        terminal.shows("CLIENT").await;
        stage.stop().await;
        terminal.shows("waiting for it; q leaves").await;
        let none = finish(stage.home.dshd(["top", "-n", "1"]), b"").await.expect_code(69);
        assert!(none.stderr.contains("no dshd is running"), "{}", none.stderr);
        stage.begin().await;
        terminal
    };
    let pid = stage.daemon().pid();
    let again = tokio::time::timeout(std::time::Duration::from_secs(30), async {
        loop {
            if terminal.seen().contains(&format!("pid {pid} ")) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    again.await.expect("it goes on with the next daemon");
    let mut terminal = terminal;
    terminal.types("\u{3}");
    assert_eq!(terminal.end().await.0.code(), Some(0));
}
