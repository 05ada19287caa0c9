//! What changed in a file, for viewers: each changed place before and after, and a unified diff. Bounded.

use std::time::Duration;

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use crate::tool::observed::{Note, Stamp};
use crate::tool::paths::Place;

/// Lines around a change.
const CONTEXT_LINES: usize = 3;
/// The search for the smallest difference ends then; what is found until then is a difference, too.
const SEARCH_TIME_MAX: Duration = Duration::from_millis(500);
/// What of an event the changed places may take, and the unified diff as much again: JSON writes some bytes as six.
const EVENT_SHARE: usize = 16;

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
        let diff = TextDiff::configure().timeout(SEARCH_TIME_MAX).diff_lines(old.unwrap_or_default(), new);
        let before = if old.is_some() { &self.path } else { "/dev/null" };
        let mut unified = format!("--- {before}\n+++ {}\n", self.path);
        let mut used = 0;
        for hunk in diff.unified_diff().context_radius(CONTEXT_LINES).iter_hunks() {
            let mut change =
                Change { path: self.path.clone(), old_text: String::new(), new_text: String::new() };
            for line in hunk.iter_changes() {
                if line.tag() != ChangeTag::Insert {
                    change.old_text.push_str(line.value());
                }
                if line.tag() != ChangeTag::Delete {
                    change.new_text.push_str(line.value());
                }
                // A place that is too large anyhow is not gathered to its end.
                if used + change.old_text.len() + change.new_text.len() > room {
                    break;
                }
            }
            let bytes = change.path.len() + change.old_text.len() + change.new_text.len();
            if used + bytes > room {
                self.truncated = true;
                break;
            }
            let shown = hunk.to_string();
            if unified.len() + shown.len() > room {
                self.truncated = true;
                break;
            }
            used += bytes;
            unified.push_str(&shown);
            self.diffs.push(change);
        }
        if !self.diffs.is_empty() {
            self.unified = unified;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(old: Option<&str>, new: &str, room: usize) -> Meta {
        let place = Place { shown: "/w/f".into(), real: "/w/f".into() };
        let stamp = "1-2.000000003-4".parse().unwrap();
        Meta::of(&place, old, new, &stamp, room * EVENT_SHARE)
    }

    fn change(old: &str, new: &str) -> Change {
        Change { path: "/w/f".to_owned(), old_text: old.to_owned(), new_text: new.to_owned() }
    }

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
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
        let old: String = (1..=100).map(|n| format!("{n}\n")).collect();
        let new = old.replace("10\n", "ten\n").replace("90\n", "ninety\n");
        let meta = compare(Some(&old), &new, 100);
        assert_eq!((meta.diffs.len(), meta.truncated), (1, true));
        assert!(meta.unified.len() <= 100);
        let meta = compare(None, &"x".repeat(200), 100);
        assert_eq!((meta.diffs.len(), meta.truncated, meta.unified.as_str()), (0, true, ""));
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
