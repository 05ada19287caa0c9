//! Searching one file after the other, on one thread of a walk.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::DirEntry;

use super::found::{Line, Matches};
use crate::tool::Guard;
use crate::tool::search::Stop;
use crate::tool::search::pattern::Pattern;
use crate::tool::search::walk::{self, Files};

/// Text of one line that is shown, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 2000;
/// What is shown before a match that stands further right than that.
const BEFORE_BYTES: usize = 200;
/// What a thread may hold of one line. A file with a longer one is counted as one that could not be read.
const HEAP_BYTES_MAX: usize = 32 << 20;
const CUT_END: &str = " (line truncated)";
const CUT_START: &str = "… ";

/// What all threads of a search share.
pub(super) struct Scan<'a> {
    pub(super) matcher: &'a RegexMatcher,
    /// Lines that are shown.
    pub(super) max: usize,
    pub(super) guard: &'a Guard,
    pub(super) stop: &'a Stop,
    pub(super) all: &'a Mutex<Matches>,
}

impl Scan<'_> {
    fn all(&self) -> MutexGuard<'_, Matches> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's part.
pub(super) struct Scanner<'a> {
    scan: &'a Scan<'a>,
    /// A copy for each thread: they would wait for each other's scratch space.
    matcher: RegexMatcher,
    searcher: Searcher,
    root: &'a Path,
    cwd: &'a Path,
    include: Option<&'a Pattern>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(
        scan: &'a Scan<'a>,
        root: &'a Path,
        cwd: &'a Path,
        include: Option<&'a Pattern>,
    ) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(HEAP_BYTES_MAX))
            .build();
        Self { scan, matcher: scan.matcher.clone(), searcher, root, cwd, include }
    }

    /// Searches one file and adds what it finds to the whole.
    pub(super) fn search(&mut self, path: &Path) -> io::Result<()> {
        let file = walk::open(path)?;
        // What took the place of what the walk saw may be a link.
        if self.scan.guard.hides_open(&file) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let file = Stoppable { file, stop: self.scan.stop };
        let mut lines = Lines {
            scan: self.scan,
            matcher: &self.matcher,
            path,
            wanted: None,
            kept: Vec::new(),
            total: 0,
            binary: false,
        };
        let searched = self.searcher.search_reader(&self.matcher, file, &mut lines);
        if !lines.binary && lines.total > 0 {
            self.scan.all().add(path, lines.kept, lines.total, self.scan.max);
        }
        searched
    }
}

impl Files for Scanner<'_> {
    fn file(&mut self, entry: &DirEntry) -> io::Result<()> {
        let path = entry.path();
        if self.include.is_some_and(|include| !include.matches_below(path, self.root, self.cwd)) {
            return Ok(());
        }
        match self.search(path) {
            Err(_) if self.scan.stop.is_set() => Ok(()),
            searched => searched,
        }
    }
}

/// A file whose reading ends when the search is to end.
struct Stoppable<'a> {
    file: File,
    stop: &'a Stop,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_set() {
            return Err(io::Error::other("the search was stopped"));
        }
        self.file.read(buffer)
    }
}

/// The matching lines of one file.
struct Lines<'a> {
    scan: &'a Scan<'a>,
    matcher: &'a RegexMatcher,
    path: &'a Path,
    /// Whether lines of this file will be shown; asked at its first match.
    wanted: Option<bool>,
    kept: Vec<Line>,
    total: u64,
    binary: bool,
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.total += 1;
        let wanted = *self.wanted.get_or_insert_with(|| self.scan.all().wants(self.path, self.scan.max));
        if wanted && self.kept.len() < self.scan.max {
            let line = shown(found.bytes(), self.matcher);
            self.kept.push(Line { line_number: found.line_number().unwrap_or(0), line });
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }
}

/// A line as it is shown: without its end, and of a long one a part that has the match.
fn shown(line: &[u8], matcher: &RegexMatcher) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= LINE_BYTES_MAX {
        return String::from_utf8_lossy(line).into_owned();
    }
    let place = matcher.find(line).ok().flatten();
    let far = place.filter(|place| place.end() > LINE_BYTES_MAX);
    let start = boundary(line, far.map_or(0, |place| place.start().saturating_sub(BEFORE_BYTES)));
    let end = boundary(line, (start + LINE_BYTES_MAX).min(line.len()));
    let text = String::from_utf8_lossy(&line[start..end]);
    let before = if start > 0 { CUT_START } else { "" };
    let after = if end < line.len() { CUT_END } else { "" };
    format!("{before}{text}{after}")
}

/// The next place at or before `at` that does not split a character.
fn boundary(line: &[u8], at: usize) -> usize {
    let back = (0..at.min(4)).find(|back| line.get(at - back).is_none_or(|byte| byte & 0xC0 != 0x80));
    at - back.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::grep::matcher;

    #[test]
    fn a_long_line_is_cut_around_its_match_and_says_so() {
        let matcher = matcher("needle").unwrap();
        let check = |line: &str, start: &str, end: &str| {
            let text = shown(line.as_bytes(), &matcher);
            assert!(text.starts_with(start) && text.ends_with(end), "{text}");
            assert!(text.contains("needle"), "{text}");
            assert!(text.len() <= LINE_BYTES_MAX + CUT_START.len() + CUT_END.len());
        };
        check("a needle\r\n", "a needle", "a needle");
        check(&format!("needle{}", "x".repeat(5000)), "needlex", "x (line truncated)");
        check(&format!("{}needle{}", "é".repeat(5000), "é".repeat(5000)), "… é", "é (line truncated)");
        check(&format!("{}needle", "x".repeat(5000)), "… x", "xneedle");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(shown(b"a\xFFb\n", &matcher("a").unwrap()), "a\u{FFFD}b");
    }
}
