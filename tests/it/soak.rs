//! Everything at once for a while: clients of every pace on the same sessions, cancels, closes, evictions, connections cut in
//! mid-frame, the daemon killed and stopped at random. It ends by comparing hashes: what each follower was told over all of
//! its connections and all lives of the daemon is what the logs hold.
//!
//! `DSHD_SOAK` is its length in seconds (by itself 6; in CI 60; `DSHD_SOAK=1800 cargo test soak` for a long one),
//! `DSHD_SEED` repeats a run's choices.

mod client;
mod ledger;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use self::client::{Client, Life};
use self::ledger::{Follower, Ledger};
use crate::support::{Daemon, Home, Random, number, seed, within};

const SCRIPT: [&str; 5] = [
    r#"{"prompt":"tool","step":1,"parts":[{"text":"I look."},{"tool":"bash","arguments":{"command":"seq 1 400"}},{"tool":"read","arguments":{"file_path":"notes.txt"}}]}"#,
    r#"{"prompt":"fail","attempt":1,"parts":[{"text":"a beginning"},{"cut":true}]}"#,
    r#"{"prompt":"long","parts":[{"reasoning":"hm"},{"text":["0123456789abcdef\n","\"é🙂\u2028","more "],"repeat":3000}]}"#,
    r#"{"prompt":"slow","parts":[{"text":["one ","two ","three "],"delayMs":4,"repeat":12}]}"#,
    r#"{"parts":[{"text":["a ","b"]}]}"#,
];

/// Small, so that everything that has a bound meets it.
const TABLES: &str = "[limits]\nfeed_bytes = \"4KiB\"\noutbound_bytes = \"96KiB\"\nsocket_bytes = \"4KiB\"\n\
     loaded_sessions = 6\nconnections_per_uid = 200\nwrite_progress = \"1s\"\n\n[sessions]\nidle_unload = \"50ms\"\n";

/// Sessions that everybody is on; more than stay loaded.
const SESSIONS: u64 = 10;

/// Clients that prompt, and clients that follow.
const PROMPTERS: u64 = 6;
const FOLLOWERS: u64 = 10;

fn sessions() -> Vec<String> {
    (0..SESSIONS).map(|at| format!("soaked-{at}")).collect()
}

fn length() -> Duration {
    let by_itself = if std::env::var_os("DSHD_CI").is_some() { 60 } else { 6 };
    Duration::from_secs(number("DSHD_SOAK").unwrap_or(by_itself))
}

/// Lets the daemon live and end in every way until the time is over.
async fn lives(home: &Home, length: Duration, mut random: Random) -> u64 {
    let over = tokio::time::sleep(length);
    let mut over = std::pin::pin!(over);
    let mut ended = 0;
    loop {
        let daemon = Daemon::start_in(home, [] as [&str; 0]);
        // Not to wait for anything: the moment is what it is about.
        let life = tokio::time::sleep(Duration::from_millis(300 + random.below(2500)));
        tokio::select! {
            () = &mut over => {
                daemon.kill().await;
                return ended;
            }
            () = life => {}
        }
        ended += 1;
        let said = daemon.stderr();
        let trouble: Vec<&str> =
            said.lines().filter(|line| line.contains("incident") || line.contains("ERROR")).collect();
        assert!(trouble.is_empty(), "{}", trouble.join("\n"));
        if random.below(3) == 0 {
            let status = daemon.stop().await;
            assert_eq!(status.code(), Some(0), "a graceful stop");
        } else {
            daemon.kill().await;
        }
    }
}

/// A prompter's lives, one connection after another.
async fn prompt_on(home: Home, ledger: Ledger, over: Arc<AtomicBool>, mut random: Random) {
    while !over.load(Ordering::Acquire) {
        if let Some(mut client) = Client::connect(&home.socket(), &over).await {
            // An end of the connection ends this life; what must not be refused fails the test.
            let _: Life<()> =
                client.prompt_for_a_while(&home.work(), &sessions(), &ledger, &mut random).await;
        }
    }
}

/// A follower's lives; its place in each session outlives them.
async fn follow_on(home: Home, ledger: Ledger, over: Arc<AtomicBool>, mut random: Random) -> Follower {
    let mut follower = Follower::default();
    while !over.load(Ordering::Acquire) {
        if let Some(mut client) = Client::connect(&home.socket(), &over).await {
            let _: Life<()> = client
                .follow_for_a_while(&home.work(), &sessions(), &ledger, &mut follower, &mut random)
                .await;
        }
    }
    follower
}

fn descriptors(pid: i32) -> usize {
    std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).unwrap().count()
}

/// Brings a follower to the end of every session that there is, and compares what it was told in all.
async fn check(home: &Home, follower: &mut Follower, ledger: &Ledger, whole: &[(String, u64, String)]) {
    let over = AtomicBool::new(false);
    let mut client = Client::connect(&home.socket(), &over).await.expect("the daemon is ready");
    client.call("initialize", &json!({ "cwd": home.work(), "deltas": false })).await.unwrap();
    for (session, last, hash) in whole {
        client.catch_up(session, *last, ledger, follower).await.unwrap();
        assert_eq!(
            follower.hash(session),
            *hash,
            "{session}: a follower was told something else than the log holds"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_everything_at_once_what_each_was_told_is_what_the_logs_hold() {
    let (seed, length) = (seed(), length());
    eprintln!("DSHD_SEED={seed} DSHD_SOAK={}", length.as_secs());
    let mut random = Random::new(seed);
    let home = Home::new();
    home.scripted(&SCRIPT, TABLES);
    let (ledger, over) = (Ledger::default(), Arc::new(AtomicBool::new(false)));
    let mut prompters = JoinSet::new();
    for _ in 0..PROMPTERS {
        prompters.spawn(prompt_on(home.clone(), ledger.clone(), over.clone(), Random::new(random.next())));
    }
    let mut followers = JoinSet::new();
    for _ in 0..FOLLOWERS {
        followers.spawn(follow_on(home.clone(), ledger.clone(), over.clone(), Random::new(random.next())));
    }
    let ended = lives(&home, length, Random::new(random.next())).await;
    over.store(true, Ordering::Release);
    while let Some(joined) = within("a prompter's end", prompters.join_next()).await {
        joined.unwrap();
    }
    let mut followed = Vec::new();
    while let Some(joined) = within("a follower's end", followers.join_next()).await {
        followed.push(joined.unwrap());
    }
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let before = descriptors(daemon.pid());
    let mut reader =
        Client::connect(&home.socket(), &AtomicBool::new(false)).await.expect("the daemon is ready");
    reader.call("initialize", &json!({ "cwd": home.work() })).await.unwrap();
    let mut whole = Vec::new();
    for session in sessions() {
        whole
            .extend(reader.whole(&session, &ledger).await.unwrap().map(|(last, hash)| (session, last, hash)));
    }
    for follower in &mut followed {
        check(&home, follower, &ledger, &whole).await;
    }
    drop(reader);
    // A connection's last descriptor closes a moment after its peer has gone.
    within("all descriptors closed", async {
        while descriptors(daemon.pid()) > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(daemon.stop().await.success());
    let events: u64 = whole.iter().map(|(_, last, _)| last + 1).sum();
    eprintln!(
        "{events} events in {} sessions over {ended} ends of the daemon; {}",
        whole.len(),
        ledger.summary()
    );
    assert!(ended > 0 && ledger.did_enough(), "too little happened to prove anything: {}", ledger.summary());
}
