//! kill -9 at random moments, over and over, on one data directory: no receipt and no event that anybody saw is lost or
//! doubled, the logs open, the next prompt runs.
//!
//! `DSHD_SEED` repeats a run, `DSHD_CRASH_CYCLES` says how many kills; by itself a developer's run is short and one of CI
//! (`DSHD_CI=1`) long.

mod client;
mod notes;

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;

use self::client::{Client, Role};
use self::notes::Notes;
use crate::support::{Daemon, Home, Random, assert_dense, number, seed};

/// A turn takes a few milliseconds, so that kills fall into all of its parts.
const SCRIPT: [&str; 3] = [
    r#"{"prompt":"tool","step":1,"parts":[{"text":"I look."},{"tool":"bash","arguments":{"command":"echo $DSHD_SESSION >> effects"}},{"tool":"read","arguments":{"path":"notes.txt"}}]}"#,
    r#"{"prompt":"fail","attempt":1,"parts":[{"text":"a beginning"},{"cut":true}]}"#,
    r#"{"parts":[{"reasoning":"hm"},{"text":["one ","two ","three"],"delayMs":1}]}"#,
];

/// Kills that a session lives through; then others are used, so that logs stay short.
const LIVES: u64 = 8;

/// The longest time until a kill.
const LIFE_MS_MAX: u64 = 80;

fn cycles() -> u64 {
    let by_itself = if std::env::var_os("DSHD_CI").is_some() { 250 } else { 24 };
    number("DSHD_CRASH_CYCLES").unwrap_or(by_itself)
}

/// The sessions that are used in a cycle, one a role.
fn sessions(cycle: u64) -> Vec<String> {
    let age = cycle / LIVES;
    ["text", "burst", "tool"].iter().map(|kind| format!("{kind}-{age}")).collect()
}

/// Lets clients at the daemon, kills it in the middle, and notes what they saw.
async fn live_and_die(daemon: Daemon, cycle: u64, notes: &Notes, random: &mut Random) {
    let socket = daemon.home().socket();
    let work = daemon.home().work();
    let mut clients = JoinSet::new();
    let roles = [Role::Settled, Role::Bursts, Role::Tools, Role::Follower];
    for (at, role) in roles.into_iter().enumerate() {
        let sessions = match role {
            Role::Follower => sessions(cycle),
            Role::Settled | Role::Bursts | Role::Tools => vec![sessions(cycle).swap_remove(at)],
        };
        let (socket, work, notes) = (socket.clone(), work.clone(), notes.clone());
        let seed = random.next();
        clients.spawn(async move {
            if let Some(mut client) = Client::connect(&socket, notes).await {
                // An error is the daemon's end.
                let _ = client.play(role, &work, &sessions, Random::new(seed)).await;
            }
        });
    }
    // Not to wait for anything: the moment is what the test is about.
    tokio::time::sleep(Duration::from_millis(random.below(LIFE_MS_MAX))).await;
    daemon.kill().await;
    while let Some(joined) = clients.join_next().await {
        joined.unwrap();
    }
}

/// Looks at what is there: first as the crash left it, then after the next prompts have run.
async fn verify(daemon: &Daemon, sessions: &[String], notes: &Notes) {
    let mut client =
        Client::connect(&daemon.home().socket(), notes.clone()).await.expect("the daemon is ready");
    let bound = json!({ "cwd": daemon.home().work(), "whenBusy": "queue" });
    client.call("initialize", bound).await.unwrap();
    for session in sessions.iter().filter(|session| notes.knows(session)) {
        let left = client.read_all(session).await;
        notes.check(session, &left);
        for (key, text) in notes.keyed(session) {
            // Whatever became of it, saying it again says it once.
            client.prompt(session, &text, Some(&key)).await.unwrap();
        }
        let outcome = client.prompt(session, &format!("after {} events", left.len()), None).await.unwrap();
        assert_eq!(outcome["status"], "ok", "the next prompt runs: {outcome}");
        let now = client.read_all(session).await;
        assert_eq!(now[..left.len()], left, "what was there stays");
        notes.check(session, &now);
        notes.check_keys(session, &now);
    }
}

/// Every run of a command was announced in the log before.
fn check_effects(home: &Home, sessions: &[String]) {
    let effects = fs::read_to_string(home.work().join("effects")).unwrap_or_default();
    for session in sessions.iter().filter(|session| home.log_path(session).exists()) {
        let ran = effects.lines().filter(|line| line == session).count();
        let logged = home.logged(session);
        let is_call =
            |event: &&serde_json::Value| event["type"] == "tool/call" && event["data"]["name"] == "bash";
        let calls = logged.iter().filter(is_call).count();
        assert!(ran <= calls, "{session}: {ran} commands ran, {calls} were announced");
    }
}

#[tokio::test]
async fn nothing_that_was_seen_or_promised_is_lost_or_doubled_by_kill_9() {
    let seed = seed();
    let cycles = cycles();
    eprintln!("DSHD_SEED={seed} DSHD_CRASH_CYCLES={cycles}");
    let mut random = Random::new(seed);
    let home = Home::new();
    home.scripted(&SCRIPT, "");
    let notes = Notes::default();
    for cycle in 0..cycles {
        match random.below(8) {
            // Dies at some moment of its start.
            0 => {
                let mut command = home.dshd(["serve"]);
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
                let mut child = command.spawn().unwrap();
                tokio::time::sleep(Duration::from_millis(random.below(40))).await;
                child.kill().await.unwrap();
            }
            // Its clients come at once, so that it dies again before it has repaired everything.
            1 | 2 => live_and_die(Daemon::start_in(&home, [] as [&str; 0]), cycle, &notes, &mut random).await,
            _ => {
                let daemon = Daemon::start_in(&home, [] as [&str; 0]);
                verify(&daemon, &sessions(cycle), &notes).await;
                live_and_die(daemon, cycle, &notes, &mut random).await;
            }
        }
    }
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let all = notes.sessions();
    verify(&daemon, &all, &notes).await;
    assert_eq!(daemon.stop().await.code(), Some(0));
    check_effects(&home, &all);
    for session in &all {
        assert_dense(&home.logged(session));
    }
    let (events, receipts) = notes.counts();
    eprintln!("{events} events and {receipts} promises were noted in {} sessions", all.len());
    assert!(events > cycles && receipts > cycles / 2, "too little happened to prove anything");

    // Whoever dies in the middle of an end has ended as well.
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    daemon.signal(Signal::TERM);
    daemon.kill().await;
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    verify(&daemon, &all[..all.len().min(3)], &notes).await;
}
