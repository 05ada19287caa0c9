//! The small pieces that every frame goes through, in operations a second.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use dshd::codec::{Frame, LineDecoder};
use dshd::event::{Block, EventBody, Message, Role, Seq, SessionEvent, SessionId, Source, SourceKind};
use dshd::store::file::FileStore;
use dshd::store::{Header, Line, SessionStore as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::codec::Decoder as _;

use crate::sized;

const PROMPT: &str = r#"{"jsonrpc":"2.0","id":42,"method":"session/prompt","params":{"sessionId":"a session","contentBlocks":[{"type":"text","text":"Why does test_parse fail?"}],"idempotencyKey":"k-1"}}"#;

/// Runs `work` for a while; the best of five.
fn per_second(units: f64, mut work: impl FnMut()) -> f64 {
    let for_each = Duration::from_millis(sized(200, 20) as u64);
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let (began, mut rounds) = (Instant::now(), 0.0);
        while began.elapsed() < for_each {
            work();
            rounds += 1.0;
        }
        best = best.max(rounds * units / began.elapsed().as_secs_f64());
    }
    best.round()
}

/// Lines out of bytes, beside a bare search for line ends in the same bytes.
pub(crate) fn codec() -> Value {
    let stream = Bytes::from(format!("{PROMPT}\n").repeat(100));
    let ours = per_second(100.0, || {
        let mut decoder = LineDecoder::new(1 << 24);
        let mut buffer = BytesMut::from(&stream[..]);
        while let Ok(Some(Frame::Line(line))) = decoder.decode(&mut buffer) {
            black_box(line);
        }
    });
    let bare = per_second(100.0, || {
        let copy = BytesMut::from(&stream[..]);
        black_box(memchr::memchr_iter(b'\n', &copy).count());
    });
    json!({"lines_per_second": ours, "bare_search_per_second": bare})
}

/// Requests out of lines, beside a parse of the same line into a generic value.
pub(crate) fn envelope() -> Value {
    let ours = per_second(1.0, || {
        black_box(dshd::rpc::parse(black_box(PROMPT.as_bytes())));
    });
    let value = per_second(1.0, || {
        let _ = black_box(serde_json::from_str::<Value>(black_box(PROMPT)));
    });
    json!({"requests_per_second": ours, "generic_value_per_second": value})
}

fn event(seq: u64) -> SessionEvent {
    let message = Message::new(
        Role::User,
        Source::of(SourceKind::User),
        vec![Block::text("Why does test_parse fail?")],
    );
    SessionEvent::new(Seq(seq), 1_796_078_478_976, EventBody::UserMessage(message))
}

/// Events into bytes.
pub(crate) fn encode() -> Value {
    let event = event(7);
    let ours = per_second(1.0, || {
        let _ = black_box(black_box(&event).encode());
    });
    json!({"events_per_second": ours})
}

/// Appends with and without waiting for the disk, and what 16 sessions' barriers cost together.
pub(crate) fn append() -> Value {
    let home = TempDir::new().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = FileStore::open(home.path()).unwrap();
        let mut logs = Vec::new();
        for at in 0..16 {
            let id = SessionId::new(&format!("s{at}")).unwrap();
            let header = Header { id, created_at: 0, cwd: "/".to_owned(), parent_session: None };
            logs.push(store.create(header).await.unwrap());
        }
        let mut next = 0;
        let mut line = || {
            let json = Bytes::from(event(next).encode().unwrap());
            next += 1;
            Line { seq: Seq(next - 1), json }
        };
        let count = sized(20_000, 500);
        let began = Instant::now();
        for _ in 0..count {
            logs[0].append(&[line()]).unwrap();
        }
        let unsynced = count as f64 / began.elapsed().as_secs_f64();
        let count = sized(300, 20);
        let began = Instant::now();
        for _ in 0..count {
            logs[0].append(&[line()]).unwrap();
            logs[0].barrier().await.unwrap();
        }
        let synced = count as f64 / began.elapsed().as_secs_f64();
        let began = Instant::now();
        for round in 0..count as u64 {
            for log in &mut logs[1..] {
                let json = Bytes::from(event(round).encode().unwrap());
                log.append(&[Line { seq: Seq(round), json }]).unwrap();
            }
            let barriers: Vec<_> = logs[1..].iter().map(|log| log.barrier()).collect();
            for barrier in futures_util::future::join_all(barriers).await {
                barrier.unwrap();
            }
        }
        let together = (count * 15) as f64 / began.elapsed().as_secs_f64();
        json!({
            "appends_per_second": unsynced.round(), "synced_per_second": synced.round(),
            "synced_per_second_of_15_sessions": together.round(),
        })
    })
}
