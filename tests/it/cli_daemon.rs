//! The commands and the daemon together: first run, auto-start, sessions, stopping.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{Daemon, Home, Peer, Ran, finish, within};

/// The id of the newest session.
async fn newest(home: &Home) -> String {
    let sessions = home.run(["sessions", "--json"]).await.expect_code(0).json();
    sessions["sessions"][0]["sessionId"].as_str().unwrap().to_owned()
}

fn pid(home: &Home) -> i32 {
    home.daemon_file().expect("a daemon").pid
}

#[tokio::test]
async fn the_first_prompt_needs_no_key_no_daemon_and_no_configuration() {
    let home = Home::new();
    let ran = home.run(["prompt", "hi"]).await.expect_code(0);
    for part in ["notes.txt", "no model was called", "dshd login", "DEEPSEEK_API_KEY"] {
        assert!(ran.stdout.contains(part), "{part:?} is not in:\n{}", ran.stdout);
    }
    assert_eq!(ran.stderr, "");
}

#[tokio::test]
async fn an_answer_without_a_model_says_so_in_json() {
    let home = Home::new();
    let lines = home.run(["prompt", "--json", "hi"]).await.expect_code(0).json_lines();
    let result = lines.last().unwrap();
    assert_eq!(result["status"], "ok");
    assert_eq!(result["scripted"], true);
    assert!(result["text"].as_str().unwrap().contains("no model was called"));
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line["event"]["type"].as_str()).collect();
    assert!(kinds.contains(&"tool/result") && kinds.contains(&"assistant/chunk"), "{kinds:?}");
}

#[tokio::test]
async fn commands_that_race_to_start_a_daemon_get_one() {
    let home = Home::new();
    let prompts = (0..4).map(|_| home.run(["prompt", "-q", "hi"]));
    for ran in futures_util::future::join_all(prompts).await {
        ran.expect_code(0);
    }
    assert!(!home.data().join("log/autostart.1.log").exists(), "a second one was started");
    let status = home.run(["status", "--json"]).await.expect_code(0).json();
    assert_eq!(status["pid"], pid(&home));
    let sessions = home.run(["sessions", "--json"]).await.expect_code(0).json();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_started_daemon_has_a_session_of_its_own() {
    let home = Home::new();
    home.run(["prompt", "-q", "hi"]).await.expect_code(0);
    let pid = pid(&home);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap();
    assert_eq!(session, pid.to_string());
}

#[tokio::test]
async fn a_started_daemon_keeps_nothing_of_the_shell_open() {
    // A test runner that waits for the end of a pipe it gave to its tests would wait for the daemon.
    let home = Home::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", &format!("exec {} prompt -q hi 3>&0 0</dev/null", env!("CARGO_BIN_EXE_dshd"))]);
    for (name, value) in home.dshd(["prompt"]).as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.current_dir(home.work()).stdin(writer).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    drop(command);
    within("the command", child.wait_with_output()).await.unwrap();
    let ended = tokio::task::spawn_blocking(move || std::io::Read::read(&mut reader, &mut [0]).unwrap());
    assert_eq!(within("the pipe's end", ended).await.unwrap(), 0);
    assert!(home.daemon_file().is_some());
}

#[tokio::test]
async fn no_daemon_is_started_when_that_is_forbidden() {
    let home = Home::new();
    home.run(["prompt", "--no-autostart", "hi"]).await.expect_code(69);
    let mut command = home.dshd(["prompt", "hi"]);
    command.env("DSHD_AUTOSTART", "0");
    finish(command, b"").await.expect_code(69);
    home.configure("[client]\nautostart = false\n");
    home.run(["prompt", "hi"]).await.expect_code(69);
    for command in [["status"], ["sessions"], ["models"], ["stop"]] {
        home.run(command).await;
    }
    assert!(home.daemon_file().is_none());
}

#[tokio::test]
async fn a_daemon_that_cannot_start_shows_the_end_of_its_log() {
    let home = Home::new();
    home.configure("[[listen]]\nunix = \"/proc/no/dshd.sock\"\n");
    let ran = home.run(["prompt", "hi"]).await.expect_code(69);
    assert!(ran.stderr.starts_with("error: cannot start dshd: it ended with "), "{}", ran.stderr);
    assert!(ran.stderr.contains("/proc/no"), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhelp: dshd serve, to see it fail"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_data_directory_that_is_named_has_a_daemon_of_its_own() {
    let daemon = Daemon::start();
    let home = daemon.home();
    let other = home.path("other");
    let other = other.to_str().unwrap();
    home.run(["--data-dir", other, "prompt", "-q", "hi"]).await.expect_code(0);
    let ours = home.run(["--data-dir", other, "status", "--json"]).await.expect_code(0).json();
    assert_ne!(ours["pid"], daemon.pid());
    home.run(["--data-dir", other, "stop"]).await.expect_code(0);
    let theirs = home.run(["status", "--json"]).await.expect_code(0).json();
    assert_eq!(theirs["pid"], daemon.pid());
}

#[tokio::test]
async fn status_tells_what_runs_and_where() {
    let daemon = Daemon::start();
    let home = daemon.home();
    let ran = home.run(["status"]).await.expect_code(0);
    let first = ran.stdout.lines().next().unwrap();
    assert!(first.starts_with("● dshd "), "{first}");
    assert!(first.contains(&format!("  ready  pid {}  up ", daemon.pid())), "{first}");
    assert!(ran.stdout.contains(&format!("  listening  unix:{}", home.socket().display())), "{}", ran.stdout);
    let status = home.run(["status", "--json"]).await.expect_code(0).json();
    assert_eq!(status["schema"], "dshd.status/1");
    assert_eq!(status["phase"], "ready");
    assert_eq!(status["pid"], daemon.pid());
}

#[tokio::test]
async fn status_can_wait_for_a_daemon() {
    let home = Home::new();
    let waiting = home.run(["status", "--wait=20s"]);
    let starting = async { Daemon::start_in(&home, [] as [&str; 0]) };
    let (ran, _daemon) = tokio::join!(waiting, starting);
    ran.expect_code(0);
    home.run(["status", "--wait=1ms"]).await.expect_code(0);
}

#[tokio::test]
async fn stop_ends_the_daemon_and_is_content_when_there_is_none() {
    let mut daemon = Daemon::start();
    let home = daemon.home().clone();
    let stopped = home.run(["stop"]).await.expect_code(0).stdout;
    assert!(stopped.starts_with("stopped dshd at unix:"), "{stopped}");
    assert_eq!(daemon.exited().await.code(), Some(0));
    assert_eq!(home.run(["stop"]).await.expect_code(0).stdout, "no dshd is running\n");
    let told = home.run(["stop", "--json"]).await.expect_code(0).json();
    assert_eq!(told, serde_json::json!({ "schema": "dshd.stop/1", "stopped": false }));
    home.run(["status"]).await.expect_code(3);
}

#[tokio::test]
async fn a_session_is_listed_continued_read_and_closed() {
    let daemon = Daemon::start();
    let home = daemon.home();
    home.run(["prompt", "-q", "-s", "my session", "first words"]).await.expect_code(0);
    home.run(["prompt", "-q", "-c", "second words"]).await.expect_code(0);
    let list = home.run(["sessions", "--json"]).await.expect_code(0).json();
    assert_eq!(list["schema"], "dshd.sessions/1");
    let [session] = list["sessions"].as_array().unwrap().as_slice() else { panic!("{list}") };
    assert_eq!(session["sessionId"], "my session");
    assert_eq!(session["status"], "idle");
    assert!(session["updatedAt"].as_str().unwrap().ends_with('Z'), "{session}");
    let table = home.run(["ls"]).await.expect_code(0).stdout;
    assert!(table.starts_with("SESSION     STATE  UPDATED  CWD"), "{table}");
    assert!(table.contains("\nmy session  idle   now"), "{table}");

    let log = home.run(["log", "my", "--type", "user/message"]).await.expect_code(0).stdout;
    assert!(log.contains("first words") && log.contains("second words"), "{log}");
    let last = home.run(["log", "my session", "--json", "-n", "1"]).await.expect_code(0).json_lines();
    assert_eq!(last[0]["event"]["type"], "turn/end");
    assert_eq!(last[0]["sessionId"], "my session");
    assert!(last[0]["epoch"].is_u64());
    home.run(["sessions", "close", "my session"]).await.expect_code(0);
    home.run(["log", "nothing"]).await.expect_code(4);
    home.run(["cancel", "nothing"]).await.expect_code(4);
    let idle = home.run(["cancel", "my session"]).await.expect_code(0).stdout;
    assert_eq!(idle, "nothing runs in my session\n");
}

#[tokio::test]
async fn logs_and_sessions_are_read_without_a_daemon_too() {
    let daemon = Daemon::start();
    let home = daemon.home().clone();
    home.run(["prompt", "-q", "-s", "s1", "words to keep"]).await.expect_code(0);
    let with = home.run(["log", "s1", "--json"]).await.expect_code(0);
    let listed = home.run(["sessions", "--json"]).await.expect_code(0).json();
    assert_eq!(daemon.stop().await.code(), Some(0));
    let without = home.run(["log", "s1", "--json"]).await.expect_code(0);
    assert_eq!(without.stdout, with.stdout);
    let said = format!("no dshd is running; read from {}\n", home.data().display());
    assert_eq!(without.stderr, said);
    let stored = home.run(["sessions", "--json"]).await.expect_code(0);
    assert_eq!(stored.json(), listed);
    home.run(["log", "s1", "-f"]).await.expect_code(69);
    home.run(["log", "s2"]).await.expect_code(4);
}

#[tokio::test]
async fn following_a_log_goes_on_with_what_comes() {
    let daemon = Daemon::start();
    let home = daemon.home();
    home.run(["prompt", "-q", "-s", "s1", "first"]).await.expect_code(0);
    let mut command = home.dshd(["log", "s1", "-f", "--raw", "--type", "user/message"]);
    let mut following = Peer::stdio(std::mem::replace(&mut command, home.dshd(["status"])));
    let text_of = |event: Value| event["content"][0]["text"].as_str().map(str::to_owned);
    let mut texts = Vec::new();
    while texts.last().is_none_or(|text| text != "first") {
        texts.extend(text_of(following.message().await["data"].take()));
    }
    home.run(["prompt", "-q", "-s", "s1", "second"]).await.expect_code(0);
    while texts.last().is_none_or(|text| text != "second") {
        texts.extend(text_of(following.message().await["data"].take()));
    }
    following.leave_unread();
}

#[tokio::test]
async fn a_detached_prompt_goes_on_and_is_found_by_its_id() {
    let daemon = Daemon::start();
    let home = daemon.home();
    let ran = home.run(["prompt", "-d", "hi"]).await.expect_code(3);
    let id = ran.stdout.trim_end();
    let mut peer = daemon.peer().await;
    peer.call("session/wait", serde_json::json!({ "sessionId": id })).await;
    let log = home.run(["log", id, "--raw", "-n", "1"]).await.expect_code(0).json();
    assert_eq!(log["data"]["reason"]["kind"], "completed");
    assert_eq!(newest(home).await, id);
}

/// A prompt in a shell that has a key, at a model server that does not exist.
async fn prompt_with_key(home: &Home) -> Ran {
    let mut command = home.dshd(["prompt", "hi"]);
    command.env("DEEPSEEK_API_KEY", "sk-test").env("DEEPSEEK_BASE_URL", "http://127.0.0.1:9");
    command.env("DSHD_PROVIDERS__DEEPSEEK_OFFICIAL__MAX_RETRIES", "0");
    finish(command, b"").await
}

#[tokio::test]
async fn a_key_that_the_daemon_lacks_is_told_and_not_sent() {
    let daemon = Daemon::start();
    let ran = prompt_with_key(daemon.home()).await.expect_code(0);
    assert!(ran.stdout.contains("no model was called"), "{}", ran.stdout);
    assert!(ran.stderr.contains("warning: DEEPSEEK_API_KEY is set here, but the daemon"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--key-stdin <<<\"$DEEPSEEK_API_KEY\""), "{}", ran.stderr);
    assert!(!ran.stderr.contains("sk-test"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_daemon_that_a_client_started_without_a_key_is_replaced() {
    let home = Home::new();
    home.run(["prompt", "-q", "hi"]).await.expect_code(0);
    let first = pid(&home);
    let ran = prompt_with_key(&home).await.expect_code(1);
    assert!(!ran.stdout.contains("no model was called"), "{}", ran.stdout);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    assert_ne!(pid(&home), first);
}

#[tokio::test]
async fn models_lists_what_is_configured() {
    let daemon =
        Daemon::configured("[providers.deepseek-official.models.deepseek-flash]\ncontext_window = 1000000\n");
    let home = daemon.home();
    let models = home.run(["models", "--json"]).await.expect_code(0).json();
    assert_eq!(models["schema"], "dshd.models/1");
    assert_eq!(models["defaultRoute"]["provider"], "scripted");
    let table = home.run(["models"]).await.expect_code(0).stdout;
    let line = table.lines().find(|line| line.contains("deepseek-flash")).unwrap();
    assert!(line.contains("missing") && line.contains("1,000,000"), "{table}");
}

#[tokio::test]
async fn connect_joins_a_client_with_the_daemon() {
    let daemon = Daemon::start();
    let home = daemon.home();
    let mut peer = Peer::stdio(home.dshd(["connect"]));
    peer.initialize(serde_json::json!({ "cwd": home.work() })).await;
    assert_eq!(peer.prompt("s1", "hi").await["status"], "ok");
    peer.take_aside();
    assert!(peer.finish().await.unwrap().success());
}

#[tokio::test]
async fn over_tcp_a_prompt_needs_a_token() {
    let home = Home::new();
    home.configure("[tools]\nallow_unsandboxed_remote = true\n[[listen]]\ntcp = \"127.0.0.1:0\"\n");
    let token = home.run(["token", "create", "laptop"]).await.expect_code(0).stdout;
    fs::write(home.path("token"), token).unwrap();
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let address = format!("tcp:{}", daemon.tcp());
    let refused = home.run(["prompt", "--connect", &address, "hi"]).await.expect_code(77);
    assert!(refused.stderr.contains("--token-file"), "{}", refused.stderr);
    let file = home.path("token");
    let args = ["prompt", "--connect", &address, "--token-file", file.to_str().unwrap(), "hi"];
    home.run(args).await.expect_code(0);
}

#[tokio::test]
async fn an_ssh_address_runs_connect_over_there() {
    let daemon = Daemon::start();
    let home = daemon.home();
    let bin = home.path("bin");
    fs::create_dir(&bin).unwrap();
    let script =
        format!("#!/bin/sh\necho \"$@\" > \"$HOME/args\"\nexec {} connect\n", env!("CARGO_BIN_EXE_dshd"));
    fs::write(bin.join("ssh"), script).unwrap();
    fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = home.dshd(["--connect", "ssh:me@far", "prompt", "hi"]);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let ran = finish(command, b"").await.expect_code(0);
    assert!(ran.stdout.contains("no model was called"), "{}", ran.stdout);
    assert_eq!(fs::read_to_string(home.path("home/args")).unwrap(), "-T -- me@far dshd connect\n");
}

#[tokio::test]
async fn a_daemon_that_was_killed_is_told_as_such_and_the_next_prompt_starts_another() {
    let home = Home::new();
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    home.run(["prompt", "-q", "-s", "s1", "before"]).await.expect_code(0);
    let last = format!("died without cleaning up (socket there, nobody listens; last pid {})", daemon.pid());
    daemon.kill().await;
    let status = home.run(["status"]).await.expect_code(3);
    assert!(status.stderr.contains(&last), "{}", status.stderr);
    home.run(["prompt", "-q", "-c", "after"]).await.expect_code(0);
    let log = home.run(["log", "s1", "--type", "user/message"]).await.expect_code(0).stdout;
    assert!(log.contains("before") && log.contains("after"), "{log}");
}
