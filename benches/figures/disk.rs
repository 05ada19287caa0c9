//! Many sessions on disk: how soon the daemon is ready, how fast their list is, what they cost in memory.

use std::path::Path;
use std::time::{Duration, Instant};

use dshd::clock::now_ms;
use dshd::event::{EventBody, Seq, SessionEvent, SessionId, SessionTitle, TitleSource, TurnStart};
use dshd::store::file::FileStore;
use dshd::store::{Header, Line, SessionStore as _};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::sized;

/// Goals: ready within, the list of 200 once indexed within, bytes of memory each.
const READY_MS: f64 = 500.0;
const LIST_MS: f64 = 10.0;
const EACH_BYTES: u64 = 400;

/// Lists that are timed; the middle one counts.
const LISTS: usize = 21;

fn line(seq: u64, time_ms: u64, body: EventBody) -> Line {
    let json = SessionEvent::new(Seq(seq), time_ms, body).encode().unwrap();
    Line { seq: Seq(seq), json: json.into() }
}

/// Writes sessions of a few events each, as a daemon would have left them.
fn write(data: &Path, count: usize) {
    let store = FileStore::open(data).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for at in 0..count as u64 {
            let header = Header {
                id: SessionId::new(&format!("{at:08}-0000-4000-8000-000000000000")).unwrap(),
                created_at: now_ms(),
                cwd: format!("/home/me/src/project-{}", at % 50),
                parent_session: None,
            };
            let mut log = store.create(header).await.unwrap();
            let title = SessionTitle {
                title: format!("Why does the test number {at} fail on"),
                message_seqs: vec![Seq(0)],
                source: TitleSource { kind: "fallback".to_owned() },
            };
            let time = now_ms();
            let lines = [
                line(0, time, EventBody::TurnStart(TurnStart { turn: 1 })),
                line(1, time, EventBody::SessionTitle(title)),
            ];
            log.append(&lines).unwrap();
        }
    });
}

/// 100,000 sessions.
pub(crate) fn sessions() -> Value {
    let count = sized(100_000, 5_000);
    // A daemon without sessions, to tell what is theirs.
    let empty = Daemon::start("http://127.0.0.1:9");
    empty.connect().call("session/list", &json!({ "limit": 200 }));
    let baseline = empty.memory_kib();
    empty.stop();
    let began = Instant::now();
    let mut ready = Duration::ZERO;
    let daemon = Daemon::prepared("http://127.0.0.1:9", |data| write(data, count), |elapsed| ready = elapsed);
    let written = began.elapsed().saturating_sub(ready);
    let mut peer = daemon.connect();
    let list = |peer: &mut crate::daemon::Peer| {
        let began = Instant::now();
        let page = peer.call("session/list", &json!({ "limit": 200 }));
        assert_eq!(page["result"]["sessions"].as_array().unwrap().len(), 200.min(count));
        began.elapsed().as_secs_f64() * 1e3
    };
    let first = list(&mut peer);
    // All pages: afterwards the index is whole.
    let began = Instant::now();
    let (mut cursor, mut seen) = (Value::Null, 0);
    loop {
        let params = if cursor.is_null() {
            json!({ "limit": 200 })
        } else {
            json!({ "limit": 200, "cursor": cursor })
        };
        let mut page = peer.call("session/list", &params);
        seen += page["result"]["sessions"].as_array().unwrap().len();
        cursor = page["result"]["nextCursor"].take();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(seen, count, "every session is on one page");
    let all = began.elapsed().as_secs_f64();
    // The background thread is done when the processor is at rest.
    let mut cpu = daemon.cpu();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = daemon.cpu();
        if now.saturating_sub(cpu) < Duration::from_millis(20) {
            break;
        }
        cpu = now;
    }
    let mut times: Vec<f64> = (0..LISTS).map(|_| list(&mut peer)).collect();
    times.sort_by(f64::total_cmp);
    let filtered = {
        let began = Instant::now();
        peer.call("session/list", &json!({ "limit": 200, "cwd": "/home/me/src/project-7" }));
        began.elapsed().as_secs_f64() * 1e3
    };
    let memory = daemon.memory_kib().saturating_sub(baseline) * 1024 / count as u64;
    let ready_ms = ready.as_secs_f64() * 1e3;
    let list_ms = times[LISTS / 2];
    daemon.stop();
    json!({
        "sessions": count, "written_s": written.as_secs_f64(),
        "ready_ms": ready_ms, "ready_goal_ms": READY_MS,
        "first_list_ms": first, "all_pages_s": all,
        "list_of_200_ms": list_ms, "list_goal_ms": LIST_MS, "list_of_200_slowest_ms": times[LISTS - 1],
        "list_of_a_directory_ms": filtered,
        "bytes_each": memory, "bytes_each_goal": EACH_BYTES,
        "met": ready_ms <= READY_MS && list_ms <= LIST_MS && memory <= EACH_BYTES,
    })
}
