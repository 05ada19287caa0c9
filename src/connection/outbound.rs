//! What waits to be written on one connection: a queue bounded in bytes.
//!
//! Owned by the connection; replies, subscriptions and notices put finished lines in, the writer takes them out. Room is
//! taken before a line is queued and comes back when it is written. A part of the room is kept for small replies and
//! notices, so that a connection full of events still answers. Room is given in the order in which it was asked for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::metrics::METRICS;

/// Room that only small replies and notices may use.
const RESERVE_BYTES: u32 = 64 * 1024;

/// Replies below this are small.
const SMALL_REPLY_BYTES: usize = 4 * 1024;

/// The connection takes no more lines: it has ended, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection has ended")]
pub(crate) struct Closed;

/// A connection's outbound queue. Cheap to clone; clones are the same queue.
#[derive(Clone, Debug)]
pub(crate) struct Outbound(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: Mutex<Queue>,
    /// Told when a line comes into an empty queue, and when the queue closes.
    ready: Notify,
    room: Arc<Semaphore>,
    room_bytes: u32,
    reserve: Arc<Semaphore>,
    born: Instant,
    /// When a byte last moved, in milliseconds since `born`.
    progress_ms: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Frame>,
    /// Bytes that are queued or with the writer.
    bytes: usize,
    /// Lines with the writer.
    writing: usize,
    closed: bool,
}

/// Room for one line, to be given with it, or for several, to be given out in parts.
#[derive(Debug)]
pub(crate) struct Room {
    permit: OwnedSemaphorePermit,
    /// What a line that is larger than all room takes.
    most: u32,
}

impl Room {
    /// Takes the room of one line out of this; none when it does not hold as much.
    pub(crate) fn part(&mut self, line_bytes: usize) -> Option<Self> {
        let bytes = u32::try_from(line_bytes).unwrap_or(u32::MAX).min(self.most);
        let permit = self.permit.split(bytes as usize)?;
        Some(Self { permit, most: self.most })
    }
}

/// A line on its way, with the room it takes.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) line: Bytes,
    _room: Room,
    _slot: Option<SlotGuard>,
}

/// How much waits on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lag {
    /// Lines that are queued or being written.
    pub(crate) lines: usize,
    /// Their bytes.
    pub(crate) bytes: usize,
    /// Since a byte last moved, or nothing waited.
    pub(crate) still: Duration,
}

impl Outbound {
    /// A queue of at most `bytes` bytes (`limits.outbound_bytes`).
    pub(crate) fn new(bytes: u64) -> Self {
        let room_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_sub(RESERVE_BYTES);
        let room_bytes = room_bytes.max(RESERVE_BYTES);
        Self(Arc::new(Inner {
            queue: Mutex::default(),
            ready: Notify::new(),
            room: semaphore(room_bytes),
            room_bytes,
            reserve: semaphore(RESERVE_BYTES),
            born: Instant::now(),
            progress_ms: AtomicU64::new(0),
        }))
    }

    /// Whether there is room for a good part of what may wait: whoever makes a line only now makes none that waits long.
    pub(crate) fn has_room(&self) -> bool {
        self.0.room.available_permits() >= self.good_part()
    }

    /// Half of the room for events and text.
    pub(crate) fn good_part(&self) -> usize {
        (self.0.room_bytes / 2) as usize
    }

    /// Waits for room for an event or text. A line larger than all the room takes all of it.
    pub(crate) async fn room(&self, line_bytes: usize) -> Result<Room, Closed> {
        let bytes = u32::try_from(line_bytes).unwrap_or(u32::MAX).min(self.0.room_bytes);
        take(&self.0.room, bytes, self.0.room_bytes).await
    }

    /// Queues a reply as soon as there is room: small ones from the reserve, others like events.
    pub(crate) async fn reply(&self, line: impl Into<Bytes>) -> Result<(), Closed> {
        let line = line.into();
        let room = self.reply_room(line.len()).await?;
        self.push(line, room, None)
    }

    /// Waits for room for a reply.
    pub(crate) async fn reply_room(&self, line_bytes: usize) -> Result<Room, Closed> {
        if line_bytes >= SMALL_REPLY_BYTES {
            return self.room(line_bytes).await;
        }
        self.notice_room(line_bytes).await
    }

    /// Queues a notice (a status, an end) as soon as there is room: of the reserve, or what else is free at once.
    pub(crate) async fn notice(&self, line: impl Into<Bytes>) -> Result<(), Closed> {
        let line = line.into();
        let room = self.notice_room(line.len()).await?;
        self.push(line, room, None)
    }

    async fn notice_room(&self, line_bytes: usize) -> Result<Room, Closed> {
        let bytes = u32::try_from(line_bytes).unwrap_or(u32::MAX).min(RESERVE_BYTES);
        let kept = self.0.reserve.clone().try_acquire_many_owned(bytes);
        let free = kept.or_else(|_| self.0.room.clone().try_acquire_many_owned(bytes));
        match free {
            Ok(permit) => Ok(Room { permit, most: RESERVE_BYTES }),
            Err(_) => take(&self.0.reserve, bytes, RESERVE_BYTES).await,
        }
    }

    /// Queues a line for which there is room. `slot` is freed when the line is written.
    pub(crate) fn push(&self, line: Bytes, room: Room, slot: Option<SlotGuard>) -> Result<(), Closed> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(Closed);
        }
        let idle = queue.frames.is_empty();
        if idle && queue.writing == 0 {
            // Nothing waited until now: the time without progress begins here.
            self.moved();
        }
        queue.bytes += line.len();
        queue.frames.push_back(Frame { line, _room: room, _slot: slot });
        drop(queue);
        if idle {
            self.0.ready.notify_one();
        }
        Ok(())
    }

    /// Takes no more lines; what is queued is still written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.0.room.close();
        self.0.reserve.close();
        self.0.ready.notify_one();
    }

    /// Takes no more lines and drops what is queued: the write side is dead.
    pub(super) fn discard(&self) {
        let dropped = {
            let mut queue = self.lock();
            queue.closed = true;
            queue.bytes = 0;
            queue.writing = 0;
            std::mem::take(&mut queue.frames)
        };
        drop(dropped);
        self.close();
    }

    /// How much waits.
    pub(crate) fn lag(&self) -> Lag {
        let queue = self.lock();
        let (lines, bytes) = (queue.frames.len() + queue.writing, queue.bytes);
        drop(queue);
        let progress = Duration::from_millis(self.0.progress_ms.load(Ordering::Relaxed));
        let still = if lines == 0 { Duration::ZERO } else { self.0.born.elapsed().saturating_sub(progress) };
        Lag { lines, bytes, still }
    }

    /// For the writer: waits for lines and takes them in order, `bytes_max` bytes and one line at least. `false`: the
    /// queue is closed and empty. The lines before must have been given back to [`Outbound::written`].
    pub(super) async fn take(&self, batch: &mut Vec<Frame>, bytes_max: usize) -> bool {
        loop {
            {
                let mut queue = self.lock();
                let mut bytes = 0;
                while let Some(frame) = queue.frames.front()
                    && (batch.is_empty() || bytes + frame.line.len() <= bytes_max)
                {
                    bytes += frame.line.len();
                    batch.extend(queue.frames.pop_front());
                }
                queue.writing = batch.len();
                if queue.frames.is_empty() {
                    queue.frames.shrink_to(IDLE_FRAMES);
                }
                if !batch.is_empty() {
                    return true;
                }
                if queue.closed {
                    return false;
                }
            }
            self.0.ready.notified().await;
        }
    }

    /// For the writer: these lines are written; their room comes back.
    pub(super) fn written(&self, batch: &mut Vec<Frame>) {
        let bytes: usize = batch.iter().map(|frame| frame.line.len()).sum();
        METRICS.bytes_out.add(bytes as u64);
        {
            let mut queue = self.lock();
            queue.bytes = queue.bytes.saturating_sub(bytes);
            queue.writing = 0;
        }
        batch.clear();
    }

    /// For the writer: a byte moved.
    pub(super) fn moved(&self) {
        let now_ms = u64::try_from(self.0.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.progress_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Room that is free now, for events and in reserve.
    #[cfg(test)]
    pub(super) fn free(&self) -> (usize, usize) {
        (self.0.room.available_permits(), self.0.reserve.available_permits())
    }

    /// All of it.
    #[cfg(test)]
    pub(super) fn whole(&self) -> (usize, usize) {
        (self.0.room_bytes as usize, RESERVE_BYTES as usize)
    }

    /// The queue is whole between any two statements that could panic.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Places that an empty queue keeps, so that a busy connection does not allocate and an idle one holds little.
const IDLE_FRAMES: usize = 32;

fn semaphore(permits: u32) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits as usize))
}

async fn take(semaphore: &Arc<Semaphore>, bytes: u32, most: u32) -> Result<Room, Closed> {
    if let Ok(permit) = semaphore.clone().try_acquire_many_owned(bytes) {
        return Ok(Room { permit, most });
    }
    let taken = semaphore.clone().acquire_many_owned(bytes).await;
    taken.map(|permit| Room { permit, most }).map_err(|_| Closed)
}

/// At most one line of text of a subscription is on its way: this is its place.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    taken: AtomicBool,
    freed: Notify,
}

/// The place is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard(Arc<Slot>);

impl Slot {
    /// Whether the place is free.
    pub(crate) fn is_free(&self) -> bool {
        !self.taken.load(Ordering::Acquire)
    }

    /// Takes the place. Only the subscription does, after it saw the place free.
    pub(crate) fn take(self: &Arc<Self>) -> SlotGuard {
        self.taken.store(true, Ordering::Release);
        SlotGuard(Arc::clone(self))
    }

    /// Completes when the place has become free since it was last awaited.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const TOTAL: u64 = 256 * 1024;
    const ROOM: usize = 192 * 1024;

    fn line(bytes: usize) -> Bytes {
        Bytes::from(vec![b'x'; bytes])
    }

    async fn event(outbound: &Outbound, bytes: usize) {
        let room = outbound.room(bytes).await.unwrap();
        outbound.push(line(bytes), room, None).unwrap();
    }

    async fn taken(outbound: &Outbound) -> Vec<Frame> {
        let mut batch = Vec::new();
        assert!(outbound.take(&mut batch, 64 * 1024).await);
        batch
    }

    #[tokio::test]
    async fn events_wait_for_room_and_get_it_when_lines_are_written() {
        let outbound = Outbound::new(TOTAL);
        event(&outbound, ROOM).await;
        assert!(outbound.room(1).now_or_never().is_none());
        let mut batch = taken(&outbound).await;
        assert!(outbound.room(1).now_or_never().is_none(), "a line that is being written takes its room");
        outbound.written(&mut batch);
        assert!(outbound.room(ROOM).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_small_reply_has_room_when_events_have_none() {
        let outbound = Outbound::new(TOTAL);
        event(&outbound, ROOM).await;
        assert!(outbound.reply(line(100)).now_or_never().is_some());
        assert!(outbound.reply(line(SMALL_REPLY_BYTES)).now_or_never().is_none());
        assert_eq!(outbound.lag().lines, 2);
    }

    #[tokio::test]
    async fn replies_that_nobody_reads_run_out_of_room() {
        let outbound = Outbound::new(TOTAL);
        for _ in 0..TOTAL / 1024 {
            assert!(outbound.reply(line(1024)).now_or_never().is_some());
        }
        assert!(outbound.reply(line(1024)).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_line_larger_than_all_room_takes_all_of_it() {
        let outbound = Outbound::new(TOTAL);
        event(&outbound, 10 * ROOM).await;
        assert!(outbound.room(1).now_or_never().is_none());
        let mut batch = taken(&outbound).await;
        assert_eq!(batch.len(), 1);
        outbound.written(&mut batch);
        assert!(outbound.room(1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn room_is_given_in_the_order_in_which_it_was_asked_for() {
        let outbound = Outbound::new(TOTAL);
        event(&outbound, ROOM).await;
        let mut large = std::pin::pin!(outbound.room(ROOM));
        let mut small = std::pin::pin!(outbound.room(1));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(small.as_mut().now_or_never().is_none());
        outbound.written(&mut taken(&outbound).await);
        assert!(small.as_mut().now_or_never().is_none(), "the small one came second");
        drop(large.await.unwrap());
        assert!(small.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_batch_is_bounded_in_bytes_and_keeps_the_order() {
        let outbound = Outbound::new(TOTAL);
        for bytes in [30_000, 30_000, 30_000] {
            event(&outbound, bytes).await;
        }
        assert_eq!(taken(&outbound).await.len(), 2);
        assert_eq!(taken(&outbound).await.len(), 1);
    }

    #[tokio::test]
    async fn a_closed_queue_gives_what_it_has_and_then_ends() {
        let outbound = Outbound::new(TOTAL);
        event(&outbound, 10).await;
        outbound.close();
        assert_eq!(outbound.reply(line(1)).await, Err(Closed));
        assert_eq!(outbound.room(1).await.unwrap_err(), Closed);
        let mut batch = taken(&outbound).await;
        outbound.written(&mut batch);
        assert!(!outbound.take(&mut batch, 1).await);
    }

    #[tokio::test]
    async fn those_who_wait_for_room_learn_of_the_end() {
        let outbound = Outbound::new(TOTAL);
        event(&outbound, ROOM).await;
        let mut waiting = std::pin::pin!(outbound.room(1));
        assert!(waiting.as_mut().now_or_never().is_none());
        outbound.discard();
        assert_eq!(waiting.await.unwrap_err(), Closed);
        assert_eq!(outbound.lag(), Lag::default());
    }

    #[tokio::test]
    async fn a_slot_is_free_again_when_its_line_is_written() {
        let outbound = Outbound::new(TOTAL);
        let slot = Arc::new(Slot::default());
        let room = outbound.room(1).await.unwrap();
        outbound.push(line(1), room, Some(slot.take())).unwrap();
        assert!(!slot.is_free());
        outbound.written(&mut taken(&outbound).await);
        slot.freed().await;
        assert!(slot.is_free());
    }
}
