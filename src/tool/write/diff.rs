//! What changed in a file, for viewers: each changed place before and after, and a unified diff. Bounded.

use std::time::Duration;

use serde::Serialize;
use similar::udiff::UnifiedDiffHunk;
use similar::{ChangeTag, TextDiff};

use crate::tool::observed::{Note, Stamp};
use crate::tool::paths::Place;

/// Lines around a change.
const CONTEXT_LINES: usize = 3;
/// The search for the smallest difference ends then; what is found until then is a difference, too.
const SEARCH_TIME_MAX: Duration = Duration::from_millis(500);
/// Text in which changes are looked for, before and after together: each of its lines takes memory, too.
const SEARCH_BYTES_MAX: usize = 1 << 20;
/// What of an event the changed places may take, and the unified diff as much again: JSON writes some bytes as six.
const EVENT_SHARE: usize = 16;

type Hunk<'a> = UnifiedDiffHunk<'a, 'a, 'a, str>;

/// Facts of a changed file for viewers.
#[derive(Debug, Serialize)]
pub(in crate::tool) struct Meta {
    operation: &'static str,
    path: String,
    diffs: Vec<Change>,
    unified: String,
    /// Some changed places did not fit and are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    #[serde(flatten)]
    note: Note,
}

/// One changed place with the lines around it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    path: String,
    old_text: String,
    new_text: String,
}

impl Meta {
    /// Compares a file's content before (none: it is new) and after.
    pub(in crate::tool) fn of(
        place: &Place,
        old: Option<&str>,
        new: &str,
        stamp: &Stamp,
        event_bytes: usize,
    ) -> Self {
        let mut meta = Self {
            operation: if old.is_some() { "update" } else { "create" },
            path: place.shown.display().to_string(),
            diffs: Vec::new(),
            unified: String::new(),
            truncated: false,
            note: Note::of(place, stamp),
        };
        meta.compare(old, new, event_bytes / EVENT_SHARE);
        meta
    }

    fn compare(&mut self, old: Option<&str>, new: &str, room: usize) {
        let window = Window::of(old.unwrap_or_default(), new);
        if window.old.len() + window.new.len() > SEARCH_BYTES_MAX {
            self.truncated = true;
            return;
        }
        // Lines end with a line feed, as they are counted everywhere here; `diff_lines` ends them at a lone carriage return, too.
        let (old_lines, new_lines) = (lines(window.old), lines(window.new));
        let diff = TextDiff::configure().timeout(SEARCH_TIME_MAX).diff_slices(&old_lines, &new_lines);
        let before = if old.is_some() { &self.path } else { "/dev/null" };
        let mut unified = format!("--- {before}\n+++ {}\n", self.path);
        let mut used = 0;
        for hunk in diff.unified_diff().context_radius(CONTEXT_LINES).iter_hunks() {
            let Some((change, shown)) = self.place(&hunk, window.lines_before, room - used) else {
                self.truncated = true;
                break;
            };
            if unified.len() + shown.len() > room {
                self.truncated = true;
                break;
            }
            used += change.bytes();
            unified.push_str(&shown);
            self.diffs.push(change);
        }
        if !self.diffs.is_empty() {
            self.unified = unified;
        }
    }

    /// One changed place, and its part of the unified diff; none when it needs more than `room` bytes.
    fn place(&self, hunk: &Hunk<'_>, lines_before: usize, room: usize) -> Option<(Change, String)> {
        let mut change = Change { path: self.path.clone(), old_text: String::new(), new_text: String::new() };
        let mut lines = String::new();
        let (mut old_lines, mut new_lines) = (0, 0);
        for line in hunk.iter_changes() {
            let sign = match line.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            if line.tag() != ChangeTag::Insert {
                change.old_text.push_str(line.value());
                old_lines += 1;
            }
            if line.tag() != ChangeTag::Delete {
                change.new_text.push_str(line.value());
                new_lines += 1;
            }
            // A place that is too large is not gathered to its end.
            if change.bytes() > room {
                return None;
            }
            lines.push(sign);
            lines.push_str(line.value());
            if !line.value().ends_with('\n') {
                lines.push_str("\n\\ No newline at end of file\n");
            }
        }
        let first = hunk.ops().first()?;
        let range = |start: usize, count: usize| match count {
            0 => format!("{},0", lines_before + start),
            1 => (lines_before + start + 1).to_string(),
            count => format!("{},{count}", lines_before + start + 1),
        };
        let old_range = range(first.old_range().start, old_lines);
        let new_range = range(first.new_range().start, new_lines);
        Some((change, format!("@@ -{old_range} +{new_range} @@\n{lines}")))
    }
}

/// The unified diff of a place before and after, whole.
pub(in crate::tool) fn unified(place: &Place, old: Option<&str>, new: &str) -> String {
    let (old_lines, new_lines) = (lines(old.unwrap_or_default()), lines(new));
    let diff = TextDiff::configure()
        .timeout(SEARCH_TIME_MAX)
        .newline_terminated(true)
        .diff_slices(&old_lines, &new_lines);
    let path = place.shown.display().to_string();
    let before = if old.is_some() { path.as_str() } else { "/dev/null" };
    diff.unified_diff().context_radius(CONTEXT_LINES).header(before, &path).to_string()
}

impl Change {
    fn bytes(&self) -> usize {
        self.path.len() + self.old_text.len() + self.new_text.len()
    }
}

/// The part of two texts that differs, with the lines around it: only that is searched for changes, so that a small edit
/// of a large file costs little.
#[derive(Debug, PartialEq, Eq)]
struct Window<'a> {
    old: &'a str,
    new: &'a str,
    /// Lines of both texts before it.
    lines_before: usize,
}

impl<'a> Window<'a> {
    fn of(old: &'a str, new: &'a str) -> Self {
        let same = old.bytes().zip(new.bytes()).take_while(|(old, new)| old == new).count();
        let start = lines_back(&old.as_bytes()[..same]);
        let (old_rest, new_rest) = (&old.as_bytes()[same..], &new.as_bytes()[same..]);
        let same_end =
            old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
        let end = lines_on(&old_rest[old_rest.len() - same_end..]);
        let left_out = same_end - end;
        Self {
            old: &old[start..old.len() - left_out],
            new: &new[start..new.len() - left_out],
            lines_before: memchr::memchr_iter(b'\n', &old.as_bytes()[..start]).count(),
        }
    }
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Where the lines of context begin at the end of this text, the line that it ends in not counted.
fn lines_back(text: &[u8]) -> usize {
    memchr::memrchr_iter(b'\n', text).nth(CONTEXT_LINES).map_or(0, |newline| newline + 1)
}

/// Where the lines of context end at the start of this text, the line that it begins in not counted.
fn lines_on(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).nth(CONTEXT_LINES).map_or(text.len(), |newline| newline + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compare(old: Option<&str>, new: &str, room: usize) -> Meta {
        let place = Place { shown: "/w/f".into(), real: "/w/f".into() };
        let stamp = "1-2.000000003-4".parse().unwrap();
        Meta::of(&place, old, new, &stamp, room * EVENT_SHARE)
    }

    fn change(old: &str, new: &str) -> Change {
        Change { path: "/w/f".to_owned(), old_text: old.to_owned(), new_text: new.to_owned() }
    }

    fn numbers(last: u32) -> String {
        let lines: Vec<_> = (1..=last).map(|n| n.to_string() + "\n").collect();
        lines.concat()
    }

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let old = numbers(20);
        let meta = compare(Some(&old), &old.replace("10\n", "ten\n"), 4096);
        assert_eq!(meta.diffs, [change("7\n8\n9\n10\n11\n12\n13\n", "7\n8\n9\nten\n11\n12\n13\n")]);
        assert_eq!(
            meta.unified,
            "--- /w/f\n+++ /w/f\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
        );
        assert_eq!((meta.operation, meta.truncated), ("update", false));
    }

    #[test]
    fn a_new_file_is_all_new_and_an_unchanged_one_has_no_changes() {
        let meta = compare(None, "a\nb", 4096);
        assert_eq!(meta.diffs, [change("", "a\nb")]);
        assert_eq!(
            meta.unified,
            "--- /dev/null\n+++ /w/f\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        );
        assert_eq!(meta.operation, "create");
        let meta = compare(Some("a\n"), "a\n", 4096);
        assert_eq!((meta.diffs, meta.unified.as_str()), (Vec::new(), ""));
    }

    #[test]
    fn changed_places_that_do_not_fit_are_left_out_and_that_is_told() {
        let old = numbers(100);
        let new = old.replace("10\n", "ten\n").replace("90\n", "ninety\n");
        let meta = compare(Some(&old), &new, 100);
        assert_eq!((meta.diffs.len(), meta.truncated), (1, true));
        assert!(meta.unified.len() <= 100);
        let meta = compare(None, &"x".repeat(200), 100);
        assert_eq!((meta.diffs.len(), meta.truncated, meta.unified.as_str()), (0, true, ""));
    }

    #[test]
    fn only_the_part_that_differs_is_searched() {
        let old = numbers(1000);
        let new = old.replace("500\n", "five hundred\n");
        let window = Window::of(&old, &new);
        assert_eq!(window.lines_before, 496);
        assert_eq!(window.old, "497\n498\n499\n500\n501\n502\n503\n");
        assert_eq!(window.new, "497\n498\n499\nfive hundred\n501\n502\n503\n");
        assert_eq!(Window::of("那a", "那b"), Window { old: "那a", new: "那b", lines_before: 0 });
        assert_eq!(Window::of("a\n", "a\n").old, "a\n");
    }

    #[test]
    fn changes_all_over_a_large_file_are_not_looked_for() {
        let old = "a\n".repeat(SEARCH_BYTES_MAX / 4);
        let meta = compare(Some(&old), &old.replace('a', "bb"), 1 << 20);
        assert_eq!((meta.diffs.len(), meta.truncated), (0, true));
        let meta = compare(Some(&old), &format!("{old}b\n"), 1 << 20);
        assert_eq!((meta.diffs.len(), meta.truncated), (1, false));
    }

    #[test]
    fn a_lone_carriage_return_ends_no_line() {
        let meta = compare(Some("\rx\n\n\r\n"), "\rx\n\n\r\na", 4096);
        assert_eq!(meta.diffs, [change("\rx\n\n\r\n", "\rx\n\n\r\na")]);
        assert!(meta.unified.contains("@@ -1,3 +1,4 @@\n"), "{}", meta.unified);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_unified_diff_is_that_of_the_whole_texts(old in "([ab那\r]{0,2}\n){0,14}[ab]?", new in "([ab那\r]{0,2}\n){0,14}[ab]?", both in "([xy]\n){0,9}") {
            for (old, new) in [(format!("{both}{old}"), format!("{both}{new}")), (format!("{both}{old}\n{both}"), format!("{both}{new}\n{both}"))] {
                let meta = compare(Some(&old), &new, 1 << 20);
                // What it says is a way from one text to the other: each place stands in the text, and replacing them all
                // gives the new one.
                let (mut rest, mut made) = (old.as_str(), String::new());
                let mut line = 0;
                for header in meta.unified.lines().filter(|line| line.starts_with("@@ -")) {
                    let (old_range, _) = header[4..].split_once(" +").unwrap();
                    let (start, count) = old_range.split_once(',').unwrap_or((old_range, "1"));
                    let (start, count): (usize, usize) = (start.parse().unwrap(), count.parse().unwrap());
                    let first = if count == 0 { start } else { start - 1 };
                    while line < first {
                        let end = rest.find('\n').unwrap() + 1;
                        made.push_str(&rest[..end]);
                        rest = &rest[end..];
                        line += 1;
                    }
                    let change = &meta.diffs[meta.unified[..meta.unified.find(header).unwrap()].matches("\n@@ -").count()];
                    prop_assert!(rest.starts_with(&change.old_text) && change.old_text != change.new_text);
                    rest = &rest[change.old_text.len()..];
                    made.push_str(&change.new_text);
                    line += count;
                }
                made.push_str(rest);
                prop_assert_eq!(made, new);
            }
        }
    }

    #[test]
    fn the_json_is_the_one_that_viewers_know() {
        let json = serde_json::to_string(&compare(Some("a\n"), "b\n", 4096)).unwrap();
        assert_eq!(
            json,
            r#"{"operation":"update","path":"/w/f","diffs":[{"path":"/w/f","oldText":"a\n","newText":"b\n"}],"unified":"--- /w/f\n+++ /w/f\n@@ -1 +1 @@\n-a\n+b\n","stamp":"1-2.000000003-4"}"#
        );
    }
}
