//! Who may touch a log: one writer in all processes, readers beside it, nobody else's eyes.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::event::Epoch;
use crate::store::tests::{EVERYTHING, lines, open, opened_line, seqs};

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
    let mut listed: Vec<String> = store
        .list(ListQuery::ALL)
        .await
        .unwrap()
        .sessions
        .iter()
        .map(|one| one.header.id.to_string())
        .collect();
    listed.sort();
    assert_eq!(listed.len(), 6);
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
        assert!(store.list(ListQuery::ALL).await.unwrap().sessions.is_empty());
        drop(store.create(header("s")).await.unwrap());
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[tokio::test]
async fn a_directory_without_a_log_is_no_session_and_may_become_one() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 3).await;
    fs::remove_file(&path).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    assert!(matches!(open(&store, "s").await, Err(StoreError::NotFound)));
    assert!(matches!(store.header(&id("s")).await, Err(StoreError::NotFound)));
    assert!(store.list(ListQuery::ALL).await.unwrap().sessions.is_empty());
    drop(store.create(header("s")).await.unwrap());
    assert_eq!(open(&store, "s").await.unwrap().1, Vec::<u64>::new());
}

#[tokio::test]
async fn a_reader_in_another_process_follows_the_writer_and_never_sees_half_a_line() {
    let home = TempDir::new().unwrap();
    let writer = FileStore::open(home.path()).unwrap();
    let reader = FileStore::open(home.path()).unwrap();
    let mut log = writer.create(header("s")).await.unwrap();
    for count in 1..50 {
        log.append(&[line(count - 1)]).unwrap();
        assert_eq!(reader.extent(&id("s")).await.unwrap().last, Some(Seq(count - 1)));
        let page = reader.read(&id("s"), Seq(count).0.checked_sub(3).map(Seq), EVERYTHING).await.unwrap();
        assert_eq!(page.lines.last().map(|line| line.seq), Some(Seq(count - 1)));
    }
    drop(log);
    let mut sealed = Vec::new();
    record::seal(&line(49).json, None, &mut sealed);
    let mut file = fs::OpenOptions::new().append(true).open(path(&home, "s")).unwrap();
    for byte in sealed {
        assert_eq!(reader.extent(&id("s")).await.unwrap().last, Some(Seq(48)));
        file.write_all(&[byte]).unwrap();
    }
    assert_eq!(seqs(&reader.read(&id("s"), Some(Seq(47)), EVERYTHING).await.unwrap()), [48, 49]);
}

/// A writer elsewhere may take back what a reader has seen: a write that failed half way had whole lines in it, which
/// were cut off again, and then other lines came to stand there.
#[tokio::test]
async fn a_session_that_another_process_writes_is_not_removed() {
    let home = TempDir::new().unwrap();
    let theirs = FileStore::open(home.path()).unwrap();
    let log = theirs.create(header("s")).await.unwrap();
    let ours = FileStore::open(home.path()).unwrap();
    assert!(matches!(ours.remove(&id("s")).await, Err(StoreError::Locked { .. })));
    drop(log);
    ours.remove(&id("s")).await.unwrap();
    assert!(theirs.list(ListQuery::ALL).await.unwrap().sessions.is_empty());
}

/// A crash in the middle of a removal leaves a directory under a name that no session has.
#[tokio::test]
async fn what_a_crash_left_of_a_removed_session_goes_with_the_next_list() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 3).await;
    let directory = path.parent().unwrap();
    let gone = directory.with_extension("0.gone");
    std::fs::rename(directory, &gone).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    assert!(matches!(store.header(&id("s")).await, Err(StoreError::NotFound)));
    assert!(store.list(ListQuery::ALL).await.unwrap().sessions.is_empty());
    assert!(!gone.exists());
}

#[tokio::test]
async fn a_reader_notices_that_the_end_was_taken_back_and_written_anew() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 6).await;
    let reader = FileStore::open(home.path()).unwrap();
    assert_eq!(reader.extent(&id("s")).await.unwrap().last, Some(Seq(5)));
    let text = fs::read_to_string(&path).unwrap();
    let kept: String = text.split_inclusive('\n').take(4).collect();
    fs::write(&path, kept).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let (mut opened, _) = open(&store, "s").await.unwrap();
    let anew: Vec<_> = std::iter::once(opened_line(3, 1_234_567)).chain(lines(4..40)).collect();
    opened.log.append(&anew).unwrap();
    let extent =
        Extent { epochs: vec![(Epoch(77), Seq(0)), (Epoch(1_234_567), Seq(3))], last: Some(Seq(39)) };
    assert_eq!(reader.extent(&id("s")).await.unwrap(), extent);
    let page = reader.read(&id("s"), None, EVERYTHING).await.unwrap();
    assert_eq!(page.lines[3].json, anew[0].json);
    assert_eq!(seqs(&page), (0..40).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_log_passes_from_process_to_process() {
    let home = TempDir::new().unwrap();
    let stores = [FileStore::open(home.path()).unwrap(), FileStore::open(home.path()).unwrap()];
    drop(stores[0].create(header("s")).await.unwrap());
    for round in 0..8_u64 {
        let store = &stores[usize::try_from(round % 2).unwrap()];
        let (mut opened, replayed) = open(store, "s").await.unwrap();
        assert_eq!(replayed, (0..round * 3).collect::<Vec<_>>());
        opened.log.append(&lines(round * 3..round * 3 + 3)).unwrap();
        for reader in &stores {
            let page = reader.read(&id("s"), None, EVERYTHING).await.unwrap();
            assert_eq!(seqs(&page), (0..round * 3 + 3).collect::<Vec<_>>());
        }
    }
}
