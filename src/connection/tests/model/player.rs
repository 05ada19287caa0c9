//! The two ends of the model: who publishes as a session's actor does, and who reads as a peer does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, DuplexStream};

use super::Seen;
use super::scheduler::{Random, turn};
use crate::event::{
    Epoch, EventBody, Seq, SessionEvent, SessionId, SessionOpened, SessionTitle, TitleSource,
};
use crate::provider::BlockKind;
use crate::runtime::Runtime;
use crate::session::Status;
use crate::session::feed::{Mark, Published, SharedFeed};
use crate::store::memory::MemoryStore;
use crate::store::{Header, Line, SessionLog, SessionStore as _};

pub(super) const SESSION: &str = "modelled";

const EPOCH: Epoch = Epoch(77);

/// What was published.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// The text that stands before the event of a seq.
    pub(super) texts: HashMap<u64, String>,
    /// No text leaves memory, so that each peer gets all of each.
    pub(super) keeps_texts: bool,
    /// The last event there will be, once it is known.
    pub(super) last: Option<u64>,
}

impl Played {
    pub(super) fn is_over(&self, seen: Option<u64>) -> bool {
        self.last.is_some() && seen == self.last
    }
}

/// Appends and tells, in the order in which an actor does.
pub(super) struct Publisher {
    log: Box<dyn SessionLog>,
    feed: SharedFeed,
    random: Random,
    next: u64,
}

fn session() -> SessionId {
    SessionId::new(SESSION).unwrap()
}

fn title(text: &str) -> EventBody {
    let source = TitleSource { kind: "fallback".to_owned() };
    EventBody::SessionTitle(SessionTitle { title: text.to_owned(), message_seqs: Vec::new(), source })
}

impl Publisher {
    /// Makes the log, and the feed that everybody finds.
    pub(super) async fn prepare(store: &MemoryStore, runtime: &Runtime) -> SharedFeed {
        let header = Header { id: session(), created_at: 1, cwd: "/".to_owned(), parent_session: None };
        drop(store.create(header).await.unwrap());
        let feed = runtime.feed(&session()).await.unwrap();
        feed.begin_epoch(EPOCH);
        feed
    }

    pub(super) async fn new(store: &MemoryStore, feed: SharedFeed, random: Random) -> Self {
        let (replay, _nobody) = tokio::sync::mpsc::channel(1);
        let log = store.open(&session(), replay).await.unwrap().log;
        Self { log, feed, random, next: 0 }
    }

    /// Publishes so many events and texts.
    pub(super) async fn publish(mut self, count: u64, played: Arc<Mutex<Played>>) {
        let opened = SessionOpened { epoch: EPOCH, recovered: None };
        self.tell(EventBody::SessionOpened(opened), false, Status::Idle);
        for _ in 0..count {
            for _ in 0..self.random.below(4) {
                turn().await;
            }
            match self.random.below(10) {
                0..4 => self.write(&played).await,
                // The tail is freed, as when a session leaves memory.
                4 if !played.lock().unwrap().keeps_texts => self.feed.rest(),
                _ => self.title(Status::Running),
            }
        }
        self.title(Status::Idle);
        played.lock().unwrap().last = Some(self.next - 1);
    }

    /// A model call: some text, and the message that it stands before.
    async fn write(&mut self, played: &Mutex<Played>) {
        let text = self.feed.text().clone();
        text.begin(1, 1, 1);
        let block = text.start(BlockKind::Text);
        let mut whole = String::new();
        for at in 0..self.random.below(6) {
            let piece = format!("{at}\"\n\u{2028}{}", "t".repeat(self.random.size(300)));
            text.push(block, &piece);
            whole.push_str(&piece);
            if self.random.below(2) == 0 {
                turn().await;
            }
        }
        played.lock().unwrap().texts.insert(self.next, whole);
        self.tell(title("said"), true, Status::Running);
    }

    fn title(&mut self, status: Status) {
        // Now and then one that is larger than all the room.
        let bytes = if self.random.below(12) == 0 { 90_000 } else { self.random.size(900) };
        self.tell(title(&"e".repeat(bytes)), false, status);
    }

    /// In the log first, then told.
    fn tell(&mut self, body: EventBody, seals_text: bool, status: Status) {
        let seq = Seq(self.next);
        self.next += 1;
        let mark = Mark::of(&body);
        let json = Bytes::from(SessionEvent::new(seq, 1, body).encode().unwrap());
        self.log.append(&[Line { seq, json: json.clone() }]).unwrap();
        self.feed.publish(vec![Published { seq, json, mark, seals_text }], status);
    }
}

/// Reads at a pace of its own until all was seen or the connection's life is over.
pub(super) async fn read(
    mut stream: DuplexStream,
    random: &mut Random,
    seen: &mut Seen,
    played: &Mutex<Played>,
    mut life: u64,
) {
    let mut buffer = vec![0; 5000];
    while life > 0 && !played.lock().unwrap().is_over(seen.last) {
        let want = 1 + random.size(5000);
        let Ok(count @ 1..) = stream.read(&mut buffer[..want]).await else { return };
        seen.take(&buffer[..count], played);
        life -= 1;
        for _ in 0..random.below(3) {
            turn().await;
        }
    }
}
