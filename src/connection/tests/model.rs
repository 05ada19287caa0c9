//! The whole way of an event from a session's log to a peer, under a scheduler that a seed decides: the hand-over between
//! the feed's tail and the file, and the accounting of room, places and pages. The publisher, the subscriptions, the writers
//! and the peers are futures that are polled one at a time in an order drawn from the seed; a failure names its seed.

mod player;
mod scheduler;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::player::{Played, Publisher};
use self::scheduler::{Random, Scheduler};
use super::super::follows::Follows;
use super::super::outbound::{Outbound, Slot};
use super::super::subscription::{Common, Progress, Subscription};
use super::super::{framing, writer};
use crate::event::{Epoch, Seq};
use crate::handler::testing::House;
use crate::runtime::Runtime;
use crate::session::feed::{SharedFeed, Start};
use crate::shutdown::Scope;

/// Orders that are tried.
const SEEDS: u64 = 150;

/// Room of a connection beside its reserve.
const ROOM: u64 = 64 * 1024;

/// The world of one seed.
struct World {
    house: House,
    feed: SharedFeed,
    readers: Arc<Semaphore>,
    scope: Scope,
}

/// What a peer has read, over all of its connections.
#[derive(Debug, Default)]
struct Seen {
    epoch: u64,
    last: Option<u64>,
    /// The text of the attempt that is under way, as this connection was told it.
    text: String,
    statuses: Vec<String>,
    bytes: Vec<u8>,
}

impl Seen {
    /// Takes what a read gave; checks every whole line.
    fn take(&mut self, bytes: &[u8], played: &Mutex<Played>) {
        self.bytes.extend_from_slice(bytes);
        while let Some(end) = memchr::memchr(b'\n', &self.bytes) {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            let params = &line["params"];
            match line["method"].as_str() {
                Some("session.status") => self.statuses.push(params["status"].as_str().unwrap().to_owned()),
                Some("session.event") => self.event(params, &played.lock().unwrap()),
                _ => assert!(line["id"].is_u64(), "{line}"),
            }
        }
    }

    fn event(&mut self, params: &serde_json::Value, played: &Played) {
        let event = &params["event"];
        let chunk = &event["data"]["chunk"];
        match chunk["type"].as_str() {
            Some("block-start") => self.text.clear(),
            Some("text-delta") => self.text.push_str(chunk["text"].as_str().unwrap()),
            _ => {}
        }
        let Some(seq) = event["seq"].as_u64() else { return };
        assert_eq!(Some(seq), self.last.map_or(Some(0), |last| Some(last + 1)), "dense and in order");
        self.epoch = params["epoch"].as_u64().unwrap();
        self.last = Some(seq);
        if let Some(whole) = played.texts.get(&seq) {
            // The rest of a text is left out when it has left memory; what was told of it is still its beginning.
            assert!(whole.starts_with(&self.text), "seq {seq}: {:?} of {whole:?}", self.text);
            if played.keeps_texts {
                assert_eq!(&self.text, whole, "seq {seq}: a peer that keeps up gets all of it");
            }
            self.text.clear();
        }
    }

    fn start(&self) -> Start {
        self.last.map_or(Start::Beginning, |seq| Start::After(Epoch(self.epoch), Seq(seq)))
    }
}

impl World {
    async fn new(feed_bytes: u64) -> Self {
        let house = House::new("", framing(), |config| config.limits.feed_bytes.0 = feed_bytes);
        let feed = Publisher::prepare(&house.store, &house.shared.runtime).await;
        Self { house, feed, readers: Arc::new(Semaphore::new(2)), scope: Scope::new() }
    }

    fn runtime(&self) -> &Runtime {
        &self.house.shared.runtime
    }

    /// One peer: it connects, follows from where it is, is cut after a while, connects again, until it has seen `last`.
    async fn peer(&self, mut random: Random, played: Arc<Mutex<Played>>) {
        let mut seen = Seen::default();
        while !played.lock().unwrap().is_over(seen.last) {
            let outbound = Outbound::new(ROOM + 64 * 1024);
            let life = if random.below(3) == 0 { u64::MAX } else { random.below(400) };
            self.connection(&mut random, &outbound, &mut seen, &played, life).await;
            assert_eq!(outbound.free(), outbound.whole(), "all room came back");
            // Half a line of a connection that was cut is lost with it; so is the text that was told on it.
            seen.bytes.clear();
            seen.text.clear();
        }
    }

    async fn connection(
        &self,
        random: &mut Random,
        outbound: &Outbound,
        seen: &mut Seen,
        played: &Arc<Mutex<Played>>,
        life: u64,
    ) {
        let slot = Arc::new(Slot::default());
        let page = Arc::new(Semaphore::new(1));
        let subscription = self.subscription(outbound, seen.start(), slot.clone(), page.clone());
        let (theirs, ours) = tokio::io::duplex(1 + random.size(3000));
        let input_over = CancellationToken::new();
        let replies = random.size(20);
        let replies = async {
            // Replies share the queue with events and have room of their own.
            for id in 0..replies {
                let line = format!("{{\"id\":{id},\"x\":\"{}\"}}\n", "r".repeat(id * 701 % 9000));
                if outbound.reply(Bytes::from(line)).await.is_err() {
                    return;
                }
                scheduler::turn().await;
            }
        };
        let mut reading = random.fork();
        let read = player::read(theirs, &mut reading, seen, played, life);
        {
            let written = writer::write_all(ours, outbound, None, &input_over);
            let mut work = std::pin::pin!(async { tokio::join!(subscription.run(), replies, written) });
            tokio::select! {
                _ = &mut work => {}
                () = read => {}
            }
        }
        // The connection is gone, and with it everything that stood for it.
        outbound.discard();
        assert!(slot.is_free(), "the place of a delta is free");
        assert_eq!(page.available_permits(), 1, "the page is given back");
    }

    fn subscription(
        &self,
        outbound: &Outbound,
        start: Start,
        slot: Arc<Slot>,
        page: Arc<Semaphore>,
    ) -> Subscription {
        let common = Common {
            runtime: self.runtime().clone(),
            outbound: outbound.clone(),
            readers: self.readers.clone(),
            page,
            clock: Arc::default(),
            draining: CancellationToken::new(),
        };
        let config = self.house.shared.config.clone();
        let follows =
            Follows::new(common.clone(), config, self.house.shared.holders.clone(), self.scope.clone());
        let cursor = self.feed.cursor(start, true).expect("a cursor of this history");
        let progress = Arc::new(Progress::at(cursor.after()));
        Subscription {
            common,
            follows,
            feed: self.feed.clone(),
            cursor,
            tree: false,
            progress,
            slot,
            next_bytes: 0,
        }
    }
}

fn play(seed: u64, keeps_texts: bool) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async move {
        let mut random = Random::new(seed);
        // A tail of a few events, so that most are read from the file; or one that holds everything.
        let feed_bytes = if keeps_texts { 16 << 20 } else { 300 + random.below(8000) };
        let world = World::new(feed_bytes).await;
        let played = Arc::new(Mutex::new(Played { keeps_texts, ..Played::default() }));
        let publisher = Publisher::new(&world.house.store, world.feed.clone(), random.fork()).await;
        let mut scheduler = Scheduler::new(random.fork());
        scheduler.add(publisher.publish(60 + random.below(60), played.clone()));
        for _ in 0..=random.below(4) {
            scheduler.add(world.peer(random.fork(), played.clone()));
        }
        let done = tokio::time::timeout(std::time::Duration::from_hours(1), scheduler).await;
        assert!(done.is_ok(), "nothing moves any more");
        assert_eq!(world.readers.available_permits(), 2, "all readers of the store came back");
    });
}

/// Plays every seed and names the one that fails.
fn play_all(keeps_texts: bool) {
    for seed in 0..SEEDS {
        let played = std::panic::catch_unwind(|| play(seed, keeps_texts));
        assert!(played.is_ok(), "seed {seed}");
    }
}

#[test]
fn in_every_order_each_peer_sees_all_events_once_and_all_room_comes_back() {
    play_all(false);
}

#[test]
fn in_every_order_the_deltas_of_a_connection_are_the_text() {
    play_all(true);
}
