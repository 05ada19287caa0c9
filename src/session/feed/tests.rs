//! Every subscriber sees every event once, in order, whatever its pace; and the text before its message.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it looks for, and shows the rest")]

use proptest::prelude::*;

use super::*;
use crate::provider::BlockKind;

fn framing() -> Framing {
    Framing { prefix: |_, epoch| format!("<{epoch}>").into_bytes(), suffix: b"\n" }
}

fn feed(bytes_max: usize) -> Feed {
    let feed = Feed::new(SessionId::new("s").unwrap(), framing(), bytes_max);
    feed.opened(Extent::default());
    feed.begin_epoch(Epoch(7));
    feed
}

fn event(seq: u64) -> Published {
    let json = Bytes::from(format!("{{\"type\":\"x\",\"seq\":{seq}}}"));
    Published { seq: Seq(seq), json, mark: Mark::None, seals_text: false }
}

fn message(seq: u64) -> Published {
    Published { seals_text: true, ..event(seq) }
}

/// Plays the store for a cursor that the tail no longer reaches.
fn stored(seq: u64) -> StoredLine {
    StoredLine { seq: Seq(seq), epoch: Epoch(7), json: event(seq).json }
}

/// What a subscriber was sent: events by number, text joined.
#[derive(Debug, Default, PartialEq, Eq)]
struct Got {
    seqs: Vec<u64>,
    text: String,
}

impl Got {
    /// Takes at most `steps` steps.
    fn pull(&mut self, feed: &Feed, cursor: &mut Cursor, steps: usize) {
        for _ in 0..steps {
            match feed.next(cursor, true) {
                Next::Event { seq, .. } => self.seqs.push(seq.0),
                Next::Delta(lines) => self.take_text(&lines),
                Next::Status(_) => {}
                Next::FromStore { after, until } => {
                    let from = Seq::following(after).0;
                    for seq in from..=until.0.min(from + 1) {
                        let _ = cursor.take_stored(&stored(seq));
                        self.seqs.push(seq);
                    }
                }
                Next::Wait | Next::Ended(_) => return,
            }
        }
    }

    fn take_text(&mut self, lines: &[u8]) {
        for line in std::str::from_utf8(lines).unwrap().lines() {
            let event: serde_json::Value = serde_json::from_str(line.strip_prefix("<7>").unwrap()).unwrap();
            let chunk = &event["data"]["chunk"];
            if chunk["type"] == "text-delta" {
                self.text.push_str(chunk["text"].as_str().unwrap());
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Move {
    Publish(u8),
    Write(String),
    Pull(usize, u8),
    Join(bool),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (1..4u8).prop_map(Move::Publish),
        "[a-c\"\n\u{2028}é]{1,6}".prop_map(Move::Write),
        (0..4usize, 1..6u8).prop_map(|(who, steps)| Move::Pull(who, steps)),
        any::<bool>().prop_map(Move::Join),
    ];
    proptest::collection::vec(one, 1..120)
}

proptest! {
    #[test]
    fn no_gap_no_double_no_reordering_at_any_pace(moves in moves(), bytes_max in 1..400usize) {
        let feed = feed(bytes_max);
        let mut readers: Vec<(Cursor, Got, u64)> = Vec::new();
        let mut next = 0;
        for step in moves {
            match step {
                Move::Publish(count) => {
                    let events = (next..next + u64::from(count)).map(event).collect();
                    feed.publish(events, Status::Running);
                    next += u64::from(count);
                }
                Move::Write(text) => {
                    feed.text().begin(1, 1, 1);
                    let block = feed.text().start(BlockKind::Text);
                    feed.text().push(block, &text);
                    feed.publish(vec![message(next)], Status::Running);
                    next += 1;
                }
                Move::Pull(who, steps) => {
                    if let Some((cursor, got, _)) = readers.get_mut(who) {
                        got.pull(&feed, cursor, usize::from(steps));
                    }
                }
                Move::Join(beginning) => {
                    let start = if beginning { Start::Beginning } else { Start::Now };
                    let cursor = feed.cursor(start, true).unwrap();
                    readers.push((cursor, Got::default(), if beginning { 0 } else { next }));
                }
            }
        }
        for (mut cursor, mut got, first) in readers {
            got.pull(&feed, &mut cursor, usize::MAX);
            prop_assert_eq!(got.seqs, (first..next).collect::<Vec<_>>());
        }
    }

    #[test]
    fn joined_deltas_are_the_text_for_who_keeps_up(pieces in proptest::collection::vec("[a-z\"\\\\\n\u{1}é🙂\u{2028}]{0,8}", 1..40)) {
        let feed = feed(1);
        let mut cursor = feed.cursor(Start::Now, true).unwrap();
        let mut got = Got::default();
        feed.text().begin(1, 1, 1);
        let block = feed.text().start(BlockKind::Text);
        for (at, piece) in pieces.iter().enumerate() {
            feed.text().push(block, piece);
            if at % 3 == 0 {
                got.pull(&feed, &mut cursor, 1);
            }
        }
        feed.publish(vec![message(0)], Status::Idle);
        got.pull(&feed, &mut cursor, usize::MAX);
        prop_assert_eq!(got.text, pieces.concat());
        prop_assert_eq!(got.seqs, vec![0]);
    }
}

#[test]
fn the_rest_of_a_text_comes_before_its_message_and_waits_for_the_delta_on_its_way() {
    let feed = feed(1 << 20);
    let mut cursor = feed.cursor(Start::Now, true).unwrap();
    feed.text().begin(1, 1, 1);
    let block = feed.text().start(BlockKind::Text);
    feed.text().push(block, "a");
    assert!(matches!(feed.next(&mut cursor, true), Next::Delta(_)));
    feed.text().push(block, "b");
    feed.publish(vec![message(0)], Status::Idle);
    assert!(matches!(feed.next(&mut cursor, false), Next::Wait));
    assert!(matches!(feed.next(&mut cursor, true), Next::Delta(_)));
    assert!(matches!(feed.next(&mut cursor, false), Next::Event { seq: Seq(0), .. }));
}

#[test]
fn those_who_are_level_share_one_frame() {
    let feed = feed(1 << 20);
    let mut cursors = [feed.cursor(Start::Now, true).unwrap(), feed.cursor(Start::Now, true).unwrap()];
    feed.text().begin(1, 1, 1);
    let block = feed.text().start(BlockKind::Text);
    feed.text().push(block, "shared");
    let frames = cursors.each_mut().map(|cursor| match feed.next(cursor, true) {
        Next::Delta(lines) => lines.as_ptr(),
        other => panic!("{other:?}"),
    });
    assert_eq!(frames[0], frames[1]);
}

#[test]
fn a_replayed_turn_tells_running_then_idle_once() {
    let feed = feed(1 << 20);
    let starts = Published { mark: Mark::Starts, ..event(0) };
    feed.publish(vec![starts], Status::Running);
    feed.publish(vec![Published { mark: Mark::Starts, ..event(1) }, event(2)], Status::Idle);
    let mut cursor = feed.cursor(Start::Beginning, true).unwrap();
    let mut told = Vec::new();
    loop {
        match feed.next(&mut cursor, true) {
            Next::Event { seq, .. } => told.push(seq.to_string()),
            Next::Status(status) => told.push(format!("{status:?}")),
            Next::Wait => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, ["0", "Running", "1", "2", "Idle"]);
}

#[test]
fn a_cursor_of_an_older_life_is_good_up_to_its_end() {
    let feed = Feed::new(SessionId::new("s").unwrap(), framing(), 100);
    feed.opened(Extent { epochs: vec![(Epoch(1), Seq(0)), (Epoch(2), Seq(5))], last: Some(Seq(9)) });
    let good = |epoch, seq| feed.cursor(Start::After(Epoch(epoch), Seq(seq)), true).is_ok();
    assert!(good(1, 0) && good(1, 4) && good(2, 5) && good(2, 9));
    assert!(!good(1, 5) && !good(2, 10) && !good(3, 0));
}

#[test]
fn who_wants_no_deltas_gets_none() {
    let feed = feed(1 << 20);
    let mut cursor = feed.cursor(Start::Now, false).unwrap();
    feed.text().begin(1, 1, 1);
    let block = feed.text().start(BlockKind::Text);
    feed.text().push(block, "x");
    assert!(matches!(feed.next(&mut cursor, true), Next::Wait));
    feed.publish(vec![message(0)], Status::Idle);
    assert!(matches!(feed.next(&mut cursor, true), Next::Event { .. }));
}
