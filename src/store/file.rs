//! Logs as files: JSON lines, one writer each, group commit, recovery.
//!
//! `<data>/sessions/<aa>/<sha256 of the id>/log.jsonl`, 0600 in 0700; beside it `lock`, whose flock is the lease, so
//! that several processes may share a data directory, and `blobs`, a file for each. Nothing here is on the hot path of text: a turn appends some
//! twenty lines.

mod blobs;
mod disk;
mod index;
mod log;
mod maps;
mod remove;
mod scan;
mod sync;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};

use self::disk::Disk;
use self::index::{Index, entry};
use self::log::{FileLog, Lease, SharedMap};
use self::maps::Maps;
use self::scan::{Lines, READ_BYTES};
use self::sync::{Syncable, Syncer};
use super::record::{self, Record};
use super::{
    BlobId, Extent, Header, ListQuery, Listing, Opened, Page, PageLimit, SessionLog, SessionStore, Size,
    StoreError, StoredLine,
};
use crate::event::{Seq, SessionEvent, SessionId};

/// Who may read the disk at once.
const READERS_MAX: usize = 8;

/// Events of one batch of a replay.
const REPLAY_BATCH_EVENTS: usize = 256;

/// Logs in a data directory. Cheap to clone.
#[derive(Clone)]
pub struct FileStore {
    inner: Arc<Inner>,
}

struct Inner {
    sessions: PathBuf,
    /// `sessions` and what is above it, up to the directory that was there before us: what a new log's existence
    /// hangs on.
    roots: Vec<PathBuf>,
    syncer: Arc<Syncer>,
    maps: Maps,
    index: Arc<Index>,
    readers: Arc<Semaphore>,
}

impl FileStore {
    /// Opens the store in a data directory, which is made when missing.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when the directory can't be made.
    pub fn open(data_dir: &Path) -> Result<Self, StoreError> {
        Self::with_disk(data_dir, Disk::default())
    }

    fn with_disk(data_dir: &Path, disk: Disk) -> Result<Self, StoreError> {
        let sessions = data_dir.join("sessions");
        let there = data_dir.ancestors().position(Path::exists).unwrap_or(0);
        let roots = sessions.ancestors().take(there + 2).map(Path::to_path_buf).collect();
        log::make_private(&sessions).map_err(|error| failed(&sessions, &error))?;
        let inner = Inner {
            index: Arc::new(Index::new(sessions.clone())),
            sessions,
            roots,
            syncer: Syncer::new(disk),
            maps: Maps::default(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Looks at all sessions on a thread of its own, so that the first list need not.
    pub fn index_in_background(&self) {
        self.inner.index.work();
    }

    /// Resolves when the store has answered, be it with an error: a sign of life of what it stands on.
    pub async fn answers(&self) {
        let inner = self.inner.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let _ = (inner.syncer.failure(), inner.maps.syncables().len());
            std::fs::metadata(&inner.sessions).is_ok()
        });
        // A panic is an answer, and is logged as one.
        let _ = asked.await;
    }

    /// Runs work that reads the disk: at most eight at once, never on the runtime's own threads.
    fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let permit = inner.readers.clone().acquire_owned().await;
            let worked = tokio::task::spawn_blocking(move || {
                let done = work(&inner);
                drop(permit);
                done
            });
            worked
                .await
                .unwrap_or_else(|error| Err(StoreError::Failed(format!("a reader panicked: {error}"))))
        })
    }
}

impl SessionStore for FileStore {
    fn create(&self, header: Header) -> BoxFuture<'_, Result<Box<dyn SessionLog>, StoreError>> {
        self.reading(move |inner| inner.create(&header))
    }

    fn open(
        &self,
        id: &SessionId,
        replay: mpsc::Sender<Vec<SessionEvent>>,
    ) -> BoxFuture<'_, Result<Opened, StoreError>> {
        let id = id.clone();
        self.reading(move |inner| inner.open(&id, &replay))
    }

    fn extent(&self, id: &SessionId) -> BoxFuture<'_, Result<Extent, StoreError>> {
        let id = id.clone();
        self.reading(move |inner| inner.map(&id).map(|(_, map)| lock(&map).extent.clone()))
    }

    fn read(
        &self,
        id: &SessionId,
        after: Option<Seq>,
        limit: PageLimit,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        let id = id.clone();
        self.reading(move |inner| inner.read(&id, after, limit))
    }

    fn header(&self, id: &SessionId) -> BoxFuture<'_, Result<Header, StoreError>> {
        let id = id.clone();
        self.reading(move |inner| {
            let path = inner.directory(&id).join("log.jsonl");
            let file = open_log(&path)?;
            let header = scan::read_header(&file, &path.display().to_string())?;
            header.map(|(header, _)| header).ok_or(StoreError::NotFound)
        })
    }

    fn remove(&self, id: &SessionId) -> BoxFuture<'_, Result<(), StoreError>> {
        let id = id.clone();
        self.reading(move |inner| inner.remove(&id))
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Listing, StoreError>> {
        self.reading(move |inner| {
            let listing = inner.index.list(&query, |id| inner.maps.leased(id).is_some());
            listing.map_err(|error| failed(&inner.sessions, &error))
        })
    }

    fn children(&self, parent: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>> {
        let parent = parent.clone();
        self.reading(move |inner| {
            let all = inner.all()?.into_iter();
            Ok(all.filter(|(_, of, _)| of.as_ref() == Some(&parent)).map(|(id, ..)| id).collect())
        })
    }

    fn sizes(&self) -> BoxFuture<'_, Result<Vec<Size>, StoreError>> {
        self.reading(|inner| {
            let size = |(id, parent, updated_at)| Size { bytes: inner.bytes(&id), id, parent, updated_at };
            Ok(inner.all()?.into_iter().map(size).collect())
        })
    }

    fn put_blob(&self, id: &SessionId, blob: BlobId, bytes: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        let id = id.clone();
        self.reading(move |inner| inner.put_blob(&id, blob, &bytes))
    }

    fn blob(&self, id: &SessionId, blob: BlobId) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        let id = id.clone();
        self.reading(move |inner| inner.blob(&id, blob))
    }

    fn failure(&self) -> Option<String> {
        self.inner.syncer.failure()
    }

    fn room(&self) -> Option<u64> {
        let file_system = rustix::fs::statvfs(&self.inner.sessions).ok()?;
        Some(file_system.f_bavail.saturating_mul(file_system.f_frsize))
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        let barriers = self.inner.maps.syncables().into_iter().map(|log| self.inner.syncer.barrier(&log));
        let barriers: Vec<_> = barriers.collect();
        Box::pin(async move {
            for done in futures_util::future::join_all(barriers).await {
                done?;
            }
            Ok(())
        })
    }
}

impl Inner {
    fn directory(&self, id: &SessionId) -> PathBuf {
        let name = entry::hex(&entry::digest(id));
        self.sessions.join(&name[..2]).join(&name)
    }

    /// Every session with its parent and the time of its last event, oldest first.
    fn all(&self) -> Result<Vec<(SessionId, Option<SessionId>, u64)>, StoreError> {
        let all = self.index.all(|id| self.maps.leased(id).is_some());
        all.map_err(|error| failed(&self.sessions, &error))
    }

    /// A store that has failed only reads.
    fn refuse_failed(&self) -> Result<(), StoreError> {
        self.syncer.failure().map_or(Ok(()), |reason| Err(StoreError::Failed(reason)))
    }

    fn create(&self, header: &Header) -> Result<Box<dyn SessionLog>, StoreError> {
        self.refuse_failed()?;
        let directory = self.directory(&header.id);
        let path = directory.join("log.jsonl");
        let fail = |error: io::Error| failed(&path, &error);
        let above = directory.parent().unwrap_or(&self.sessions);
        let make = || log::make_private(above).and_then(|()| log::make_private(&directory)).map_err(fail);
        make()?;
        let lease = match Lease::take(&directory) {
            // A session of this id was removed at this moment.
            Err(StoreError::NotFound) => make().and_then(|()| Lease::take(&directory))?,
            lease => lease?,
        };
        let file = log::open_private(&path, true).map_err(fail)?;
        if scan::read_header(&file, &path.display().to_string())?.is_some() {
            return Err(StoreError::Exists);
        }
        let fresh = self.directories(&directory).map_err(fail)?;
        file.set_len(0).map_err(fail)?;
        let mut line = Vec::new();
        record::seal_header(header, &mut line).map_err(|error| StoreError::Failed(error.to_string()))?;
        self.syncer.disk().write(&file, &line).map_err(fail)?;
        let map = scan::Map::starting_at(line.len() as u64);
        Ok(Box::new(self.leased(&header.id, (file, map), fresh, lease, path)))
    }

    fn open(&self, id: &SessionId, replay: &mpsc::Sender<Vec<SessionEvent>>) -> Result<Opened, StoreError> {
        self.refuse_failed()?;
        let directory = self.directory(id);
        let path = directory.join("log.jsonl");
        not_found(&path, std::fs::metadata(&path))?;
        let lease = Lease::take(&directory)?;
        let file = not_found(&path, log::open_private(&path, false))?;
        let fresh = self.directories(&directory).map_err(|error| failed(&path, &error))?;
        let name = path.display().to_string();
        let (header, start) = scan::read_header(&file, &name)?.ok_or(StoreError::NotFound)?;
        let mut map = scan::Map::starting_at(start);
        let mut batch = Vec::new();
        map.read_on(&file, |json| {
            batch.push(SessionEvent::decode(json).map_err(|error| error.to_string())?);
            if batch.len() >= REPLAY_BATCH_EVENTS {
                // Who went away needs no replay; the opening goes on.
                let _ = replay.blocking_send(std::mem::take(&mut batch));
            }
            Ok(())
        })
        .map_err(|error| failed(&path, &error))?;
        refuse_damage(&map, &name)?;
        let _ = replay.blocking_send(batch);
        let length = file.metadata().map_err(|error| failed(&path, &error))?.len();
        let cut_bytes = length.saturating_sub(map.end);
        if cut_bytes > 0 {
            self.syncer.disk().truncate(&file, map.end).map_err(|error| failed(&path, &error))?;
        }
        let extent = map.extent.clone();
        let log = Box::new(self.leased(id, (file, map), fresh, lease, path));
        Ok(Opened { log, header, extent, cut_bytes })
    }

    fn leased(
        &self,
        id: &SessionId,
        (file, map): (File, scan::Map),
        fresh: Vec<File>,
        lease: Lease,
        path: PathBuf,
    ) -> FileLog {
        let events = Seq::following(map.extent.last).0;
        let syncable = Arc::new(Syncable::new(file, events, fresh));
        let lease = Arc::new(lease);
        let map = self.maps.lease(id, map, &lease, &syncable);
        self.index.touch(id);
        FileLog::new(self.syncer.clone(), syncable, map, lease, path)
    }

    /// The directories that a log's existence hangs on, to be synced with it. That of an old one may hang still: who
    /// made it may have been killed before it synced them.
    fn directories(&self, directory: &Path) -> io::Result<Vec<File>> {
        let own = directory.ancestors().take(2);
        own.chain(self.roots.iter().map(PathBuf::as_path)).map(File::open).collect()
    }

    /// A log's file and what is known of its lines, brought up to date.
    fn map(&self, id: &SessionId) -> Result<(File, SharedMap), StoreError> {
        let path = self.directory(id).join("log.jsonl");
        let file = open_log(&path)?;
        if let Some(map) = self.maps.leased(id) {
            return Ok((file, map));
        }
        let name = path.display().to_string();
        let fail = |error: io::Error| failed(&path, &error);
        let map = self.maps.known(id);
        {
            let mut map = lock(&map);
            // What looks like damage may be a writer elsewhere cutting a tail under our eyes: that is looked at again.
            for anew in [false, true] {
                if anew || !map.still_holds(&file).map_err(fail)? {
                    let (_, start) = scan::read_header(&file, &name)?.ok_or(StoreError::NotFound)?;
                    *map = scan::Map::starting_at(start);
                }
                map.read_on(&file, |_| Ok(())).map_err(fail)?;
                if map.damaged.is_none() {
                    break;
                }
            }
            map.set_mark(&file).map_err(fail)?;
            refuse_damage(&map, &name)?;
        }
        Ok((file, map))
    }

    fn read(&self, id: &SessionId, after: Option<Seq>, limit: PageLimit) -> Result<Page, StoreError> {
        let (file, map) = self.map(id)?;
        let first = Seq::following(after);
        let (offset, extent) = {
            let map = lock(&map);
            (map.offset_before(first), map.extent.clone())
        };
        let (Some(offset), Some(last)) = (offset, extent.last.filter(|last| first <= *last)) else {
            return Ok(Page::default());
        };
        let path = || self.directory(id).join("log.jsonl");
        let mut lines = Lines::new(&file, offset, READ_BYTES);
        let (mut page, mut bytes, mut due) = (Page::default(), 0, None);
        while due <= Some(last) {
            let line = lines.next().map_err(|error| failed(&path(), &error))?;
            let record = line.filter(|line| line.whole).and_then(|line| Record::open(line.bytes));
            let found = record.and_then(|record| record.seq().map(|seq| (record, seq)));
            let Some((record, seq)) = found.filter(|(_, seq)| due.is_none_or(|due| due == *seq)) else {
                let seq = due.unwrap_or(first);
                let detail = "it was whole before".to_owned();
                return Err(StoreError::Corrupt { path: path().display().to_string(), seq, detail });
            };
            due = Some(Seq::following(Some(seq)));
            if seq < first {
                continue;
            }
            let json = Bytes::from(record.json());
            if !page.lines.is_empty()
                && (page.lines.len() >= limit.events || bytes + json.len() > limit.bytes)
            {
                page.more = true;
                break;
            }
            bytes += json.len();
            page.lines.push(StoredLine { seq, epoch: extent.epoch_of(seq), json });
        }
        Ok(page)
    }
}

fn open_log(path: &Path) -> Result<File, StoreError> {
    not_found(path, File::open(path))
}

fn not_found<T>(path: &Path, opened: io::Result<T>) -> Result<T, StoreError> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::NotFound),
        opened => opened.map_err(|error| failed(path, &error)),
    }
}

fn refuse_damage(map: &scan::Map, path: &str) -> Result<(), StoreError> {
    match &map.damaged {
        Some(detail) => Err(StoreError::Corrupt {
            path: path.to_owned(),
            seq: Seq::following(map.extent.last),
            detail: detail.clone(),
        }),
        None => Ok(()),
    }
}

fn failed(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{}: {error}", path.display()))
}

fn lock(map: &SharedMap) -> std::sync::MutexGuard<'_, scan::Map> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}
