//! Reading a log file from front to back: which lines are whole, where they begin, what lies behind the first bad one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::event::{Epoch, Seq};
use crate::store::record::{self, HeaderError, Record};
use crate::store::{Extent, Header, StoreError};

/// Bytes of one read.
const READ_BYTES: usize = 256 * 1024;

/// An offset is kept each time so many bytes went by.
const STRIDE_BYTES: u64 = 64 * 1024;

/// Reads a file line by line from an offset.
pub(super) struct Lines<'a> {
    file: &'a File,
    /// Where `buffer` begins in the file.
    base: u64,
    buffer: Vec<u8>,
    at: usize,
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
    pub(super) fn new(file: &'a File, offset: u64) -> Self {
        Self { file, base: offset, buffer: Vec::new(), at: 0, ended: false }
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
        self.buffer.resize(held + READ_BYTES, 0);
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
    /// Whether whole lines lie behind a bad one.
    pub(super) damaged: Option<String>,
}

impl Map {
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

    /// The life in which `seq` was written.
    pub(super) fn epoch_of(&self, seq: Seq) -> Epoch {
        let at = self.extent.epochs.partition_point(|(_, first)| *first <= seq);
        let epoch = at.checked_sub(1).and_then(|at| self.extent.epochs.get(at));
        epoch.map_or(Epoch(0), |(epoch, _)| *epoch)
    }

    /// Reads on from what is known. `each` sees every whole event in order and may refuse it.
    pub(super) fn read_on(
        &mut self,
        file: &File,
        mut each: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> io::Result<()> {
        self.damaged = None;
        let mut lines = Lines::new(file, self.end);
        while let Some(line) = lines.next()? {
            let due = Seq::following(self.extent.last);
            let found = check(&line, due).and_then(|record| {
                let json = record.json();
                each(&json)?;
                Ok((record.epoch(), record.durable))
            });
            match found {
                Ok((epoch, durable)) => {
                    let end = line.offset + line.bytes.len() as u64 + 1;
                    self.durable = self.durable.max(durable);
                    self.note(due, epoch, line.offset, end);
                }
                Err(detail) => {
                    let hole = line.bytes.contains(&0);
                    self.damaged = self.judge(&mut lines, due, hole)?.then_some(detail);
                    return Ok(());
                }
            }
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

fn check<'a>(line: &RawLine<'a>, due: Seq) -> Result<Record<'a>, String> {
    if !line.whole {
        return Err("the line has no end".to_owned());
    }
    let record = Record::open(line.bytes).ok_or_else(|| "the checksum does not hold".to_owned())?;
    match record.seq() {
        Some(seq) if seq == due => Ok(record),
        Some(seq) => Err(format!("it holds seq {seq}")),
        None => Err("it holds no seq".to_owned()),
    }
}

/// A log's header and where it ends; `None`: there is no whole first line, so the log counts as not there.
pub(super) fn read_header(file: &File, path: &str) -> Result<Option<(Header, u64)>, StoreError> {
    let mut lines = Lines::new(file, 0);
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
