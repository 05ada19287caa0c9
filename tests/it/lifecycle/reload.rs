//! SIGHUP: what can change does, a bad file changes nothing.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::ANSWER;
use crate::support::{Daemon, Peer};

async fn providers(peer: &mut Peer) -> Vec<Value> {
    let models = peer.call("models/list", json!({})).await;
    models["routes"].as_array().unwrap().iter().map(|route| route["provider"].clone()).collect()
}

#[tokio::test]
async fn a_good_file_is_in_force_from_then_on_and_a_bad_one_never() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let mut peer = daemon.peer().await;
    assert!(!providers(&mut peer).await.contains(&json!("second")));

    let second = "[providers.second]\nkind = \"scripted\"\n[limits]\nbad_frames = 7\n";
    daemon.home().scripted(&[ANSWER], second);
    daemon.signal(Signal::HUP);
    daemon.wait_for_line("the configuration was read again");
    assert!(providers(&mut peer).await.contains(&json!("second")));
    let status = peer.call("server/status", json!({})).await;
    assert_eq!(status["limits"]["bad_frames"], 7, "{}", status["limits"]);

    daemon.home().configure("[limits]\nbad_framse = 9\n");
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for_line("the configuration stays as it was");
    assert!(line.contains("bad_framse"), "{line}");
    assert!(providers(&mut peer).await.contains(&json!("second")));
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok", "the model that was configured first");
    peer.take_aside();
    peer.finish().await;
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn what_needs_a_new_start_is_named_and_stays() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let elsewhere = daemon.home().path("elsewhere.sock");
    daemon.home().scripted(&[ANSWER], &format!("[[listen]]\nunix = {elsewhere:?}\n"));
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for_line("takes effect at the next start");
    assert!(line.contains("listen"), "{line}");
    daemon.wait_for_line("the configuration was read again");
    assert!(!elsewhere.exists());
    daemon.peer().await.finish().await;
}

#[tokio::test]
async fn the_log_level_follows() {
    let daemon = Daemon::scripted(&[ANSWER], "[log]\nlevel = \"warn\"");
    daemon.home().scripted(&[ANSWER], "[log]\nlevel = \"info\"");
    daemon.signal(Signal::HUP);
    daemon.wait_for_line("the configuration was read again");
    let home = daemon.home().clone();
    assert!(daemon.stop().await.success());
    let logs = fs::read_dir(home.data().join("log")).unwrap().map(|entry| entry.unwrap().path());
    let text: String = logs.map(|path| fs::read_to_string(path).unwrap()).collect();
    assert!(text.contains("stopped"), "the file has it as well: {text}");
}
