//! Group commit: a few threads bring logs to stable storage, each sync covering all that was appended before it.
//!
//! The first failed sync ends it for the whole store: what the kernel has dropped can't be synced again (fsync(2)), so
//! nothing is retried and nothing more is acknowledged.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::disk::Disk;
use crate::metrics::METRICS;
use crate::store::StoreError;

/// Threads that sync, at most.
const THREADS_MAX: usize = 16;

/// A thread that has nothing to do ends after this.
const THREAD_IDLE: Duration = Duration::from_secs(10);

/// A log as the syncing threads see it.
#[derive(Debug)]
pub(super) struct Syncable {
    pub(super) file: File,
    /// Directories that must be synced with the first sync, since the log was just made. They are open already, so that
    /// a lack of descriptors can't be taken for a failed disk.
    fresh: Mutex<Vec<File>>,
    /// Lines written, counted from the log's start; the header is the first.
    written: AtomicU64,
    /// Of these, those on stable storage.
    durable: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// In line for a sync, or in one: a log is in one thread's hands at a time. The kernel tells a failed write-back
    /// once, so of two at once one might acknowledge what the other has heard to be lost.
    queued: bool,
    /// Somebody asked for a sync since the one under way began.
    again: bool,
    waiters: Vec<(u64, oneshot::Sender<Result<(), StoreError>>)>,
}

impl Syncable {
    /// A log of which nothing is known to be on stable storage: a killed daemon may have left it in the page cache.
    pub(super) fn new(file: File, events: u64, fresh: Vec<File>) -> Self {
        Self {
            file,
            fresh: Mutex::new(fresh),
            written: AtomicU64::new(events + 1),
            durable: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Events on stable storage, counted from the log's start.
    pub(super) fn durable_events(&self) -> u64 {
        self.durable().saturating_sub(1)
    }

    /// Says how many events there are now.
    pub(super) fn set_events(&self, events: u64) {
        self.written.store(events + 1, Ordering::Release);
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.durable() < self.written()
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue of logs to sync, and its threads.
#[derive(Debug)]
pub(super) struct Syncer {
    disk: Disk,
    queue: Mutex<Queue>,
    work: Condvar,
    failed: AtomicBool,
    failure: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Queue {
    logs: VecDeque<Arc<Syncable>>,
    threads: usize,
    idle: usize,
}

impl Syncer {
    pub(super) fn new(disk: Disk) -> Arc<Self> {
        Arc::new(Self {
            disk,
            queue: Mutex::default(),
            work: Condvar::new(),
            failed: AtomicBool::new(false),
            failure: OnceLock::new(),
        })
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The first failure.
    pub(super) fn failure(&self) -> Option<String> {
        if self.failed.load(Ordering::Acquire) { self.failure.get().cloned() } else { None }
    }

    /// Storage has failed: for good.
    pub(super) fn fail(&self, reason: String) {
        let _ = self.failure.set(reason);
        self.failed.store(true, Ordering::Release);
    }

    /// Resolves when all that is appended now is on stable storage.
    pub(super) fn barrier(
        self: &Arc<Self>,
        log: &Arc<Syncable>,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        if let Some(reason) = self.failure() {
            return Box::pin(std::future::ready(Err(StoreError::Failed(reason))));
        }
        let target = log.written();
        if log.durable() >= target {
            return Box::pin(std::future::ready(Ok(())));
        }
        let (done, synced) = oneshot::channel();
        log.lock().waiters.push((target, done));
        self.enqueue(log);
        Box::pin(async move {
            synced.await.unwrap_or_else(|_| Err(StoreError::Failed("the syncing thread is gone".to_owned())))
        })
    }

    /// Puts a log in line for a sync.
    pub(super) fn enqueue(self: &Arc<Self>, log: &Arc<Syncable>) {
        {
            let mut waiting = log.lock();
            waiting.again = true;
            if std::mem::replace(&mut waiting.queued, true) {
                return;
            }
        }
        let mut queue = self.lock();
        queue.logs.push_back(log.clone());
        let start = queue.idle < queue.logs.len() && queue.threads < THREADS_MAX;
        if start {
            queue.threads += 1;
        }
        drop(queue);
        if start {
            let syncer = self.clone();
            let spawned = std::thread::Builder::new().name("sync".to_owned()).spawn(move || syncer.run());
            if let Err(error) = spawned {
                self.thread_failed(&error);
            }
        } else {
            self.work.notify_one();
        }
    }

    fn thread_failed(&self, error: &std::io::Error) {
        let mut queue = self.lock();
        queue.threads -= 1;
        if queue.threads == 0 {
            let logs = std::mem::take(&mut queue.logs);
            drop(queue);
            self.fail(format!("no thread to sync with: {error}"));
            for log in &logs {
                self.release(log);
            }
        }
    }

    fn run(&self) {
        while let Some(log) = self.next() {
            log.lock().again = false;
            let target = log.written();
            if self.failure().is_none() && log.durable() < target {
                match self.sync(&log) {
                    Ok(()) => log.durable.store(target, Ordering::Release),
                    Err(error) => self.fail(format!("sync: {error}")),
                }
            }
            self.release(&log);
            let mut waiting = log.lock();
            waiting.queued = waiting.again;
            let again = waiting.queued;
            drop(waiting);
            if again {
                // This thread comes for it next, if no other does.
                self.lock().logs.push_back(log);
            }
        }
    }

    fn sync(&self, log: &Syncable) -> std::io::Result<()> {
        let began = Instant::now();
        self.disk.sync(&log.file)?;
        METRICS.syncs.add(began.elapsed());
        let mut fresh = log.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        fresh.drain(..).try_for_each(|directory| self.disk.sync(&directory))
    }

    /// Answers those whose lines are durable, or everybody when storage has failed.
    fn release(&self, log: &Syncable) {
        let (failure, durable) = (self.failure(), log.durable());
        let mut waiting = log.lock();
        let waiters = std::mem::take(&mut waiting.waiters);
        for (target, done) in waiters {
            match &failure {
                Some(reason) => drop(done.send(Err(StoreError::Failed(reason.clone())))),
                None if target <= durable => drop(done.send(Ok(()))),
                None => waiting.waiters.push((target, done)),
            }
        }
    }

    fn next(&self) -> Option<Arc<Syncable>> {
        let mut queue = self.lock();
        loop {
            if let Some(log) = queue.logs.pop_front() {
                return Some(log);
            }
            queue.idle += 1;
            let (woken, timeout) =
                self.work.wait_timeout(queue, THREAD_IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if timeout.timed_out() && queue.logs.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
