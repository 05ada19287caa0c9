//! The list of sessions: from heads and tails, whatever else lies in the directory.

use std::fs;

use super::*;
use crate::event::{EventBody, TurnStart};
use crate::store::Line;
use crate::store::tests::{event_line, lines, title_line};

#[tokio::test]
async fn a_thousand_sessions_are_listed_newest_first() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let when = |at: u64| at * 7919 % 1000;
    for at in 0..1000 {
        let mut log = store.create(header(&format!("s{at}"))).await.unwrap();
        log.append(&[event_line(0, when(at), EventBody::TurnStart(TurnStart { turn: 0 }))]).unwrap();
    }
    for store in [&store, &store, &FileStore::open(home.path()).unwrap()] {
        let listed = store.list(ListQuery::ALL).await.unwrap().sessions;
        assert_eq!(
            listed.iter().map(|one| one.updated_at).collect::<Vec<_>>(),
            (0..1000).rev().collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn what_is_no_log_is_left_out_and_hides_no_other() {
    let home = TempDir::new().unwrap();
    for name in ["newer", "empty", "torn", "garbage", "good"] {
        let path = written(&home, name, 3).await;
        let mut newer = Vec::new();
        record::seal(br#"{"type":"session","version":2,"id":"newer"}"#, None, &mut newer);
        match name {
            "newer" => fs::write(&path, newer).unwrap(),
            "empty" => fs::write(&path, "").unwrap(),
            "torn" => fs::write(&path, &fs::read(&path).unwrap()[..20]).unwrap(),
            "garbage" => fs::write(&path, vec![b'x'; 100_000]).unwrap(),
            _ => {}
        }
    }
    let sessions = home.path().join("sessions");
    fs::write(sessions.join("stray"), "x").unwrap();
    fs::create_dir_all(sessions.join("zz/empty")).unwrap();
    let listed = FileStore::open(home.path()).unwrap().list(ListQuery::ALL).await.unwrap().sessions;
    assert_eq!(listed.iter().map(|one| one.header.id.as_str()).collect::<Vec<_>>(), ["good"]);
}

#[tokio::test]
async fn a_torn_tail_does_not_count_and_a_long_last_event_does() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    log.append(&lines(0..2000)).unwrap();
    log.append(&[title_line(2000, &"x".repeat(300_000))]).unwrap();
    let listed = store.list(ListQuery::ALL).await.unwrap().sessions;
    assert_eq!((listed[0].last, listed[0].updated_at), (Some(Seq(2000)), 3000));
    assert_eq!(listed[0].title.as_ref().map(String::len), Some(300_000));
    drop(log);
    let path = path(&home, "s");
    let whole = fs::read(&path).unwrap();
    for torn in [1, 100_000, 250_000] {
        fs::write(&path, &whole[..whole.len() - torn]).unwrap();
        let store = FileStore::open(home.path()).unwrap();
        let listed = store.list(ListQuery::ALL).await.unwrap().sessions;
        assert_eq!((listed[0].last, listed[0].title.as_ref()), (Some(Seq(1999)), None), "{torn}");
    }
}

/// The first prompt stands before the title, and may be long.
#[tokio::test]
async fn the_title_behind_a_long_prompt_is_found_also_when_the_log_has_gone_on() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    let json =
        format!(r#"{{"type":"x","seq":0,"time":1,"data":"{}","ignorable":true}}"#, "x".repeat(200_000));
    log.append(&[Line { seq: Seq(0), json: json.into() }, title_line(1, "found")]).unwrap();
    log.append(&lines(2..2000)).unwrap();
    let listed = store.list(ListQuery::ALL).await.unwrap().sessions;
    assert_eq!((listed[0].title.as_deref(), listed[0].last), (Some("found"), Some(Seq(1999))));
}
