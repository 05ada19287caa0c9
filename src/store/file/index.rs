//! The index of sessions: what a list says of each, in the order of the list, in memory.
//!
//! Built from heads and tails, newest file first, so that the first pages are right long before the index is whole. Logs
//! that this process writes are looked at again at each list. What other processes do is seen by the times of the 256
//! directories (sessions that come and go) at each list, and by looking at every log now and then (those that grow).
//! Called on threads that may wait for the disk.

pub(super) mod entry;
mod summary;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use self::entry::{Digest, Entry, Known, Stamp};
use super::remove;
use crate::event::SessionId;
use crate::store::{ListQuery, Listing, Place, Summary};

/// A directory that changed so recently may change again without its time telling.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Logs that are looked at before others get their turn.
const BATCH: usize = 32;

/// All logs are looked at again when a list is asked for after this, or after so many times as long as it takes.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);
const LOOK_AGAIN_SHARE: u32 = 20;

/// By so much a file's time may be behind that of its last event.
const CLOCK_SLACK_MS: u64 = 1000;

/// The index. Nothing is looked at until somebody asks.
#[derive(Debug)]
pub(super) struct Index {
    sessions: PathBuf,
    state: Mutex<State>,
    /// A thread of its own works on it.
    working: AtomicBool,
    /// Those who wait for a list: that thread lets them go first.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    shelves: HashMap<u8, Shelf>,
    places: BTreeMap<Place, Entry>,
    cwds: HashSet<Arc<str>>,
    /// Logs that are to be looked at, the newest last once they are sorted.
    pending: Vec<Candidate>,
    is_sorted: bool,
    /// Logs that this process writes, or wrote since they were looked at.
    touched: HashSet<SessionId>,
    /// When all logs were last looked at, and how long that took.
    looked: Option<(Instant, Duration)>,
}

#[derive(Debug, Default)]
struct Shelf {
    known: HashMap<Digest, Known>,
    changed: Option<SystemTime>,
    settled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    stamp: Stamp,
    name: [u8; 32],
}

impl Index {
    pub(super) fn new(sessions: PathBuf) -> Self {
        Self {
            sessions,
            state: Mutex::default(),
            working: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        }
    }

    /// This process writes a log, from now until it is not among the `leased` of [`Index::list`].
    pub(super) fn touch(&self, id: &SessionId) {
        self.lock().touched.insert(id.clone());
    }

    /// A session is gone.
    pub(super) fn forget(&self, id: &SessionId) {
        let mut state = self.lock();
        state.touched.remove(id);
        let name = entry::digest(id);
        state.remove(name[0], &entry::short(&name));
    }

    /// A page of the list. `is_leased`: whether this process writes a log.
    pub(super) fn list(
        self: &Arc<Self>,
        query: &ListQuery,
        is_leased: impl Fn(&SessionId) -> bool,
    ) -> io::Result<Listing> {
        let mut state = self.lock_first();
        self.refresh(&mut state, is_leased)?;
        loop {
            let page = state.page(query);
            let newest_ms =
                state.pending.last().map_or(0, |newest| newest.stamp.changed_ms() + CLOCK_SLACK_MS);
            let is_final = page.more && page.sessions.last().is_some_and(|last| last.updated_at > newest_ms);
            if is_final || state.pending.is_empty() {
                return Ok(page);
            }
            self.look_at_some(&mut state);
        }
    }

    /// Every session with its parent and the time of its last event.
    pub(super) fn all(
        self: &Arc<Self>,
        is_leased: impl Fn(&SessionId) -> bool,
    ) -> io::Result<Vec<(SessionId, Option<SessionId>, u64)>> {
        let mut state = self.lock_first();
        self.refresh(&mut state, is_leased)?;
        while !state.pending.is_empty() {
            self.look_at_some(&mut state);
        }
        let all = state.places.iter().rev();
        Ok(all.map(|(place, entry)| (place.id.clone(), entry.parent.clone(), place.updated_at.0)).collect())
    }

    /// Looks at everything on a thread of its own, unless one is at it.
    pub(super) fn work(self: &Arc<Self>) {
        if self.working.swap(true, Ordering::AcqRel) {
            return;
        }
        let index = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("dshd-index".to_owned()).spawn(move || {
            if let Err(error) = index.look_at_all() {
                tracing::warn!(%error, "not all sessions could be looked at");
            }
            index.working.store(false, Ordering::Release);
        });
        if let Err(error) = spawned {
            self.working.store(false, Ordering::Release);
            tracing::warn!(%error, "sessions are looked at when they are asked for");
        }
    }

    fn look_at_all(&self) -> io::Result<()> {
        let began = Instant::now();
        for (shelf, path) in self.shelves()? {
            self.scan(&mut self.lock_last(), shelf, &path);
        }
        // A list that is asked for meanwhile goes first: what it needs, it looks at itself.
        loop {
            let mut state = self.lock_last();
            if state.pending.is_empty() {
                state.looked = Some((Instant::now(), began.elapsed()));
                return Ok(());
            }
            self.look_at_some(&mut state);
        }
    }

    /// Looks at what has come and gone, and at what this process has written.
    fn refresh(
        self: &Arc<Self>,
        state: &mut State,
        is_leased: impl Fn(&SessionId) -> bool,
    ) -> io::Result<()> {
        for (shelf, path) in self.shelves()? {
            let changed = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
            let known = state.shelves.get(&shelf);
            if known.is_none_or(|known| !known.settled || known.changed != changed) {
                self.scan(state, shelf, &path);
            }
        }
        state.sort();
        for id in std::mem::take(&mut state.touched) {
            self.look(state, &entry::digest(&id));
            if is_leased(&id) {
                state.touched.insert(id);
            }
        }
        let again =
            |(at, took): (Instant, Duration)| at.elapsed() > LOOK_AGAIN_AFTER.max(took * LOOK_AGAIN_SHARE);
        if state.looked.is_none_or(again) {
            state.looked = Some((Instant::now(), state.looked.map_or(Duration::ZERO, |(_, took)| took)));
            self.work();
        }
        Ok(())
    }

    fn shelves(&self) -> io::Result<Vec<(u8, PathBuf)>> {
        let shelf = |entry: io::Result<DirEntry>| {
            let entry = entry.ok()?;
            let number = entry::shelf(entry.file_name().to_str()?)?;
            Some((number, entry.path()))
        };
        Ok(fs::read_dir(&self.sessions)?.filter_map(shelf).collect())
    }

    /// Notes which logs of a directory are new or changed, and drops those that are gone.
    fn scan(&self, state: &mut State, number: u8, path: &Path) {
        let changed = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        let Ok(entries) = fs::read_dir(path) else { return };
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        let settled = age.is_some_and(|age| age > SETTLED_AFTER);
        let mut seen = HashSet::new();
        for entry in entries.filter_map(Result::ok) {
            let Some(name) = entry.file_name().to_str().and_then(entry::name) else {
                remove::sweep(&entry.path());
                continue;
            };
            let log = self.path(&name);
            let Ok(metadata) = fs::metadata(&log) else { continue };
            let (stamp, short) = (Stamp::of(&metadata), entry::short(&name));
            seen.insert(short);
            let known = state.shelves.get(&number).and_then(|shelf| shelf.known.get(&short));
            if known.is_none_or(|known| known.stamp != stamp) {
                state.pending.push(Candidate { stamp, name });
                state.is_sorted = false;
            }
        }
        let shelf = state.shelves.entry(number).or_default();
        (shelf.changed, shelf.settled) = (changed, settled);
        let gone: Vec<Digest> = shelf.known.keys().filter(|known| !seen.contains(*known)).copied().collect();
        for short in gone {
            state.remove(number, &short);
        }
    }

    fn look_at_some(&self, state: &mut State) {
        state.sort();
        for _ in 0..BATCH {
            let Some(candidate) = state.pending.pop() else { break };
            self.look(state, &candidate.name);
        }
        if state.pending.is_empty() {
            state.pending = Vec::new();
        }
    }

    /// Looks at a log if it has changed; one that can't be read is left out of the list.
    fn look(&self, state: &mut State, name: &[u8; 32]) {
        let (number, short) = (name[0], entry::short(name));
        let path = self.path(name);
        let Ok(metadata) = fs::metadata(&path) else { return state.remove(number, &short) };
        let stamp = Stamp::of(&metadata);
        let before = state.known(number, &short);
        if before.as_ref().is_some_and(|(known, _)| *known == stamp) {
            return;
        }
        let summary = read(&path, stamp, before).ok().flatten();
        state.remove(number, &short);
        let updated_at = summary.map(|summary| state.insert(summary));
        state.shelves.entry(number).or_default().known.insert(short, Known::new(stamp, updated_at));
    }

    fn path(&self, name: &[u8; 32]) -> PathBuf {
        let name = entry::hex(name);
        self.sessions.join(&name[..2]).join(name).join("log.jsonl")
    }

    /// For those who wait for an answer.
    fn lock_first(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let state = self.lock();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        state
    }

    /// For the thread that nobody waits for: the mutex itself knows no order.
    fn lock_last(&self) -> MutexGuard<'_, State> {
        while self.waiting.load(Ordering::Acquire) > 0 {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.lock()
    }

    /// The state is whole between any two statements that could panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what a log says of itself. What the end of one that has grown no longer shows is still true.
fn read(path: &Path, stamp: Stamp, before: Option<(Stamp, Option<Summary>)>) -> io::Result<Option<Summary>> {
    let file = fs::File::open(path)?;
    let before = before.filter(|(known, _)| known.length <= stamp.length);
    if let Some((known, Some(before))) = &before
        && let Some(grown) = summary::grown(&file, before, known.length, stamp.length)?
    {
        return Ok(Some(grown));
    }
    let mut summary = summary::of(&file, stamp.length)?;
    if let (Some(now), Some((_, Some(before)))) = (&mut summary, before) {
        now.totals = now.totals.or(before.totals);
        now.title = now.title.take().or(before.title);
    }
    Ok(summary)
}

impl State {
    fn sort(&mut self) {
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.pending.sort_unstable_by_key(|candidate| candidate.stamp.changed_ns);
        }
    }

    fn page(&self, query: &ListQuery) -> Listing {
        let wanted = |entry: &Entry| query.cwd.as_deref().is_none_or(|cwd| *entry.cwd == *cwd);
        let after = query.after.as_ref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut found = self.places.range((after, std::ops::Bound::Unbounded));
        let mut page = Listing::default();
        for (place, entry) in found.by_ref().filter(|(_, entry)| wanted(entry)) {
            if page.sessions.len() == query.limit {
                page.more = true;
                break;
            }
            page.sessions.push(entry.summary(place));
        }
        page
    }

    fn known(&self, shelf: u8, short: &Digest) -> Option<(Stamp, Option<Summary>)> {
        let known = self.shelves.get(&shelf)?.known.get(short)?;
        let place = known.updated_at().and_then(|updated_at| self.place(updated_at, short));
        let entry = place.and_then(|place| Some((place, self.places.get(place)?)));
        Some((known.stamp, entry.map(|(place, entry)| entry.summary(place))))
    }

    /// Takes a session into the list. Says when it was last written.
    fn insert(&mut self, summary: Summary) -> u64 {
        let place = Place { updated_at: Reverse(summary.updated_at), id: summary.header.id.clone() };
        let cwd = self.cwds.get(summary.header.cwd.as_str()).cloned().unwrap_or_else(|| {
            let cwd: Arc<str> = summary.header.cwd.as_str().into();
            self.cwds.insert(cwd.clone());
            cwd
        });
        let updated_at = summary.updated_at;
        self.places.insert(place, Entry::new(summary, cwd));
        updated_at
    }

    /// The place of a log that was last written at `updated_at`. An index by name would hold every id twice.
    fn place(&self, updated_at: u64, short: &Digest) -> Option<&Place> {
        let from = Place { updated_at: Reverse(updated_at), id: SessionId::least() };
        let same = self.places.range(from..).take_while(|(place, _)| place.updated_at.0 == updated_at);
        same.map(|(place, _)| place).find(|place| entry::short(&entry::digest(&place.id)) == *short)
    }

    fn remove(&mut self, shelf: u8, short: &Digest) {
        let known = self.shelves.get_mut(&shelf).and_then(|shelf| shelf.known.remove(short));
        let updated_at = known.and_then(|known| known.updated_at());
        let place = updated_at.and_then(|updated_at| self.place(updated_at, short)).cloned();
        let Some(entry) = place.and_then(|place| self.places.remove(&place)) else { return };
        // The set and the entry itself.
        if Arc::strong_count(&entry.cwd) <= 2 {
            self.cwds.remove(&*entry.cwd);
        }
    }
}
