//! Damaged logs: a torn tail is cut and said, anything else is refused and left as it is.

use std::fs;

use serde_json::json;

use super::{ANSWER, prompt, read_all};
use crate::support::{Daemon, Home, assert_dense, of_type};

/// A home whose session `s` has had two turns; nobody serves it.
async fn two_turns() -> Home {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let home = daemon.home().clone();
    let mut peer = daemon.peer().await;
    for text in ["first", "second"] {
        assert_eq!(peer.prompt("s", text).await["status"], "ok");
    }
    peer.leave_unread();
    drop(peer);
    assert!(daemon.stop().await.success());
    home
}

/// The last record was torn and the next one appended to it: two objects on a line, and the session was lost.
#[tokio::test]
async fn a_torn_tail_is_cut_and_said_and_the_session_goes_on() {
    for torn in [1, 10] {
        let home = two_turns().await;
        let path = home.log_path("s");
        let whole = fs::read(&path).unwrap();
        let before = home.logged("s");
        let torn_line =
            &whole[whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1..];
        fs::write(&path, &whole[..whole.len() - torn]).unwrap();
        let daemon = Daemon::start_in(&home, [] as [&str; 0]);
        let mut peer = daemon.peer().await;
        let read = read_all(&mut peer, "s").await;
        assert_eq!(read.len(), before.len() - 1, "reading shows what is whole");
        assert_eq!(peer.prompt("s", "third").await["status"], "ok");
        let after = read_all(&mut peer, "s").await;
        assert_dense(&after);
        assert_eq!(after[..read.len()], read);
        let opened = &after[read.len()];
        assert_eq!(opened["type"], "session/opened");
        let recovered = &opened["data"]["recovered"];
        assert_eq!(recovered["cutBytes"], torn_line.len() - torn, "{opened}");
        // What was cut was the second turn's end.
        assert_eq!(recovered["closedTurn"], 2, "{opened}");
        let ends = of_type(&after, "turn/end");
        assert_eq!(ends[1]["data"]["reason"]["kind"], "interrupted");
        assert_eq!(ends[2]["data"]["reason"]["kind"], "completed");
        peer.take_aside();
        peer.finish().await;
        assert!(daemon.stop().await.success());
        assert_dense(&home.logged("s"));
    }
}

#[tokio::test]
async fn damage_in_the_middle_is_refused_with_its_place_and_nothing_is_touched() {
    let home = two_turns().await;
    let path = home.log_path("s");
    let mut bytes = fs::read(&path).unwrap();
    let events = home.logged("s");
    let seq = of_type(&events, "user/message")[0]["seq"].clone();
    let at = bytes.windows(5).position(|window| window == b"first").unwrap();
    // The first place is the insert, which comes before the message; both hold the text.
    bytes[at] = b'F';
    fs::write(&path, &bytes).unwrap();
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    let refused = peer.refused("session/prompt", prompt("s", "third")).await;
    assert_eq!(refused["code"], -32007, "{refused}");
    assert_eq!(refused["data"]["kind"], "session_corrupt", "{refused}");
    assert_eq!(refused["data"]["path"], path.to_str().unwrap(), "{refused}");
    assert!(refused["data"]["seq"].as_u64().unwrap() < seq.as_u64().unwrap(), "{refused}");
    for method in ["session/resume", "session/subscribe"] {
        let mut params = json!({ "sessionId": "s" });
        if method == "session/subscribe" {
            params["since"] = json!(-1);
        }
        let refused = peer.refused(method, params).await;
        assert_eq!(refused["data"]["kind"], "session_corrupt", "{method}: {refused}");
    }
    assert_eq!(peer.prompt("other", "hello").await["status"], "ok");
    peer.take_aside();
    peer.finish().await;
    assert!(daemon.stop().await.success());
    assert_eq!(fs::read(&path).unwrap(), bytes, "the damaged log is as it was");
}

#[tokio::test]
async fn a_log_of_a_newer_format_is_refused_and_left_alone() {
    let home = two_turns().await;
    let path = home.log_path("s");
    let text = fs::read_to_string(&path).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let body = header.rsplit_once(",\"crc\"").unwrap().0.replace("\"version\":1", "\"version\":99");
    assert_ne!(body, header.rsplit_once(",\"crc\"").unwrap().0);
    let changed = format!("{body},\"crc\":\"{:08x}\"}}\n{rest}", crc32c::crc32c(body.as_bytes()));
    fs::write(&path, &changed).unwrap();
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    let refused = peer.refused("session/prompt", prompt("s", "third")).await;
    assert_eq!(refused["data"]["kind"], "session_corrupt", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("99"), "{refused}");
    peer.finish().await;
    assert!(daemon.stop().await.success());
    assert_eq!(fs::read_to_string(&path).unwrap(), changed);
}
