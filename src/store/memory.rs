//! Logs in memory, for tests and for embedders that keep nothing. The same rules as on disk: one writer a session.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::{
    BlobId, Extent, Header, Line, ListQuery, Listing, Opened, Page, PageLimit, Place, SessionLog,
    SessionStore, Size, StoreError, StoredLine, Summary,
};
use crate::event::{PermissionMode, Seq, SessionEvent, SessionId, Totals};

/// Logs in memory. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    logs: Arc<Mutex<HashMap<SessionId, Arc<Log>>>>,
}

#[derive(Debug)]
struct Log {
    header: Header,
    leased: AtomicBool,
    written: Mutex<Written>,
    blobs: Mutex<HashMap<BlobId, Bytes>>,
}

#[derive(Debug, Default)]
struct Written {
    lines: Vec<Bytes>,
    extent: Extent,
    updated_at: u64,
    title: Option<String>,
    totals: Option<Totals>,
    mode: Option<PermissionMode>,
}

struct MemoryLog(Arc<Log>);

impl Drop for MemoryLog {
    fn drop(&mut self) {
        self.0.leased.store(false, Ordering::Release);
    }
}

impl Log {
    fn lease(self: &Arc<Self>) -> Result<Box<dyn SessionLog>, StoreError> {
        if self.leased.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Locked { pid: std::process::id() });
        }
        Ok(Box::new(MemoryLog(self.clone())))
    }

    fn bytes(&self) -> u64 {
        let lines: usize = self.written().lines.iter().map(Bytes::len).sum();
        let blobs: usize = self.blobs().values().map(Bytes::len).sum();
        (lines + blobs) as u64
    }

    fn blobs(&self) -> MutexGuard<'_, HashMap<BlobId, Bytes>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written {
    /// Reads the lines that are to follow, if they do follow.
    fn check(&self, lines: &[Line]) -> Result<Vec<SessionEvent>, StoreError> {
        let due = (Seq::following(self.extent.last).0..).map(Seq);
        let checked = due.zip(lines).map(|(expected, line)| {
            if line.seq != expected {
                return Err(StoreError::OutOfOrder { offered: line.seq, expected });
            }
            SessionEvent::decode(&line.json).map_err(|error| StoreError::Failed(error.to_string()))
        });
        checked.collect()
    }

    fn push(&mut self, line: &Line, event: &SessionEvent) {
        self.extent.epochs.extend(event.body.opened_epoch().map(|epoch| (epoch, line.seq)));
        self.title = event.body.title().map(str::to_owned).or(self.title.take());
        self.totals = event.body.totals().or(self.totals);
        self.mode = event.body.mode().or(self.mode);
        self.updated_at = event.time_ms;
        self.extent.last = Some(line.seq);
        self.lines.push(line.json.clone());
    }
}

impl SessionLog for MemoryLog {
    fn append(&mut self, lines: &[Line]) -> Result<(), StoreError> {
        let mut written = self.0.written();
        let events = written.check(lines)?;
        lines.iter().zip(&events).for_each(|(line, event)| written.push(line, event));
        Ok(())
    }

    fn barrier(&self) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl MemoryStore {
    fn find(&self, id: &SessionId) -> Result<Arc<Log>, StoreError> {
        self.lock().get(id).cloned().ok_or(StoreError::NotFound)
    }

    /// All sessions in the order of the list.
    fn summaries(&self) -> Vec<Summary> {
        let summary = |log: &Arc<Log>| {
            let written = log.written();
            Summary {
                header: log.header.clone(),
                title: written.title.clone(),
                updated_at: written.updated_at.max(log.header.created_at),
                last: written.extent.last,
                totals: written.totals,
                mode: written.mode,
            }
        };
        let mut listed: Vec<Summary> = self.lock().values().map(summary).collect();
        listed.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.header.id.cmp(&b.header.id)));
        listed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Log>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for MemoryStore {
    fn create(&self, header: Header) -> BoxFuture<'_, Result<Box<dyn SessionLog>, StoreError>> {
        let mut logs = self.lock();
        let created = if logs.contains_key(&header.id) {
            Err(StoreError::Exists)
        } else {
            let id = header.id.clone();
            let log = Arc::new(Log {
                header,
                leased: AtomicBool::new(false),
                written: Mutex::default(),
                blobs: Mutex::default(),
            });
            logs.insert(id, log.clone());
            log.lease()
        };
        Box::pin(std::future::ready(created))
    }

    fn open(
        &self,
        id: &SessionId,
        replay: mpsc::Sender<Vec<SessionEvent>>,
    ) -> BoxFuture<'_, Result<Opened, StoreError>> {
        let found = self.find(id);
        Box::pin(async move {
            let log = found?;
            let leased = log.lease()?;
            let (events, extent) = {
                let written = log.written();
                let events: Vec<_> =
                    written.lines.iter().filter_map(|json| SessionEvent::decode(json).ok()).collect();
                (events, written.extent.clone())
            };
            // Who went away needs no replay; the opening goes on.
            let _ = replay.send(events).await;
            Ok(Opened { log: leased, header: log.header.clone(), extent, cut_bytes: 0 })
        })
    }

    fn extent(&self, id: &SessionId) -> BoxFuture<'_, Result<Extent, StoreError>> {
        let extent = self.find(id).map(|log| log.written().extent.clone());
        Box::pin(std::future::ready(extent))
    }

    fn read(
        &self,
        id: &SessionId,
        after: Option<Seq>,
        limit: PageLimit,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        let page = self.find(id).map(|log| {
            let written = log.written();
            let (mut page, mut bytes) = (Page::default(), 0);
            for (seq, json) in (0..).map(Seq).zip(&written.lines).skip_while(|(seq, _)| Some(*seq) <= after) {
                if !page.lines.is_empty()
                    && (page.lines.len() >= limit.events || bytes + json.len() > limit.bytes)
                {
                    page.more = true;
                    break;
                }
                bytes += json.len();
                page.lines.push(StoredLine { seq, epoch: written.extent.epoch_of(seq), json: json.clone() });
            }
            page
        });
        Box::pin(std::future::ready(page))
    }

    fn header(&self, id: &SessionId) -> BoxFuture<'_, Result<Header, StoreError>> {
        let header = self.find(id).map(|log| log.header.clone());
        Box::pin(std::future::ready(header))
    }

    fn remove(&self, id: &SessionId) -> BoxFuture<'_, Result<(), StoreError>> {
        let removed = self.lock().remove(id).map(drop).ok_or(StoreError::NotFound);
        Box::pin(std::future::ready(removed))
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Listing, StoreError>> {
        let mut sessions: Vec<Summary> = self.summaries();
        sessions.retain(|one| query.cwd.as_ref().is_none_or(|cwd| one.header.cwd == *cwd));
        let place = |one: &Summary| Place { updated_at: Reverse(one.updated_at), id: one.header.id.clone() };
        sessions.retain(|one| query.after.as_ref().is_none_or(|after| place(one) > *after));
        let more = sessions.len() > query.limit;
        sessions.truncate(query.limit);
        Box::pin(std::future::ready(Ok(Listing { sessions, more })))
    }

    fn children(&self, parent: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>> {
        let all = self.summaries().into_iter().map(|one| one.header);
        let children =
            all.filter(|header| header.parent_session.as_ref() == Some(parent)).map(|header| header.id);
        Box::pin(std::future::ready(Ok(children.collect())))
    }

    fn sizes(&self) -> BoxFuture<'_, Result<Vec<Size>, StoreError>> {
        let size = |one: Summary| {
            let Header { id, parent_session: parent, .. } = one.header;
            let bytes = self.find(&id).map_or(0, |log| log.bytes());
            Size { id, parent, updated_at: one.updated_at, bytes }
        };
        let sizes = self.summaries().into_iter().rev().map(size).collect();
        Box::pin(std::future::ready(Ok(sizes)))
    }

    fn put_blob(&self, id: &SessionId, blob: BlobId, bytes: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        let put = self.find(id).map(|log| drop(log.blobs().insert(blob, bytes)));
        Box::pin(std::future::ready(put))
    }

    fn blob(&self, id: &SessionId, blob: BlobId) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        let found = self.find(id).map(|log| log.blobs().get(&blob).cloned());
        Box::pin(std::future::ready(found))
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
