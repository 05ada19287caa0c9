//! What a log says of itself, from its head and its tail, never from the whole file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::super::scan::Lines;
use crate::event::{PermissionMode, Seq, SessionEvent, Totals};
use crate::store::record::{self, Record};
use crate::store::{Header, Summary};

/// Bytes of a log's start that are looked at.
const HEAD_BYTES: usize = 32 * 1024;

/// So far it is looked for a first title, which stands behind the first prompt, which may be long.
const TITLE_WITHIN_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of its end; four times as many until a whole line is in them.
const TAIL_BYTES: u64 = 16 * 1024;

/// So far back it is looked for the end of a turn, which says what was used; and so much that a log has grown by is read
/// on from where it was looked at before.
const TURN_END_WITHIN_BYTES: u64 = 1024 * 1024;

/// Reads the head and the tail. None: it is no log.
pub(super) fn of(file: &File, length: u64) -> io::Result<Option<Summary>> {
    let mut lines = Lines::new(file, 0, HEAD_BYTES);
    let first = lines.next()?.filter(|line| line.whole);
    let Some(header) = first.and_then(|line| record::open_header(line.bytes).ok()) else { return Ok(None) };
    let mut found = Found { header, title: None, last: None, totals: None, mode: None, ended: false };
    while let Some(line) = lines.next()?.filter(|line| line.whole) {
        found.take(line.bytes);
        let enough = if found.title.is_some() { HEAD_BYTES as u64 } else { TITLE_WITHIN_BYTES };
        if line.offset >= enough {
            break;
        }
    }
    found.read_tail(file, length)?;
    Ok(Some(found.summary()))
}

/// Reads on from where a log was looked at before, if that is the end of a line and near.
pub(super) fn grown(file: &File, before: &Summary, from: u64, length: u64) -> io::Result<Option<Summary>> {
    let near = (1..=TURN_END_WITHIN_BYTES).contains(&length.saturating_sub(from));
    let Some(start) = from.checked_sub(1).filter(|_| near) else { return Ok(None) };
    let mut bytes = vec![0; usize::try_from(length - start).unwrap_or(usize::MAX)];
    let read = file.read_at(&mut bytes, start)?;
    let Some(lines) = bytes[..read].strip_prefix(b"\n") else { return Ok(None) };
    let Summary { header, title, totals, mode, last, updated_at } = before.clone();
    let mut found =
        Found { header, title, last: last.map(|seq| (seq, updated_at)), totals, mode, ended: true };
    for line in lines.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n")) {
        found.take(line);
    }
    Ok(Some(found.summary()))
}

struct Found {
    header: Header,
    title: Option<String>,
    last: Option<(Seq, u64)>,
    totals: Option<Totals>,
    mode: Option<PermissionMode>,
    /// The end of a turn was seen.
    ended: bool,
}

impl Found {
    fn summary(self) -> Summary {
        let Self { header, title, last, totals, mode, .. } = self;
        let updated_at = last.map_or(header.created_at, |(_, time)| time);
        Summary { header, title, updated_at, last: last.map(|(seq, _)| seq), totals, mode }
    }

    fn take(&mut self, line: &[u8]) {
        let Some(record) = Record::open(line) else { return };
        let json = record.json();
        if let (Some(seq), Some(time)) = (record.seq(), time_of(&json)) {
            self.last = self.last.max(Some((seq, time)));
        }
        let ends = json.starts_with(b"{\"type\":\"turn/end\"");
        self.ended |= ends;
        let tells = ends
            || json.starts_with(b"{\"type\":\"permission/preset\"")
            || json.starts_with(b"{\"type\":\"session/title\"")
            || json.starts_with(b"{\"type\":\"session/update\"");
        if tells && let Ok(event) = SessionEvent::decode(&json) {
            self.title = event.body.title().map(str::to_owned).or(self.title.take());
            self.totals = event.body.totals().or(self.totals);
            self.mode = event.body.mode().or(self.mode);
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
