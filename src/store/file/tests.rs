//! What a log promises: nothing acknowledged is lost, nothing damaged is passed over, one writer, private files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::event::{Epoch, EventBody, SessionOpened, TurnStart};
use crate::store::Line;

fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

fn header(name: &str) -> Header {
    Header { id: id(name), created_at: 5, cwd: "/".to_owned(), parent_session: None }
}

fn line(seq: u64) -> Line {
    let body = if seq == 0 {
        EventBody::SessionOpened(SessionOpened { epoch: Epoch(77), recovered: None })
    } else {
        EventBody::TurnStart(TurnStart { turn: u32::try_from(seq).unwrap() })
    };
    Line { seq: Seq(seq), json: Bytes::from(SessionEvent::new(Seq(seq), 1000 + seq, body).encode().unwrap()) }
}

fn lines(range: std::ops::Range<u64>) -> Vec<Line> {
    range.map(line).collect()
}

/// Opens a log and collects its replay.
async fn open(store: &FileStore, name: &str) -> Result<(Opened, Vec<u64>), StoreError> {
    let (sender, mut batches) = mpsc::channel::<Vec<SessionEvent>>(4);
    let id = id(name);
    let collect = async {
        let mut seqs = Vec::new();
        while let Some(batch) = batches.recv().await {
            seqs.extend(batch.iter().map(|event| event.seq.0));
        }
        seqs
    };
    let (opened, seqs) = tokio::join!(store.open(&id, sender), collect);
    opened.map(|opened| (opened, seqs))
}

fn path(home: &TempDir, name: &str) -> PathBuf {
    let store = FileStore::open(home.path()).unwrap();
    store.inner.directory(&id(name)).join("log.jsonl")
}

/// A closed log of `count` events.
async fn written(home: &TempDir, name: &str, count: u64) -> PathBuf {
    let store = FileStore::open(home.path()).unwrap();
    let mut log = store.create(header(name)).await.unwrap();
    for seq in 0..count {
        log.append(&[line(seq)]).unwrap();
    }
    log.barrier().await.unwrap();
    path(home, name)
}

#[tokio::test]
async fn what_was_appended_is_read_and_replayed() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    log.append(&lines(0..300)).unwrap();
    log.append(&lines(300..301)).unwrap();
    let page = store.read(&id("s"), Some(Seq(298)), PageLimit { events: 10, bytes: 1 << 20 }).await.unwrap();
    assert_eq!(page.lines.iter().map(|line| line.seq.0).collect::<Vec<_>>(), [299, 300]);
    assert_eq!((&page.lines[0].json, page.lines[0].epoch, page.more), (&line(299).json, Epoch(77), false));
    let page = store.read(&id("s"), None, PageLimit { events: 10, bytes: 1 }).await.unwrap();
    assert_eq!((page.lines.len(), page.more), (1, true));
    drop(log);
    let (opened, seqs) = open(&store, "s").await.unwrap();
    assert_eq!(seqs, (0..301).collect::<Vec<_>>());
    assert_eq!(opened.extent, Extent { epochs: vec![(Epoch(77), Seq(0))], last: Some(Seq(300)) });
    assert_eq!((opened.header, opened.cut_bytes), (header("s"), 0));
}

#[tokio::test]
async fn a_leased_log_is_locked_also_through_a_link_and_for_the_same_process() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let _log = store.create(header("s")).await.unwrap();
    let link = home.path().join("link");
    std::os::unix::fs::symlink(home.path(), &link).unwrap();
    for other in [FileStore::open(home.path()).unwrap(), FileStore::open(&link).unwrap(), store] {
        let pid = std::process::id();
        assert!(matches!(open(&other, "s").await, Err(StoreError::Locked { pid: holder }) if holder == pid));
    }
}

#[tokio::test]
async fn a_session_is_made_once_and_a_missing_one_is_not_found() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    assert!(matches!(open(&store, "s").await, Err(StoreError::NotFound)));
    assert!(matches!(store.extent(&id("s")).await, Err(StoreError::NotFound)));
    drop(store.create(header("s")).await.unwrap());
    assert!(matches!(store.create(header("s")).await, Err(StoreError::Exists)));
}

#[tokio::test]
async fn a_log_that_died_before_its_header_was_whole_is_no_session() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 0).await;
    let whole = fs::read(&path).unwrap();
    for torn in [0, 1, whole.len() - 1] {
        fs::write(&path, &whole[..torn]).unwrap();
        let store = FileStore::open(home.path()).unwrap();
        assert!(matches!(open(&store, "s").await, Err(StoreError::NotFound)), "{torn}");
        assert!(store.list().await.unwrap().is_empty());
        drop(store.create(header("s")).await.unwrap());
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[tokio::test]
async fn damage_before_what_was_durable_is_refused_and_left_untouched() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 20).await;
    let mut damaged = fs::read(&path).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let Err(StoreError::Corrupt { seq, path: named, .. }) = open(&store, "s").await else { panic!("opened") };
    assert!(seq > Seq(0) && seq < Seq(19));
    assert_eq!(named, path.display().to_string());
    assert!(matches!(store.extent(&id("s")).await, Err(StoreError::Corrupt { .. })));
    assert_eq!(fs::read(&path).unwrap(), damaged);
}

#[tokio::test]
async fn a_missing_line_in_the_middle_is_damage() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 20).await;
    let text = fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> =
        text.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 7).map(|(_, line)| line).collect();
    fs::write(&path, kept.concat()).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    assert!(matches!(open(&store, "s").await, Err(StoreError::Corrupt { seq: Seq(6), .. })));
}

#[tokio::test]
async fn a_page_that_never_reached_the_disk_is_a_torn_tail_unless_it_was_durable() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    log.append(&lines(0..5)).unwrap();
    log.barrier().await.unwrap();
    log.append(&lines(5..10)).unwrap();
    drop(log);
    let path = path(&home, "s");
    let whole = fs::read(&path).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let start = |nth: usize| text.match_indices('\n').nth(nth).unwrap().0 + 1;
    // Line 0 is the header: event 7 lies behind the eighth newline, event 2 behind the third.
    for (event, expected) in [(7, Ok(7)), (2, Err(()))] {
        let mut holed = whole.clone();
        let from = start(event);
        holed[from..from + 20].fill(0);
        fs::write(&path, &holed).unwrap();
        let store = FileStore::open(home.path()).unwrap();
        match (open(&store, "s").await, expected) {
            (Ok((opened, _)), Ok(kept)) => {
                assert_eq!(opened.extent.last, Some(Seq(kept - 1)));
                assert_eq!(opened.cut_bytes, (whole.len() - from) as u64);
            }
            (Err(StoreError::Corrupt { .. }), Err(())) => {}
            (other, _) => panic!("event {event}: {:?}", other.map(|_| ()).map_err(|error| error.to_string())),
        }
    }
}

#[tokio::test]
async fn a_torn_tail_is_cut_and_the_log_goes_on() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 5).await;
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let page = store.read(&id("s"), None, PageLimit { events: 100, bytes: 1 << 20 }).await.unwrap();
    assert_eq!(page.lines.len(), 4, "a torn line is never served");
    let (mut opened, seqs) = open(&store, "s").await.unwrap();
    assert_eq!(seqs, [0, 1, 2, 3]);
    assert!(opened.cut_bytes > 0);
    opened.log.append(&[line(4)]).unwrap();
    drop(opened);
    let (_, seqs) = open(&store, "s").await.unwrap();
    assert_eq!(seqs, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_newer_format_is_refused_untouched() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 2).await;
    let mut newer = Vec::new();
    record::seal(br#"{"type":"session","version":2,"id":"s"}"#, None, &mut newer);
    fs::write(&path, &newer).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    assert!(matches!(open(&store, "s").await, Err(StoreError::Version(2))));
    assert_eq!(fs::read(&path).unwrap(), newer);
}

#[tokio::test]
async fn a_failed_write_leaves_nothing_and_the_next_one_works() {
    let home = TempDir::new().unwrap();
    let disk = Disk::default();
    let store = FileStore::with_disk(home.path(), disk.clone()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    for nth in 0..6 {
        log.append(&[line(nth)]).unwrap();
        disk.faults.write_at.store(1, Ordering::Relaxed);
        assert!(matches!(log.append(&lines(nth + 1..nth + 3)), Err(StoreError::Failed(_))));
    }
    log.append(&[line(6)]).unwrap();
    assert_eq!(store.failure(), None);
    drop(log);
    let (opened, seqs) = open(&store, "s").await.unwrap();
    assert_eq!((seqs, opened.cut_bytes), ((0..7).collect(), 0));
}

#[tokio::test]
async fn what_can_not_be_cut_off_is_the_end_of_storage() {
    let home = TempDir::new().unwrap();
    let disk = Disk::default();
    let store = FileStore::with_disk(home.path(), disk.clone()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    disk.faults.write_at.store(1, Ordering::Relaxed);
    disk.faults.no_truncate.store(true, Ordering::Relaxed);
    assert!(log.append(&[line(0)]).is_err());
    assert!(store.failure().is_some());
    assert!(matches!(store.create(header("t")).await, Err(StoreError::Failed(_))));
}

#[tokio::test]
async fn the_first_failed_sync_is_the_last_and_nothing_is_acknowledged_after_it() {
    for nth in 1..5 {
        let home = TempDir::new().unwrap();
        let disk = Disk::default();
        let store = FileStore::with_disk(home.path(), disk.clone()).unwrap();
        disk.faults.sync_at.store(nth, Ordering::Relaxed);
        let mut log = store.create(header("s")).await.unwrap();
        log.append(&[line(0)]).unwrap();
        let first = log.barrier().await;
        assert!(
            matches!(first, Err(StoreError::Failed(_))),
            "sync {nth}: file and three directories come first"
        );
        let syncs = disk.faults.syncs.load(Ordering::Relaxed);
        assert!(log.append(&[line(1)]).is_err() && log.barrier().await.is_err());
        assert_eq!(disk.faults.syncs.load(Ordering::Relaxed), syncs, "nothing is tried again");
        assert!(store.flush().await.is_err());
    }
}

#[tokio::test]
async fn barriers_share_syncs_and_cost_none_when_nothing_is_new() {
    let home = TempDir::new().unwrap();
    let disk = Disk::default();
    let store = FileStore::with_disk(home.path(), disk.clone()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    log.append(&lines(0..3)).unwrap();
    log.barrier().await.unwrap();
    let before = disk.faults.syncs.load(Ordering::Relaxed);
    log.barrier().await.unwrap();
    assert_eq!(disk.faults.syncs.load(Ordering::Relaxed), before);
    log.append(&lines(3..9)).unwrap();
    let barriers: Vec<_> = (0..20).map(|_| log.barrier()).collect();
    for done in futures_util::future::join_all(barriers).await {
        done.unwrap();
    }
    assert!(disk.faults.syncs.load(Ordering::Relaxed) <= before + 2);
}

#[tokio::test]
async fn files_and_directories_are_private_whatever_the_umask() {
    let home = TempDir::new().unwrap();
    let before = rustix::process::umask(rustix::fs::Mode::empty());
    let path = written(&home, "s", 1).await;
    rustix::process::umask(before);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.with_file_name("lock"))), (0o600, 0o600));
    let above = path.ancestors().skip(1).take(3);
    assert_eq!(above.map(mode).collect::<Vec<_>>(), [0o700; 3]);
}

#[tokio::test]
async fn ids_are_just_names() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    for name in ["../../tmp/p", "/etc/x", "CON", "a b", &"x".repeat(256), "é"] {
        drop(store.create(header(name)).await.unwrap());
        assert!(path(&home, name).starts_with(home.path().join("sessions")));
    }
    let mut listed: Vec<String> =
        store.list().await.unwrap().iter().map(|one| one.header.id.to_string()).collect();
    listed.sort();
    assert_eq!(listed.len(), 6);
}

#[tokio::test]
async fn the_list_is_newest_first_knows_titles_and_notices_changes() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let mut logs = Vec::new();
    for name in ["a", "b", "c"] {
        logs.push(store.create(header(name)).await.unwrap());
    }
    logs[1].append(&lines(0..9)).unwrap();
    let title = EventBody::SessionTitle(crate::event::SessionTitle {
        title: "T".to_owned(),
        message_seqs: Vec::new(),
        source: crate::event::TitleSource { kind: "fallback".to_owned() },
    });
    let json = Bytes::from(SessionEvent::new(Seq(0), 9000, title).encode().unwrap());
    logs[2].append(&[Line { seq: Seq(0), json }]).unwrap();
    let listed = store.list().await.unwrap();
    let brief: Vec<_> =
        listed.iter().map(|one| (one.header.id.as_str(), one.title.as_deref(), one.last)).collect();
    assert_eq!(brief, [("c", Some("T"), Some(Seq(0))), ("b", None, Some(Seq(8))), ("a", None, None)]);
    logs[1]
        .append(&[Line {
            seq: Seq(9),
            json: Bytes::from(
                SessionEvent::new(Seq(9), 9999, EventBody::TurnStart(TurnStart { turn: 9 }))
                    .encode()
                    .unwrap(),
            ),
        }])
        .unwrap();
    assert_eq!(store.list().await.unwrap()[0].header.id, id("b"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_log_cut_anywhere_opens_to_a_prefix_of_its_events(cut in 0.0..1.0_f64, count in 1..12_u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let home = TempDir::new().unwrap();
            let path = written(&home, "s", count).await;
            let whole = fs::read(&path).unwrap();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a small file")]
            let at = (whole.len() as f64 * cut) as usize;
            fs::write(&path, &whole[..at]).unwrap();
            let store = FileStore::open(home.path()).unwrap();
            match open(&store, "s").await {
                Ok((_, seqs)) => prop_assert_eq!(seqs.clone(), (0..seqs.len() as u64).collect::<Vec<_>>()),
                Err(error) => prop_assert!(matches!(error, StoreError::NotFound), "{}", error),
            }
            Ok(())
        })?;
    }
}
