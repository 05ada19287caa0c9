//! The matches of a search: the first ones by path, however many there are and in whatever order they are found.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::tool::search::{self, META_BYTES_MAX};

/// Room for our own words around the matches.
const FRAME_BYTES: usize = 256;

/// A matching line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    /// From 1.
    pub(super) line_number: u64,
    /// Its text, cut to a readable length.
    pub(super) line: String,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// At least the first `max` lines in the order of the paths; hardly more are kept.
    files: BTreeMap<PathBuf, Vec<Line>>,
    kept: usize,
    /// All matching lines.
    pub(super) total: u64,
    pub(super) unreadable: u64,
}

impl Matches {
    /// Whether lines of this file would be kept.
    pub(super) fn wants(&self, path: &Path, max: usize) -> bool {
        self.kept < max || self.files.last_key_value().is_some_and(|(last, _)| path < last.as_path())
    }

    /// Adds the lines of a file, at most `max`.
    pub(super) fn add(&mut self, path: &Path, lines: Vec<Line>, total: u64, max: usize) {
        self.total += total;
        if lines.is_empty() || !self.wants(path, max) {
            return;
        }
        self.kept += lines.len();
        self.files.insert(path.to_owned(), lines);
        while let Some(last) = self.files.last_entry()
            && self.kept - last.get().len() >= max
        {
            self.kept -= last.remove().len();
        }
    }

    /// The page that is shown: at most `max` lines and about `bytes_max` bytes.
    pub(super) fn page(self, cwd: &Path, max: usize, bytes_max: usize) -> Page {
        let mut room = bytes_max.saturating_sub(FRAME_BYTES);
        let mut page = Page { files: Vec::new(), shown: 0, total: self.total };
        for (path, lines) in self.files {
            let path = search::shown(&path, cwd).into_owned();
            let mut file = File { matches: Vec::new(), path };
            room = room.saturating_sub(file.path.len() + 2);
            for line in lines {
                let bytes = line.line.len() + LINE_WORDS;
                if page.shown == max || bytes > room {
                    room = 0;
                    break;
                }
                room -= bytes;
                page.shown += 1;
                file.matches.push(line);
            }
            if !file.matches.is_empty() {
                page.files.push(file);
            }
            if room == 0 {
                break;
            }
        }
        page
    }
}

/// `Line 12345: ` and the line's end.
const LINE_WORDS: usize = 16;

#[derive(Debug, Serialize)]
pub(super) struct File {
    path: String,
    matches: Vec<Line>,
}

/// What is shown of a search.
#[derive(Debug)]
pub(super) struct Page {
    files: Vec<File>,
    shown: usize,
    total: u64,
}

/// What viewers get.
#[derive(Serialize)]
pub(super) struct Meta<'a> {
    shape: &'static str,
    files: &'a [File],
    truncated: bool,
    total: u64,
}

impl Page {
    fn cut(&self) -> bool {
        self.total > self.shown as u64
    }

    /// The text for the model.
    pub(super) fn text(&self) -> String {
        if self.files.is_empty() && self.total == 0 {
            return "No matches found".to_owned();
        }
        let noun = if self.total == 1 { "match" } else { "matches" };
        let mut text = if self.cut() {
            format!("Found {} of {} {noun}", self.shown, self.total)
        } else {
            format!("Found {} {noun}", self.total)
        };
        for file in &self.files {
            text.push_str("\n\n");
            text.push_str(&file.path);
            for line in &file.matches {
                let _ = write!(text, "\nLine {}: {}", line.line_number, line.line);
            }
        }
        if self.cut() {
            text.push_str("\n\n(More matches are not shown. Narrow pattern, path or include to see them.)");
        }
        text
    }

    /// The facts for viewers: as many whole files as fit.
    pub(super) fn meta(&self, stopped: bool) -> Meta<'_> {
        let mut room = META_BYTES_MAX.saturating_sub(FRAME_BYTES);
        let mut whole = 0;
        for file in &self.files {
            let bytes = serde_json::to_string(file).map_or(usize::MAX, |json| json.len() + 1);
            if bytes > room {
                break;
            }
            room -= bytes;
            whole += 1;
        }
        let truncated = stopped || self.cut() || whole < self.files.len();
        Meta { shape: "matches", files: &self.files[..whole], truncated, total: self.total }
    }
}
