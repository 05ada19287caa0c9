//! What models do to their tools, and what must not come of it: output without end, processes that get away, readers of
//! an input that never comes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::model_server::chat;
use crate::processes::{lives, pid_in, pids_in, zombies_of};
use crate::stage::{Stage, TRANSPORTS, leave, text_of};
use crate::support::{Peer, within};

/// How often the daemon's memory is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The longest that gigabytes may take on a busy machine.
const LONG: Duration = Duration::from_mins(8);

/// What a command starts in all the ways in which processes get away from it; each writes its pid to `pids`.
const RUNAWAYS: &str = r#"
    (sleep 600 & echo $! >> pids)
    setsid nohup bash -c 'echo $$ >> pids; exec sleep 600' > /dev/null 2>&1 < /dev/null &
    (setsid bash -c '(setsid bash -c "echo \$\$ >> pids; exec sleep 600" > /dev/null 2>&1 &)' &)
    env -i setsid bash -c '(setsid bash -c "echo \$\$ >> pids; exec sleep 600" > /dev/null 2>&1 &)' &
    (trap '' TERM; echo $BASHPID >> pids; while :; do sleep 1; done) &
"#;
const RUNAWAYS_COUNT: usize = 5;

impl Stage {
    /// Queues an answer that runs a command with a limit of its own.
    fn runs_for(&self, command: &str, timeout_ms: u64) {
        let arguments = json!({ "command": command, "timeoutMs": timeout_ms }).to_string();
        self.model.push(chat::calls(&[("call_1", "bash", &arguments)]));
    }
}

/// Runs a command through the daemon: the text and data of its result.
async fn run(stage: &Stage, peer: &mut Peer, command: &str) -> (String, Value) {
    stage.runs(command);
    stage.says(&["ok"]);
    assert_eq!(peer.prompt("s", "x").await["status"], "ok");
    let data = peer.event("tool/result").await["event"]["data"].take();
    peer.take_aside();
    (text_of(&data["message"]), data)
}

/// A figure of a process's memory in KiB.
fn memory(pid: i32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

/// The path that a result names.
fn spooled(text: &str) -> PathBuf {
    let (_, rest) = text.split_once(" is in ").unwrap_or_else(|| panic!("no file is named: {text}"));
    PathBuf::from(rest.split_once(" ...]").unwrap().0)
}

#[tokio::test]
async fn five_gibibytes_of_output_end_and_cost_little_memory() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    run(&stage, &mut peer, "seq 100000").await;
    let pid = stage.daemon().pid();
    let before = memory(pid, "VmRSS:");
    stage.runs_for("yes | head -c 5G; touch done", 3_600_000);
    stage.says(&["ok"]);
    let running = peer.send_prompt("s", "x").await;
    let mut most = 0;
    let done = async {
        while !stage.home.work().join("done").exists() {
            most = most.max(memory(pid, "VmRSS:"));
            sleep(LOOK).await;
        }
    };
    timeout(LONG, done).await.expect("the command ends");
    assert_eq!(peer.reply(running).await["result"]["status"], "ok");
    most = most.max(memory(pid, "VmRSS:"));
    assert!(most < before + 32 * 1024, "{before} KiB grew to {most} KiB");
    let result = peer.event("tool/result").await["event"]["data"].take();
    let text = text_of(&result["message"]);
    assert!(text.starts_with("y\ny\n") && text.ends_with("y\ny\n") && text.len() <= 50 * 1024);
    assert!(text.contains(" bytes cut; its start is in "), "{}", &text[25_000..26_000]);
    assert_eq!(fs::metadata(spooled(&text)).unwrap().len(), 16 * 1024 * 1024);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn after_a_cancel_nothing_that_the_command_started_lives_wherever_it_went() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        stage.runs(&format!("{RUNAWAYS}\ntrap '' TERM; echo $$ >> pids; while :; do sleep 1; done"));
        let running = peer.send_prompt("s", "x").await;
        let pids = pids_in(&stage.home.work().join("pids"), RUNAWAYS_COUNT + 1).await;
        peer.call("session/cancel", json!({ "sessionId": "s" })).await;
        let left: Vec<_> = pids.iter().filter(|pid| lives(**pid)).collect();
        assert!(left.is_empty(), "{transport:?}: {left:?} of {pids:?} live");
        assert_eq!(peer.reply(running).await["result"]["status"], "aborted");
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn what_the_turns_commands_have_left_is_gone_after_its_cancel_too() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    run(&stage, &mut peer, "sleep 600 > /dev/null 2>&1 & echo $! > earlier").await;
    stage.runs(&format!("{RUNAWAYS}\nexit 0"));
    let live = stage.live();
    let running = peer.send_prompt("s", "x").await;
    peer.event("tool/result").await;
    let pids = pids_in(&stage.home.work().join("pids"), RUNAWAYS_COUNT).await;
    assert!(pids.iter().all(|pid| lives(*pid)));
    peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    let left: Vec<_> = pids.iter().filter(|pid| lives(**pid)).collect();
    assert!(left.is_empty(), "{left:?} of {pids:?} live");
    drop(live);
    peer.reply(running).await;
    let earlier = pid_in(&stage.home.work().join("earlier")).await;
    assert!(lives(earlier), "it is of an earlier turn");
    peer.call("session/close", json!({ "sessionId": "s" })).await;
    assert!(!lives(earlier));
    peer.notification("session.closed").await;
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn after_a_timeout_nothing_that_the_command_started_lives() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    stage.runs_for(
        &format!("{RUNAWAYS}\nwhile test $(wc -l < pids) -lt 5; do :; done; echo early; sleep 600"),
        6000,
    );
    stage.says(&["ok"]);
    assert_eq!(peer.prompt("s", "x").await["status"], "ok");
    let result = peer.event("tool/result").await["event"]["data"].take();
    let text = text_of(&result["message"]);
    let expected = "early\n[timed out after 6000 ms; the command was ended]\n[killed by signal: SIGTERM]";
    assert_eq!((text.as_str(), &result["message"]["isError"]), (expected, &json!(true)));
    let pids = pids_in(&stage.home.work().join("pids"), RUNAWAYS_COUNT).await;
    assert!(!pids.iter().any(|pid| lives(*pid)), "{pids:?}");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn the_daemons_stop_leaves_nothing_of_what_commands_started() {
    let mut stage = Stage::new().await;
    let mut peer = stage.peer().await;
    run(&stage, &mut peer, &format!("{RUNAWAYS}\nexit 0")).await;
    let pids = pids_in(&stage.home.work().join("pids"), RUNAWAYS_COUNT).await;
    assert!(pids.iter().all(|pid| lives(*pid)));
    spooled(&run(&stage, &mut peer, "seq 100000").await.0);
    peer.leave_unread();
    stage.stop().await;
    assert!(!pids.iter().any(|pid| lives(*pid)), "{pids:?}");
    assert_eq!(fs::read_dir(stage.home.data().join("spool")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_reader_of_standard_input_finds_its_end() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    assert_eq!(run(&stage, &mut peer, "cat; read -r line; echo $?").await.0, "1\n");
    leave(peer).await;
}

#[tokio::test]
async fn a_megabyte_on_one_line_is_cut_between_characters_and_kept_whole_in_a_file() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let (text, data) = run(&stage, &mut peer, "for i in {1..150000}; do printf '那🙂'; done").await;
    assert!(text.len() <= 50 * 1024 && !text.contains('\u{FFFD}'));
    assert!(text.contains(" bytes cut; all of it is in "));
    assert_eq!(data["message"]["isError"], false);
    assert_eq!(fs::read_to_string(spooled(&text)).unwrap(), "那🙂".repeat(150_000));
    leave(peer).await;
}

#[tokio::test]
async fn bytes_that_are_no_text_are_shown_lossily_and_that_is_said() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let (text, _) = run(&stage, &mut peer, r"printf 'a\377\000b\n'").await;
    let expected = "a\u{FFFD}\0b\n[some output was not valid UTF-8 and is shown as \u{FFFD}]";
    assert_eq!(text, expected);
    leave(peer).await;
}

/// An exit code of 1 was once read as a failure of what runs the command.
#[tokio::test]
async fn result_texts_are_those_that_viewers_know() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    for (command, expected) in [
        ("echo hi; echo err >&2; exit 3", "hi\n[stderr]\nerr\n[exit code: 3]"),
        ("grep nomatch notes.txt", "[exit code: 1]"),
        ("true", "(no output)"),
        ("kill -KILL $$", "[killed by signal: SIGKILL]"),
    ] {
        let (text, data) = run(&stage, &mut peer, command).await;
        assert_eq!(text, expected, "{command}");
        assert_eq!(data["message"]["isError"], false, "{command}");
        assert_eq!(data.get("error"), None, "{command}");
        assert_eq!(data["meta"], json!({ "cwd": stage.home.work() }));
    }
    leave(peer).await;
}

#[tokio::test]
async fn keys_and_tokens_of_the_daemon_do_not_reach_commands() {
    let mut stage = Stage::new().await;
    stage.stop().await;
    let mut command = stage.home.dshd(["serve"]);
    for name in ["DEEPSEEK_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DSHD_LOG"] {
        command.env(name, "info");
    }
    stage.begin_by(command);
    let mut peer = stage.peer().await;
    let (text, _) = run(&stage, &mut peer, "env | cut -d= -f1 | sort; echo $DSHD_SESSION").await;
    let names: Vec<_> = text.lines().collect();
    for secret in ["DEEPSEEK_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DSHD_LOG", "DSHD_DATA_DIR"] {
        assert!(!names.contains(&secret), "{text}");
    }
    assert!(names.contains(&"PATH") && names.contains(&"HOME") && text.ends_with("\ns\n"), "{text}");
    leave(peer).await;
}

#[tokio::test]
async fn the_place_of_long_output_is_private_and_goes_with_its_session_or_at_the_next_start() {
    let mut stage = Stage::new().await;
    let mut peer = stage.peer().await;
    let path = spooled(&run(&stage, &mut peer, "seq 100000").await.0);
    assert!(path.starts_with(stage.home.data().join("spool")), "{}", path.display());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    peer.call("session/close", json!({ "sessionId": "s" })).await;
    assert!(!path.exists());
    let path = spooled(&run(&stage, &mut peer, "seq 100000").await.0);
    peer.leave_unread();
    drop(peer);
    stage.kill().await;
    assert!(path.exists());
    stage.begin().await;
    within("the sweep", async {
        while path.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn places_for_children_are_shared_by_all_sessions_and_nobody_waits_for_one() {
    let stage = Stage::with("", "[limits]\nchildren = 2").await;
    let mut peer = stage.peer().await;
    let command = "echo $$ >> pids; while ! test -e go; do sleep 0.01; done; echo ran";
    let mut running = Vec::new();
    for session in ["a", "b"] {
        stage.runs(command);
        running.push(peer.send_prompt(session, "x").await);
        peer.event("tool/call").await;
    }
    pids_in(&stage.home.work().join("pids"), 2).await;
    stage.runs(command);
    stage.says(&["ok", "ok", "ok"]);
    assert_eq!(peer.prompt("c", "x").await["status"], "ok");
    let refused = peer.event("tool/result").await;
    assert_eq!(refused["sessionId"], "c");
    let text = text_of(&refused["event"]["data"]["message"]);
    assert!(text.starts_with("Error: 2 commands run already") && text.contains("limits.children"), "{text}");
    fs::write(stage.home.work().join("go"), "").unwrap();
    for id in running {
        assert_eq!(peer.reply(id).await["result"]["status"], "ok");
        let result = peer.event("tool/result").await;
        assert_eq!(text_of(&result["event"]["data"]["message"]), "ran\n");
    }
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn orphans_that_end_leave_no_zombies() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    run(&stage, &mut peer, "for i in {1..40}; do (setsid true &); done; sleep 0.1").await;
    within("the zombies' end", async {
        while zombies_of(stage.daemon().pid()) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // What the daemon itself has started is not taken from it.
    assert_eq!(run(&stage, &mut peer, "sleep 0.1; exit 5").await.0, "[exit code: 5]");
    leave(peer).await;
}
