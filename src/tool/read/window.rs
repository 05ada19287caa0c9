//! A window of a file's lines, read in bounded memory. Blocks: runs on a thread for blocking work.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::tool::observed::Stamp;
use crate::tool::{Guard, kind, paths};

/// Characters of one line that are shown.
pub(super) const LINE_CHARS_MAX: usize = 2000;
/// Bytes in which so many characters surely fit, and one more, which tells that there are more.
const LINE_BYTES_KEPT: usize = (LINE_CHARS_MAX + 1) * 4;
/// Bytes of a file that are looked at, so that a sparse file of petabytes does not keep a thread for days.
const SCAN_BYTES_MAX: u64 = 256 << 20;
/// The byte order mark.
const MARK: &[u8] = "\u{FEFF}".as_bytes();
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes of a file whose content is digested, to know a change that its stamp does not show.
const DIGEST_BYTES_MAX: u64 = 16 << 20;

/// Which lines of which file.
pub(super) struct Ask {
    pub(super) path: PathBuf,
    /// The first line, from 1.
    pub(super) offset: u64,
    pub(super) limit: u64,
    /// Text of all lines, with their numbers.
    pub(super) bytes_max: usize,
    pub(super) guard: Guard,
    pub(super) cancel: CancellationToken,
}

/// Why the window ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The file ends there.
    Shown,
    /// The limit of lines.
    Lines,
    /// The limit of bytes.
    Bytes,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Window {
    /// `1: one\n2: two\n`
    pub(super) text: String,
    /// Lines in it.
    pub(super) lines: u64,
    /// Lines of the file that were counted.
    pub(super) seen: u64,
    /// Whether the file was read to its end.
    pub(super) complete: bool,
    pub(super) lossy: bool,
    pub(super) end: End,
    /// The file when it was opened, with its content's digest when it was read whole.
    pub(super) stamp: Stamp,
    /// Where the path leads.
    pub(super) real: PathBuf,
}

impl Window {
    /// Lines of the file, if all were counted.
    pub(super) fn total(&self) -> Option<u64> {
        self.complete.then_some(self.seen)
    }

    /// Whether the file has no such line. Line 1 of an empty file counts as there.
    pub(super) fn first_missing(&self, offset: u64) -> bool {
        offset > 1 && offset > self.seen
    }
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("not found")]
    NotFound,
    #[error("{0}")]
    NotRegularFile(&'static str),
    #[error("{0}")]
    NotText(&'static str),
    #[error("hidden from agents")]
    Hidden,
    #[error("cancelled")]
    Cancelled,
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            Self::NotFound
        } else {
            Self::Io(error)
        }
    }
}

pub(super) fn read(ask: &Ask) -> Result<Window, ReadError> {
    let (file, stat) = open(&ask.path, &ask.guard)?;
    // Some links of the kernel lead to what has no path.
    let real = paths::resolve(&ask.path).unwrap_or_else(|_| ask.path.clone());
    // What grows while it is read must not be read for ever.
    let mut file = file.take(SCAN_BYTES_MAX + 1);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut filled = fill(&mut file, &mut chunk)?;
    if let Some(kind) = kind::binary(&chunk[..filled.min(kind::SAMPLE_BYTES)]) {
        return Err(ReadError::NotText(kind));
    }
    let mut scan = Scan::new(ask, Stamp::of(&stat), real);
    let mut hasher = Sha256::new();
    let mut read = 0;
    while filled > 0 {
        if ask.cancel.is_cancelled() {
            return Err(ReadError::Cancelled);
        }
        scan.push(&chunk[..filled]);
        read += filled as u64;
        if read <= DIGEST_BYTES_MAX {
            hasher.update(&chunk[..filled]);
        }
        filled = file.read(&mut chunk)?;
    }
    let complete = file.limit() > 0;
    let digest = (complete && read <= DIGEST_BYTES_MAX).then(|| hasher.finalize().into());
    let window = scan.finish(complete);
    Ok(Window { stamp: window.stamp.with(digest), ..window })
}

/// Opens a regular file and nothing else. It is looked at first, because opening alone acts on some devices, and once
/// more when it is open, because it may have become another; a FIFO in its place does not block us.
pub(super) fn open(path: &Path, guard: &Guard) -> Result<(File, Stat), ReadError> {
    let check = |stat: &Stat| match kind::irregular(FileType::from_raw_mode(stat.st_mode)) {
        Some(kind) => Err(ReadError::NotRegularFile(kind)),
        None => Ok(()),
    };
    check(&rustix::fs::stat(path).map_err(io::Error::from)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?);
    let stat = rustix::fs::fstat(&file).map_err(io::Error::from)?;
    check(&stat)?;
    if guard.hides_open(&file) {
        return Err(ReadError::Hidden);
    }
    Ok((file, stat))
}

/// Reads until the chunk is full or the file ends: a short first read must not hide what the file is.
fn fill(file: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < chunk.len() {
        match file.read(&mut chunk[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Goes over the file's bytes once. Holds one line's start and the window's text.
struct Scan<'a> {
    ask: &'a Ask,
    /// Lines that ended.
    seen: u64,
    /// The start of the line that has not ended, while the window is open.
    line: Vec<u8>,
    /// Whether the line that has not ended has any byte.
    begun: bool,
    window: Window,
    open: bool,
}

impl<'a> Scan<'a> {
    fn new(ask: &'a Ask, stamp: Stamp, real: PathBuf) -> Self {
        let window = Window {
            text: String::new(),
            lines: 0,
            seen: 0,
            complete: false,
            lossy: false,
            end: End::Shown,
            stamp,
            real,
        };
        Self { ask, seen: 0, line: Vec::new(), begun: false, window, open: true }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        while self.open {
            let Some(newline) = memchr::memchr(b'\n', bytes) else { break };
            self.keep(&bytes[..newline]);
            self.end_line();
            bytes = &bytes[newline + 1..];
        }
        if self.open {
            self.keep(bytes);
        } else {
            self.seen += memchr::memchr_iter(b'\n', bytes).count() as u64;
            self.begun = bytes.last().map_or(self.begun, |last| *last != b'\n');
        }
    }

    /// Whether the line that has not ended is one of those asked for.
    fn wanted(&self) -> bool {
        self.seen + 1 >= self.ask.offset
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.begun |= !bytes.is_empty();
        if self.wanted() {
            let room = LINE_BYTES_KEPT.saturating_sub(self.line.len());
            self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn end_line(&mut self) {
        if self.wanted() {
            self.show_line();
        }
        self.seen += 1;
        self.line.clear();
        self.begun = false;
    }

    /// Adds the line to the window, or closes the window.
    fn show_line(&mut self) {
        if self.window.lines == self.ask.limit {
            self.close(End::Lines);
            return;
        }
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        // The mark at a file's start is no part of its text; `edit` keeps it.
        let line = if self.seen == 0 { line.strip_prefix(MARK).unwrap_or(line) } else { line };
        let text = String::from_utf8_lossy(line);
        let end = text.char_indices().nth(LINE_CHARS_MAX).map(|(end, _)| end);
        let shown = &text[..end.unwrap_or(text.len())];
        let note = match end {
            Some(_) => format!("... (line truncated to {LINE_CHARS_MAX} chars)"),
            None => String::new(),
        };
        let rendered = format!("{}: {shown}{note}\n", self.seen + 1);
        if self.window.text.len() + rendered.len() > self.ask.bytes_max && self.window.lines > 0 {
            self.close(End::Bytes);
            return;
        }
        // What is wrong behind the shown part, such as a character that our own cut split, is not told.
        self.window.lossy |= std::str::from_utf8(line).is_err_and(|error| error.valid_up_to() < shown.len());
        self.window.text.push_str(&rendered);
        self.window.lines += 1;
    }

    fn close(&mut self, end: End) {
        self.open = false;
        self.window.end = end;
    }

    fn finish(mut self, complete: bool) -> Window {
        if self.begun {
            self.end_line();
        }
        // The scan's own limit ended it inside the window.
        if !complete && self.open {
            self.close(End::Bytes);
        }
        Window { seen: self.seen, complete, ..self.window }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_the_bytes_are_split() {
        let text = "one\r\ntwo 那🙂\n\nfour";
        let ask = Ask {
            path: PathBuf::new(),
            offset: 2,
            limit: 2,
            bytes_max: 1000,
            guard: Guard::default(),
            cancel: CancellationToken::new(),
        };
        let stamp: Stamp = "1-2.000000003-4".parse().unwrap();
        let scan = |size: usize| {
            let mut scan = Scan::new(&ask, stamp, PathBuf::new());
            text.as_bytes().chunks(size).for_each(|chunk| scan.push(chunk));
            let window = scan.finish(true);
            (window.text, window.lines, window.seen, window.end)
        };
        for size in 1..=text.len() {
            assert_eq!(scan(size), ("2: two 那🙂\n3: \n".to_owned(), 2, 4, End::Lines), "chunks of {size}");
        }
    }
}
