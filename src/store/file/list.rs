//! The list of sessions: heads and tails of logs, never whole files, remembered until a file changes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::scan::Lines;
use crate::event::{Seq, SessionEvent, Totals};
use crate::store::record::{self, Record};
use crate::store::{Header, Summary};

/// Bytes of a log's start that are looked at.
const HEAD_BYTES: usize = 32 * 1024;

/// So far it is looked for a first title, which stands behind the first prompt, which may be long.
const TITLE_WITHIN_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of its end; four times as many until a whole line is in them.
const TAIL_BYTES: u64 = 16 * 1024;

/// So far back it is looked for the end of a turn, which says what was used.
const TURN_END_WITHIN_BYTES: u64 = 1024 * 1024;

/// What is remembered of each log.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    /// Length and time of last change, which tell whether it is still true.
    stamp: (u64, i64, i64),
    summary: Option<Summary>,
}

impl Summaries {
    /// All sessions, newest first.
    pub(super) fn list(&self, sessions: &Path) -> io::Result<Vec<Summary>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut current = HashMap::with_capacity(known.len());
        let mut listed = Vec::with_capacity(known.len());
        for shelf in fs::read_dir(sessions)? {
            let Ok(shelf) = fs::read_dir(shelf?.path()) else { continue };
            for directory in shelf {
                let directory = directory?;
                let name = directory.file_name().to_string_lossy().into_owned();
                let before = known.remove(&name);
                let Some(entry) = look(&directory.path().join("log.jsonl"), before) else { continue };
                listed.extend(entry.summary.clone());
                current.insert(name, entry);
            }
        }
        *known = current;
        listed.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.header.id.cmp(&b.header.id)));
        Ok(listed)
    }
}

/// What a log says of itself; one that can't be read is left out of the list.
fn look(path: &Path, before: Option<Known>) -> Option<Known> {
    let metadata = fs::metadata(path).ok()?;
    let stamp = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    if before.as_ref().is_some_and(|before| before.stamp == stamp) {
        return before;
    }
    let mut summary = File::open(path).and_then(|file| summarize(&file, metadata.len())).ok()?;
    // What the end of a log that has grown no longer shows is still true.
    let before = before.filter(|before| before.stamp.0 <= stamp.0).and_then(|before| before.summary);
    if let (Some(now), Some(before)) = (&mut summary, before) {
        now.totals = now.totals.or(before.totals);
        now.title = now.title.take().or(before.title);
    }
    Some(Known { stamp, summary })
}

fn summarize(file: &File, length: u64) -> io::Result<Option<Summary>> {
    let mut lines = Lines::new(file, 0, HEAD_BYTES);
    let first = lines.next()?.filter(|line| line.whole);
    let Some(header) = first.and_then(|line| record::open_header(line.bytes).ok()) else { return Ok(None) };
    let mut found = Found { header, title: None, last: None, totals: None, ended: false };
    while let Some(line) = lines.next()?.filter(|line| line.whole) {
        found.take(line.bytes);
        let enough = if found.title.is_some() { HEAD_BYTES as u64 } else { TITLE_WITHIN_BYTES };
        if line.offset >= enough {
            break;
        }
    }
    found.read_tail(file, length)?;
    let Found { header, title, last, totals, .. } = found;
    let updated_at = last.map_or(header.created_at, |(_, time)| time);
    Ok(Some(Summary { header, title, updated_at, last: last.map(|(seq, _)| seq), totals }))
}

struct Found {
    header: Header,
    title: Option<String>,
    last: Option<(Seq, u64)>,
    totals: Option<Totals>,
    /// The end of a turn was seen.
    ended: bool,
}

impl Found {
    fn take(&mut self, line: &[u8]) {
        let Some(record) = Record::open(line) else { return };
        let json = record.json();
        if let (Some(seq), Some(time)) = (record.seq(), time_of(&json)) {
            self.last = self.last.max(Some((seq, time)));
        }
        let ends = json.starts_with(b"{\"type\":\"turn/end\"");
        self.ended |= ends;
        let tells = ends
            || json.starts_with(b"{\"type\":\"session/title\"")
            || json.starts_with(b"{\"type\":\"session/update\"");
        if tells && let Ok(event) = SessionEvent::decode(&json) {
            self.title = event.body.title().map(str::to_owned).or(self.title.take());
            self.totals = event.body.totals().or(self.totals);
        }
    }

    /// Reads backwards until a whole line was seen, and the end of a turn if there is one near.
    fn read_tail(&mut self, file: &File, length: u64) -> io::Result<()> {
        let mut want = TAIL_BYTES;
        loop {
            let from = length.saturating_sub(want);
            let mut tail = vec![0; usize::try_from(length - from).unwrap_or(usize::MAX)];
            let read = file.read_at(&mut tail, from)?;
            tail.truncate(read);
            let whole = if from == 0 { Some(0) } else { memchr::memchr(b'\n', &tail).map(|at| at + 1) };
            let lines = whole.map_or(&[][..], |at| &tail[at..]).split_inclusive(|byte| *byte == b'\n');
            let mut any = false;
            for line in lines.filter_map(|line| line.strip_suffix(b"\n")) {
                any = true;
                self.take(line);
            }
            if from == 0 || (any && (self.ended || want >= TURN_END_WITHIN_BYTES)) {
                return Ok(());
            }
            want *= 4;
        }
    }
}

/// An event's time: our encoder writes it behind `seq`.
fn time_of(json: &[u8]) -> Option<u64> {
    const MARK: &[u8] = b",\"time\":";
    let at = memchr::memmem::find(json, MARK)? + MARK.len();
    let digits = json[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&json[at..at + digits]).ok()?.parse().ok()
}
