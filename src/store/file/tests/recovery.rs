//! What an opening makes of a log that died badly: a torn tail is cut, damage is refused and left as it is.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::store::tests::{EVERYTHING, lines, open, seqs, title_line};

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

/// An event whose checksum holds is no torn write, also when it is the last one and nothing says that it was durable:
/// a newer version may have written it.
#[tokio::test]
async fn a_whole_line_that_this_version_can_not_read_is_never_cut() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 5).await;
    let whole = fs::read(&path).unwrap();
    for json in [
        r#"{"type":"from/the-future","seq":5,"time":1,"data":{}}"#,
        r#"{"type":"turn/start","seq":5,"time":1,"data":{"turn":"five"}}"#,
        r#"{"type":"turn/start","seq":7,"time":1,"data":{"turn":5}}"#,
        r#"{"type":"turn/start","seq":2,"time":1,"data":{"turn":5}}"#,
        r#"{"type":"turn/start"}"#,
    ] {
        let mut longer = whole.clone();
        record::seal(json.as_bytes(), None, &mut longer);
        fs::write(&path, &longer).unwrap();
        let store = FileStore::open(home.path()).unwrap();
        let opened = open(&store, "s").await.map(|_| ());
        assert!(matches!(opened, Err(StoreError::Corrupt { seq: Seq(5), .. })), "{json}: {opened:?}");
        assert_eq!(fs::read(&path).unwrap(), longer, "{json}");
    }
}

#[tokio::test]
async fn an_unknown_type_that_may_be_ignored_is_kept() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 5).await;
    let mut longer = fs::read(&path).unwrap();
    let json = br#"{"type":"x/y","seq":5,"time":1,"data":{"a":1.50},"ignorable":true}"#;
    record::seal(json, None, &mut longer);
    fs::write(&path, &longer).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    assert_eq!(open(&store, "s").await.unwrap().1, [0, 1, 2, 3, 4, 5]);
    assert_eq!(store.read(&id("s"), Some(Seq(4)), EVERYTHING).await.unwrap().lines[0].json, json[..]);
}

#[tokio::test]
async fn a_tail_of_zeros_is_cut() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 5).await;
    let whole = fs::read(&path).unwrap();
    let mut longer = whole.clone();
    longer.resize(whole.len() + 5000, 0);
    fs::write(&path, &longer).unwrap();
    let store = FileStore::open(home.path()).unwrap();
    assert_eq!(store.extent(&id("s")).await.unwrap().last, Some(Seq(4)));
    assert_eq!(open(&store, "s").await.unwrap().0.cut_bytes, 5000);
    assert_eq!(fs::read(&path).unwrap(), whole);
}

/// Lines far longer than a read, so that they straddle it, and offsets that are kept only now and then.
#[tokio::test]
async fn long_lines_are_found_again_from_any_place() {
    let home = TempDir::new().unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    let sizes = [10, 300_000, 70_000, 5, 262_144, 700_000, 1, 65_536, 30_000, 30_000, 30_000];
    let written: Vec<_> = (0..).zip(sizes).map(|(seq, size)| title_line(seq, &"x".repeat(size))).collect();
    log.append(&written).unwrap();
    drop(log);
    for store in [store, FileStore::open(home.path()).unwrap()] {
        for from in 0..written.len() {
            let after = from.checked_sub(1).map(|at| Seq(at as u64));
            let page = store.read(&id("s"), after, PageLimit { events: 2, bytes: usize::MAX }).await.unwrap();
            let expected: Vec<_> = written[from..].iter().take(2).map(|line| line.json.clone()).collect();
            assert_eq!(page.lines.into_iter().map(|line| line.json).collect::<Vec<_>>(), expected);
        }
        assert_eq!(open(&store, "s").await.unwrap().1, (0..11).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn damage_that_happens_under_a_reader_is_told_and_is_no_short_page() {
    let home = TempDir::new().unwrap();
    let path = written(&home, "s", 20).await;
    let store = FileStore::open(home.path()).unwrap();
    assert_eq!(seqs(&store.read(&id("s"), None, EVERYTHING).await.unwrap()).len(), 20);
    let mut damaged = fs::read(&path).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let page = store.read(&id("s"), None, EVERYTHING).await.map(|page| seqs(&page));
    assert!(matches!(page, Err(StoreError::Corrupt { .. })), "{page:?}");
    assert_eq!(store.header(&id("s")).await.unwrap(), header("s"));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A log of events that were each durable before the next, as its later lines say.
async fn durable_each(home: &TempDir, count: u64) -> PathBuf {
    let store = FileStore::open(home.path()).unwrap();
    let mut log = store.create(header("s")).await.unwrap();
    for seq in 0..count {
        log.append(&[line(seq)]).unwrap();
        log.barrier().await.unwrap();
    }
    path(home, "s")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_log_cut_anywhere_opens_to_a_prefix_and_goes_on(cut in any::<prop::sample::Index>(), count in 1..12_u64) {
        block_on(async {
            let home = TempDir::new().unwrap();
            let path = written(&home, "s", count).await;
            let whole = fs::read(&path).unwrap();
            let at = cut.index(whole.len() + 1);
            fs::write(&path, &whole[..at]).unwrap();
            let header_end = memchr::memchr(b'\n', &whole).unwrap() + 1;
            let kept = memchr::memchr_iter(b'\n', &whole[header_end.min(at)..at]).count() as u64;
            let store = FileStore::open(home.path()).unwrap();
            match open(&store, "s").await {
                Ok((mut opened, seqs)) => {
                    prop_assert!(at >= header_end);
                    prop_assert_eq!(seqs, (0..kept).collect::<Vec<_>>());
                    opened.log.append(&lines(kept..kept + 3)).unwrap();
                    drop(opened);
                    let (opened, seqs) = open(&store, "s").await.unwrap();
                    prop_assert_eq!((seqs, opened.cut_bytes), ((0..kept + 3).collect(), 0));
                }
                Err(error) => prop_assert!(at < header_end && matches!(error, StoreError::NotFound), "{}", error),
            }
            Ok(())
        })?;
    }

    #[test]
    fn one_changed_byte_costs_the_last_lines_at_most_or_is_refused(
        place in any::<prop::sample::Index>(), flip in 1..=255_u8, count in 1..10_u64,
    ) {
        block_on(async {
            let home = TempDir::new().unwrap();
            let path = durable_each(&home, count).await;
            let mut damaged = fs::read(&path).unwrap();
            let at = place.index(damaged.len());
            damaged[at] ^= flip;
            fs::write(&path, &damaged).unwrap();
            let store = FileStore::open(home.path()).unwrap();
            match open(&store, "s").await {
                // The last line holds nobody's word that it was durable; its newline lost, the one before goes with it.
                Ok((_, seqs)) => prop_assert!(
                    seqs.len() as u64 + 2 >= count && seqs == (0..seqs.len() as u64).collect::<Vec<_>>()
                ),
                Err(error) => {
                    prop_assert!(matches!(error, StoreError::Corrupt { .. }), "{}", error);
                    prop_assert_eq!(fs::read(&path).unwrap(), damaged);
                }
            }
            Ok(())
        })?;
    }

    /// A power cut leaves what was synced, and of the rest whatever sectors happened to be written.
    #[test]
    fn whatever_a_power_cut_leaves_all_that_was_synced_opens(
        synced in 1..8_u64, appends in prop::collection::vec(1..6_u64, 1..8),
        lost in prop::collection::vec(any::<bool>(), 40), length in any::<prop::sample::Index>(),
    ) {
        const SECTOR_BYTES: usize = 128;
        block_on(async {
            let home = TempDir::new().unwrap();
            let store = FileStore::open(home.path()).unwrap();
            let mut log = store.create(header("s")).await.unwrap();
            log.append(&lines(0..synced)).unwrap();
            log.barrier().await.unwrap();
            let path = path(&home, "s");
            let safe = fs::read(&path).unwrap().len();
            let mut next = synced;
            for count in appends {
                log.append(&lines(next..next + count)).unwrap();
                next += count;
            }
            drop(log);
            let mut left = fs::read(&path).unwrap();
            left.truncate(safe + length.index(left.len() - safe + 1));
            for at in safe..left.len() {
                if lost[(at / SECTOR_BYTES) % lost.len()] {
                    left[at] = 0;
                }
            }
            fs::write(&path, &left).unwrap();
            let store = FileStore::open(home.path()).unwrap();
            let (mut opened, seqs) = open(&store, "s").await.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert!(seqs.len() as u64 >= synced);
            prop_assert_eq!(&seqs, &(0..seqs.len() as u64).collect::<Vec<_>>());
            let next = seqs.len() as u64;
            opened.log.append(&[line(next)]).unwrap();
            Ok(())
        })?;
    }
}
