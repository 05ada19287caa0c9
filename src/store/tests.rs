//! What every store promises, whatever it is made of: one suite, run against each.

use tempfile::TempDir;

use super::file::FileStore;
use super::memory::MemoryStore;
use super::*;
use crate::event::{EventBody, SessionOpened, SessionTitle, TitleSource, TurnStart};

pub(super) const EVERYTHING: PageLimit = PageLimit { events: usize::MAX, bytes: usize::MAX };

pub(super) fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

pub(super) fn header(name: &str) -> Header {
    Header { id: id(name), created_at: 5, cwd: "/".to_owned(), parent_session: None }
}

pub(super) fn event_line(seq: u64, time_ms: u64, body: EventBody) -> Line {
    let json = SessionEvent::new(Seq(seq), time_ms, body).encode().unwrap();
    Line { seq: Seq(seq), json: Bytes::from(json) }
}

pub(super) fn opened_line(seq: u64, epoch: u64) -> Line {
    let body = EventBody::SessionOpened(SessionOpened { epoch: Epoch(epoch), recovered: None });
    event_line(seq, 1000 + seq, body)
}

pub(super) fn title_line(seq: u64, title: &str) -> Line {
    let body = EventBody::SessionTitle(SessionTitle {
        title: title.to_owned(),
        message_seqs: Vec::new(),
        source: TitleSource { kind: "fallback".to_owned() },
    });
    event_line(seq, 1000 + seq, body)
}

/// Event 0 opens life 77, all others are small.
pub(super) fn line(seq: u64) -> Line {
    if seq == 0 {
        return opened_line(0, 77);
    }
    event_line(seq, 1000 + seq, EventBody::TurnStart(TurnStart { turn: u32::try_from(seq).unwrap() }))
}

pub(super) fn lines(range: std::ops::Range<u64>) -> Vec<Line> {
    range.map(line).collect()
}

/// Opens a log and collects the positions of its replay.
pub(super) async fn open(store: &dyn SessionStore, name: &str) -> Result<(Opened, Vec<u64>), StoreError> {
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

pub(super) fn seqs(page: &Page) -> Vec<u64> {
    page.lines.iter().map(|line| line.seq.0).collect()
}

/// Each store, with its name and the directory that it needs.
fn stores() -> Vec<(&'static str, Box<dyn SessionStore>, Option<TempDir>)> {
    let home = TempDir::new().unwrap();
    let file = FileStore::open(home.path()).unwrap();
    vec![("file", Box::new(file), Some(home)), ("memory", Box::new(MemoryStore::default()), None)]
}

#[tokio::test]
async fn what_was_appended_comes_back_byte_for_byte() {
    for (name, store, _home) in stores() {
        let mut log = store.create(header("s")).await.unwrap();
        let written = lines(0..300);
        log.append(&written[..7]).unwrap();
        log.append(&written[7..]).unwrap();
        log.append(&[]).unwrap();
        let page = store.read(&id("s"), None, EVERYTHING).await.unwrap();
        let read: Vec<&Bytes> = page.lines.iter().map(|line| &line.json).collect();
        assert_eq!(read, written.iter().map(|line| &line.json).collect::<Vec<_>>(), "{name}");
        assert!(!page.more, "{name}");
        drop(log);
        let (opened, replayed) = open(&*store, "s").await.unwrap();
        assert_eq!(replayed, (0..300).collect::<Vec<_>>(), "{name}");
        assert_eq!((opened.header, opened.cut_bytes), (header("s"), 0), "{name}");
    }
}

#[tokio::test]
async fn a_page_keeps_its_limits_but_holds_at_least_one_event() {
    for (name, store, _home) in stores() {
        let mut log = store.create(header("s")).await.unwrap();
        log.append(&lines(0..20)).unwrap();
        let two = line(1).json.len() + line(2).json.len();
        for (after, events, bytes, expected, more) in [
            (None, 3, usize::MAX, 0..3, true),
            (Some(Seq(16)), 3, usize::MAX, 17..20, false),
            (Some(Seq(15)), 3, usize::MAX, 16..19, true),
            (Some(Seq(0)), usize::MAX, two, 1..3, true),
            (Some(Seq(0)), usize::MAX, two - 1, 1..2, true),
            (None, 0, 0, 0..1, true),
            (Some(Seq(19)), 9, usize::MAX, 20..20, false),
            (Some(Seq(99)), 9, usize::MAX, 20..20, false),
        ] {
            let page = store.read(&id("s"), after, PageLimit { events, bytes }).await.unwrap();
            assert_eq!(
                (seqs(&page), page.more),
                (expected.collect(), more),
                "{name} {after:?} {events} {bytes}"
            );
        }
    }
}

#[tokio::test]
async fn every_event_names_the_life_in_which_it_was_written() {
    for (name, store, _home) in stores() {
        let mut log = store.create(header("s")).await.unwrap();
        log.append(&[opened_line(0, 11), line(1)]).unwrap();
        drop(log);
        let (mut opened, _) = open(&*store, "s").await.unwrap();
        opened.log.append(&[opened_line(2, 12), line(3)]).unwrap();
        let extent = Extent { epochs: vec![(Epoch(11), Seq(0)), (Epoch(12), Seq(2))], last: Some(Seq(3)) };
        assert_eq!(store.extent(&id("s")).await.unwrap(), extent, "{name}");
        let page = store.read(&id("s"), None, EVERYTHING).await.unwrap();
        let lives: Vec<u64> = page.lines.iter().map(|line| line.epoch.0).collect();
        assert_eq!(lives, [11, 11, 12, 12], "{name}");
        drop(opened);
        assert_eq!(open(&*store, "s").await.unwrap().0.extent, extent, "{name}");
    }
}

#[tokio::test]
async fn one_writer_at_a_time_and_readers_whenever_they_like() {
    for (name, store, _home) in stores() {
        let mut log = store.create(header("s")).await.unwrap();
        log.append(&lines(0..2)).unwrap();
        let pid = std::process::id();
        let second = open(&*store, "s").await.map(|_| ());
        assert!(matches!(second, Err(StoreError::Locked { pid: holder }) if holder == pid), "{name}");
        assert_eq!(store.header(&id("s")).await.unwrap(), header("s"), "{name}");
        assert_eq!(store.extent(&id("s")).await.unwrap().last, Some(Seq(1)), "{name}");
        drop(log);
        assert!(open(&*store, "s").await.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn a_session_is_made_once_and_a_missing_one_is_not_found() {
    for (name, store, _home) in stores() {
        assert!(matches!(open(&*store, "s").await, Err(StoreError::NotFound)), "{name}");
        assert!(matches!(store.extent(&id("s")).await, Err(StoreError::NotFound)), "{name}");
        assert!(matches!(store.header(&id("s")).await, Err(StoreError::NotFound)), "{name}");
        let page = store.read(&id("s"), None, EVERYTHING).await;
        assert!(matches!(page, Err(StoreError::NotFound)), "{name}");
        drop(store.create(header("s")).await.unwrap());
        assert!(matches!(store.create(header("s")).await, Err(StoreError::Exists)), "{name}");
        assert_eq!(store.extent(&id("s")).await.unwrap(), Extent::default(), "{name}");
        assert_eq!(store.read(&id("s"), None, EVERYTHING).await.unwrap().lines, [], "{name}");
    }
}

#[tokio::test]
async fn lines_out_of_order_are_refused_and_none_of_them_is_kept() {
    for (name, store, _home) in stores() {
        let mut log = store.create(header("s")).await.unwrap();
        log.append(&[line(0)]).unwrap();
        for (offered, wrong, due) in
            [(vec![line(2)], 2, 1), (vec![line(1), line(3)], 3, 2), (vec![line(0)], 0, 1)]
        {
            let refused = log.append(&offered);
            let (wrong, due) = (Seq(wrong), Seq(due));
            assert!(
                matches!(refused, Err(StoreError::OutOfOrder { offered, expected }) if offered == wrong && expected == due),
                "{name}"
            );
            assert_eq!(store.extent(&id("s")).await.unwrap().last, Some(Seq(0)), "{name}");
        }
        log.append(&[line(1)]).unwrap();
    }
}

#[tokio::test]
async fn a_receiver_that_goes_away_stops_the_replay_and_not_the_opening() {
    for (name, store, _home) in stores() {
        let mut log = store.create(header("s")).await.unwrap();
        log.append(&lines(0..1000)).unwrap();
        drop(log);
        let (sender, batches) = mpsc::channel(1);
        drop(batches);
        let opened = store.open(&id("s"), sender).await.unwrap();
        assert_eq!(opened.extent.last, Some(Seq(999)), "{name}");
    }
}

#[tokio::test]
async fn the_list_is_newest_first_and_knows_titles() {
    for (name, store, _home) in stores() {
        let mut logs = Vec::new();
        for name in ["a", "b", "c"] {
            logs.push(store.create(header(name)).await.unwrap());
        }
        logs[1].append(&lines(0..9)).unwrap();
        logs[2].append(&[title_line(0, "old"), title_line(1, "new")]).unwrap();
        let listed = store.list(ListQuery::ALL).await.unwrap().sessions;
        let brief: Vec<_> = listed
            .iter()
            .map(|one| (one.header.id.as_str(), one.title.as_deref(), one.last, one.updated_at))
            .collect();
        let expected =
            [("b", None, Some(Seq(8)), 1008), ("c", Some("new"), Some(Seq(1)), 1001), ("a", None, None, 5)];
        assert_eq!(brief, expected, "{name}");
        logs[0].append(&[event_line(0, 9999, EventBody::TurnStart(TurnStart { turn: 1 }))]).unwrap();
        assert_eq!(store.list(ListQuery::ALL).await.unwrap().sessions[0].header.id, id("a"), "{name}");
    }
}

#[tokio::test]
async fn a_page_of_the_list_follows_a_place_and_says_whether_more_follow() {
    for (name, store, _home) in stores() {
        let mut logs = Vec::new();
        for at in 0..5_u64 {
            let id = format!("s{at}");
            let cwd = if at % 2 == 0 { "/even" } else { "/odd" };
            let mut log = store.create(Header { cwd: cwd.to_owned(), ..header(&id) }).await.unwrap();
            log.append(&[opened_line(0, 77 + at)]).unwrap();
            log.append(&[event_line(1, 5000 + at, EventBody::TurnStart(TurnStart { turn: 1 }))]).unwrap();
            logs.push(log);
        }
        let page = async |after: Option<Place>, limit, cwd: Option<&str>| {
            let query = ListQuery { after, limit, cwd: cwd.map(str::to_owned) };
            let page = store.list(query).await.unwrap();
            let ids: Vec<String> = page.sessions.iter().map(|one| one.header.id.to_string()).collect();
            (ids, page.more)
        };
        let after =
            |at: u64| Some(Place { updated_at: std::cmp::Reverse(5000 + at), id: id(&format!("s{at}")) });
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(page(None, 2, None).await, (ids(&["s4", "s3"]), true), "{name}");
        assert_eq!(page(after(3), 3, None).await, (ids(&["s2", "s1", "s0"]), false), "{name}");
        assert_eq!(page(None, 2, Some("/odd")).await, (ids(&["s3", "s1"]), false), "{name}");
        assert_eq!(page(after(4), 1, Some("/even")).await, (ids(&["s2"]), true), "{name}");
        assert_eq!(page(None, 9, Some("/none")).await, (ids(&[]), false), "{name}");
    }
}

#[tokio::test]
async fn what_is_removed_is_gone_with_its_blobs_and_its_name_is_free() {
    for (name, store, _home) in stores() {
        let child = Header { parent_session: Some(id("s")), ..header("child") };
        let mut log = store.create(header("s")).await.unwrap();
        log.append(&lines(0..3)).unwrap();
        drop(store.create(child).await.unwrap());
        let blob = BlobId::of(b"picture");
        store.put_blob(&id("s"), blob, Bytes::from_static(b"picture")).await.unwrap();
        let sizes = store.sizes().await.unwrap();
        let size = sizes.iter().find(|size| size.id == id("s")).unwrap();
        assert!(size.bytes > 100 && sizes.len() == 2, "{name}: {sizes:?}");
        // Under the lease that its writer holds.
        store.remove(&id("s")).await.unwrap();
        drop(log);
        assert!(matches!(store.extent(&id("s")).await, Err(StoreError::NotFound)), "{name}");
        assert!(matches!(store.blob(&id("s"), blob).await, Err(StoreError::NotFound)), "{name}");
        assert!(matches!(store.remove(&id("s")).await, Err(StoreError::NotFound)), "{name}");
        assert_eq!(store.children(&id("s")).await.unwrap(), [id("child")], "{name}");
        assert_eq!(store.list(ListQuery::ALL).await.unwrap().sessions.len(), 1, "{name}");
        let mut again = store.create(header("s")).await.unwrap();
        again.append(&lines(0..1)).unwrap();
        assert_eq!(store.extent(&id("s")).await.unwrap().last, Some(Seq(0)), "{name}");
        store.flush().await.unwrap();
    }
}

#[tokio::test]
async fn barriers_and_flushes_of_a_healthy_store_are_reached() {
    for (name, store, _home) in stores() {
        let mut log = store.create(header("s")).await.unwrap();
        log.barrier().await.unwrap();
        log.append(&lines(0..3)).unwrap();
        let barrier = log.barrier();
        drop(log);
        barrier.await.unwrap();
        store.flush().await.unwrap();
        assert_eq!(store.failure(), None, "{name}");
    }
}

#[tokio::test]
async fn a_blob_is_found_by_its_content_in_its_session_alone() {
    for (name, store, _home) in stores() {
        let blob = BlobId::of(b"picture");
        let session = id("s");
        let put = || store.put_blob(&session, blob, Bytes::from_static(b"picture"));
        assert!(matches!(put().await, Err(StoreError::NotFound)), "{name}");
        assert!(matches!(store.blob(&id("s"), blob).await, Err(StoreError::NotFound)), "{name}");
        let _logs = (store.create(header("s")).await.unwrap(), store.create(header("t")).await.unwrap());
        assert_eq!(store.blob(&id("s"), blob).await.unwrap(), None, "{name}");
        put().await.unwrap();
        put().await.unwrap();
        assert_eq!(store.blob(&id("s"), blob).await.unwrap().as_deref(), Some(&b"picture"[..]), "{name}");
        assert_eq!(store.blob(&id("t"), blob).await.unwrap(), None, "{name}");
        assert_eq!(store.blob(&id("s"), BlobId::of(b"other")).await.unwrap(), None, "{name}");
    }
}
