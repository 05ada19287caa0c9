//! Reading a log file from front to back: which lines are whole, where they begin, what lies behind the first bad one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::event::{Epoch, Seq};
use crate::store::record::{self, HeaderError, Record};
use crate::store::{Extent, Header, StoreError};

/// Bytes of one read of somebody who reads on.
pub(super) const READ_BYTES: usize = 256 * 1024;

/// Bytes of one read of somebody who wants the header only.
const HEADER_READ_BYTES: usize = 4 * 1024;

/// How the line of a given content ends: checksum, brace, newline.
const MARK_BYTES: usize = 11;

/// An offset is kept each time so many bytes went by.
const STRIDE_BYTES: u64 = 64 * 1024;

/// Reads a file line by line from an offset.
pub(super) struct Lines<'a> {
    file: &'a File,
    /// Where `buffer` begins in the file.
    base: u64,
    buffer: Vec<u8>,
    at: usize,
    read_bytes: usize,
    ended: bool,
}

/// A line and where it lies.
pub(super) struct RawLine<'a> {
    pub(super) offset: u64,
    /// Without its newline.
    pub(super) bytes: &'a [u8],
    /// Whether it had one.
    pub(super) whole: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(file: &'a File, offset: u64, read_bytes: usize) -> Self {
        Self { file, base: offset, buffer: Vec::new(), at: 0, read_bytes, ended: false }
    }

    /// The next line; the last one may lack its end.
    pub(super) fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        let mut searched = self.at;
        let end = loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[searched..]) {
                break Some(searched + found);
            }
            searched = self.buffer.len();
            if self.ended {
                break None;
            }
            let dropped = self.fill()?;
            searched -= dropped;
        };
        let (from, offset) = (self.at, self.base + self.at as u64);
        match end {
            Some(end) => {
                self.at = end + 1;
                Ok(Some(RawLine { offset, bytes: &self.buffer[from..end], whole: true }))
            }
            None if from == self.buffer.len() => Ok(None),
            None => {
                self.at = self.buffer.len();
                Ok(Some(RawLine { offset, bytes: &self.buffer[from..], whole: false }))
            }
        }
    }

    /// Reads more behind what is there; says how many bytes were dropped in front.
    fn fill(&mut self) -> io::Result<usize> {
        let dropped = self.at;
        self.buffer.drain(..dropped);
        self.base += dropped as u64;
        self.at = 0;
        let held = self.buffer.len();
        self.buffer.resize(held + self.read_bytes, 0);
        let read = self.file.read_at(&mut self.buffer[held..], self.base + held as u64);
        let read = match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Ok(0) => {
                self.ended = true;
                0
            }
            read => read?,
        };
        self.buffer.truncate(held + read);
        Ok(dropped)
    }
}

/// What is known of a log's lines up to `end`.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    pub(super) extent: Extent,
    /// Positions with the offsets at which their lines begin, some 64 KiB apart.
    pub(super) offsets: Vec<(Seq, u64)>,
    /// Where the last whole line ends.
    pub(super) end: u64,
    /// The highest position that any line calls durable.
    pub(super) durable: Option<Seq>,
    /// What is wrong with the first bad line, if it is damage rather than a torn tail.
    pub(super) damaged: Option<String>,
    /// The bytes before `end` when they were looked at last.
    mark: Option<[u8; MARK_BYTES]>,
}

impl Map {
    /// What is known of a log whose header ends at `end`.
    pub(super) fn starting_at(end: u64) -> Self {
        Self { end, ..Self::default() }
    }

    /// Whether the file is still the one that is known, as far as it is known. A writer elsewhere takes back whole
    /// lines when a write of several failed half way, and writes others in their place.
    pub(super) fn still_holds(&self, file: &File) -> io::Result<bool> {
        let now = self.mark_of(file)?;
        Ok(self.end > 0 && now.is_some() && (self.mark.is_none() || self.mark == now))
    }

    /// Looks at what `end` is known by.
    pub(super) fn set_mark(&mut self, file: &File) -> io::Result<()> {
        self.mark = self.mark_of(file)?;
        Ok(())
    }

    fn mark_of(&self, file: &File) -> io::Result<Option<[u8; MARK_BYTES]>> {
        let mut mark = [0; MARK_BYTES];
        let read = file.read_exact_at(&mut mark, self.end.saturating_sub(MARK_BYTES as u64));
        match read {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(mark)),
        }
    }

    /// Notes a line that lies at `offset`, ends at `end` and holds `seq`.
    pub(super) fn note(&mut self, seq: Seq, epoch: Option<Epoch>, offset: u64, end: u64) {
        if let Some(epoch) = epoch {
            self.extent.epochs.push((epoch, seq));
        }
        if self.offsets.last().is_none_or(|(_, last)| offset >= last + STRIDE_BYTES) {
            self.offsets.push((seq, offset));
        }
        self.extent.last = Some(seq);
        self.end = end;
    }

    /// The offset of a line at or before that of `seq`.
    pub(super) fn offset_before(&self, seq: Seq) -> Option<u64> {
        let at = self.offsets.partition_point(|(known, _)| *known <= seq);
        self.offsets.get(at.checked_sub(1)?).map(|(_, offset)| *offset)
    }

    /// Reads on from what is known. `each` sees every whole event in order and may refuse it.
    pub(super) fn read_on(
        &mut self,
        file: &File,
        mut each: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> io::Result<()> {
        self.damaged = None;
        let mut lines = Lines::new(file, self.end, READ_BYTES);
        while let Some(line) = lines.next()? {
            let due = Seq::following(self.extent.last);
            let record = match whole_record(&line) {
                Ok(record) => record,
                Err(detail) => {
                    let hole = line.bytes.contains(&0);
                    self.damaged = self.judge(&mut lines, due, hole)?.then_some(detail);
                    return Ok(());
                }
            };
            // A checksum that holds is no torn write: what stands here was meant, so that it is never cut.
            if let Err(detail) = check_seq(&record, due).and_then(|()| each(&record.json())) {
                self.damaged = Some(detail);
                return Ok(());
            }
            let end = line.offset + line.bytes.len() as u64 + 1;
            self.durable = self.durable.max(record.durable);
            self.note(due, record.epoch(), line.offset, end);
        }
        Ok(())
    }

    /// Whether a bad line is damage rather than a torn tail: something behind it, or it itself, was durable. Lines
    /// behind a hole (a page that never reached the disk holds zeros) are part of a torn tail when nothing of it was.
    fn judge(&self, lines: &mut Lines<'_>, bad: Seq, mut hole: bool) -> io::Result<bool> {
        let (mut durable, mut behind) = (self.durable, false);
        while let Some(line) = lines.next()? {
            hole |= line.bytes.contains(&0);
            if let (true, Some(record)) = (line.whole, Record::open(line.bytes)) {
                behind = true;
                durable = durable.max(record.durable);
            }
        }
        Ok(durable >= Some(bad) || (behind && !hole))
    }
}

fn whole_record<'a>(line: &RawLine<'a>) -> Result<Record<'a>, String> {
    if !line.whole {
        return Err("the line has no end".to_owned());
    }
    Record::open(line.bytes).ok_or_else(|| "the checksum does not hold".to_owned())
}

fn check_seq(record: &Record<'_>, due: Seq) -> Result<(), String> {
    match record.seq() {
        Some(seq) if seq == due => Ok(()),
        Some(seq) => Err(format!("it holds seq {seq}")),
        None => Err("it holds no seq".to_owned()),
    }
}

/// A log's header and where it ends; `None`: there is no whole first line, so the log counts as not there.
pub(super) fn read_header(file: &File, path: &str) -> Result<Option<(Header, u64)>, StoreError> {
    let mut lines = Lines::new(file, 0, HEADER_READ_BYTES);
    let line = lines.next().map_err(|error| StoreError::Failed(format!("{path}: {error}")))?;
    let Some(line) = line.filter(|line| line.whole) else { return Ok(None) };
    let end = line.bytes.len() as u64 + 1;
    match record::open_header(line.bytes) {
        Ok(header) => Ok(Some((header, end))),
        Err(HeaderError::Version(version)) => Err(StoreError::Version(version)),
        Err(HeaderError::Damaged) => Err(StoreError::Corrupt {
            path: path.to_owned(),
            seq: Seq(0),
            detail: "the header can't be read".to_owned(),
        }),
    }
}
