//! Finding and replacing a text in a file's text, whatever its line ends: they are kept, and what is not replaced stays
//! byte for byte. Pure.

use std::borrow::Cow;

/// Candidates whose lines are told.
const LINES_TOLD_MAX: usize = 10;

/// Why nothing was replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoMatch {
    /// The text is not there.
    NotFound,
    /// It is there more than once: how often, and the first lines where it begins.
    Ambiguous { count: usize, lines: Vec<usize> },
    /// The result would be larger than allowed.
    Large { size: u64 },
}

/// The line ends of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tool) enum Ends {
    /// All `\n`, or none at all.
    Lf,
    /// All `\r\n`.
    CrLf,
    /// Some of each.
    Mixed,
}

impl Ends {
    pub(in crate::tool) fn of(text: &str) -> Self {
        let all = memchr::memchr_iter(b'\n', text.as_bytes()).count();
        let with_return = memchr::memmem::find_iter(text.as_bytes(), b"\r\n").count();
        match with_return {
            0 => Self::Lf,
            count if count == all => Self::CrLf,
            _ => Self::Mixed,
        }
    }

    /// Writes a text with these line ends; mixed ones can't be told from each other, so the text stays as it is.
    pub(in crate::tool) fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Lf => unify(text),
            Self::CrLf => Cow::Owned(unify(text).replace('\n', "\r\n")),
            Self::Mixed => Cow::Borrowed(text),
        }
    }
}

/// A text with `\n` at all line ends.
pub(super) fn unify(text: &str) -> Cow<'_, str> {
    if memchr::memmem::find(text.as_bytes(), b"\r\n").is_some() {
        Cow::Owned(text.replace("\r\n", "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A text with unified line ends, and the way back.
struct Unified<'a> {
    original: &'a str,
    text: Cow<'a, str>,
    /// Places in `text` before which a `\r` was left out.
    returns: Vec<usize>,
    ends: Ends,
}

impl<'a> Unified<'a> {
    fn of(original: &'a str) -> Self {
        let text = unify(original);
        let left_out = memchr::memmem::find_iter(original.as_bytes(), b"\r\n");
        let returns = left_out.enumerate().map(|(before, at)| at - before).collect();
        Self { original, text, returns, ends: Ends::of(original) }
    }

    /// The place in the original of a place in the text.
    fn place(&self, at: usize) -> usize {
        at + self.returns.partition_point(|left_out| *left_out < at)
    }

    /// Line ends for what replaces this range of the original.
    fn ends_at(&self, start: usize, end: usize) -> Ends {
        match self.ends {
            Ends::Lf => Ends::Lf,
            Ends::CrLf => Ends::CrLf,
            // Those of the first line that is replaced, or of the last before it.
            Ends::Mixed => {
                let bytes = self.original.as_bytes();
                let newline = memchr::memchr(b'\n', &bytes[start..end])
                    .map(|at| start + at)
                    .or_else(|| memchr::memrchr(b'\n', &bytes[..start]))
                    .or_else(|| memchr::memchr(b'\n', &bytes[end..]).map(|at| end + at));
                match newline {
                    Some(at) if at > 0 && bytes[at - 1] == b'\r' => Ends::CrLf,
                    Some(_) | None => Ends::Lf,
                }
            }
        }
    }
}

/// Replaces `old`, which is not empty, by `new`: its only place, or all places.
///
/// # Errors
/// [`NoMatch`] when it is not there, there more than once, or the result is longer than `bytes_max`.
pub(super) fn replace(
    text: &str,
    old: &str,
    new: &str,
    all: bool,
    bytes_max: usize,
) -> Result<String, NoMatch> {
    let unified = Unified::of(text);
    let (old, new) = (unify(old), unify(new));
    let finder = memchr::memmem::Finder::new(old.as_bytes());
    let places: Vec<usize> = finder.find_iter(unified.text.as_bytes()).collect();
    let Some(&first) = places.first() else { return Err(NoMatch::NotFound) };
    if !all {
        // A second place may overlap the first.
        let next = first + unified.text[first..].chars().next().map_or(1, char::len_utf8);
        if finder.find(&unified.text.as_bytes()[next..]).is_some() {
            return Err(ambiguous(&unified.text, &old));
        }
    }
    let line_ends = memchr::memchr_iter(b'\n', new.as_bytes()).count();
    let kept = text.len() - places.len() * old.len();
    let size = kept as u64 + places.len() as u64 * (new.len() + line_ends) as u64;
    if size > bytes_max as u64 {
        return Err(NoMatch::Large { size });
    }
    let mut result = String::with_capacity(text.len());
    let mut from = 0;
    for at in places {
        let (start, end) = (unified.place(at), unified.place(at + old.len()));
        result.push_str(&text[from..start]);
        match unified.ends_at(start, end) {
            Ends::CrLf => result.push_str(&new.replace('\n', "\r\n")),
            Ends::Lf | Ends::Mixed => result.push_str(&new),
        }
        from = end;
    }
    result.push_str(&text[from..]);
    Ok(result)
}

/// Counts places that overlap, too: each is one that may be meant.
fn ambiguous(text: &str, old: &str) -> NoMatch {
    let mut lines = Vec::new();
    let (mut count, mut line, mut counted_to, mut from) = (0, 1, 0, 0);
    while let Some(found) = memchr::memmem::find(&text.as_bytes()[from..], old.as_bytes()) {
        let at = from + found;
        count += 1;
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[counted_to..at]).count();
        counted_to = at;
        if lines.len() < LINES_TOLD_MAX && lines.last() != Some(&line) {
            lines.push(line);
        }
        from = at + text[at..].chars().next().map_or(1, char::len_utf8);
    }
    NoMatch::Ambiguous { count, lines }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: usize = 1 << 20;

    #[track_caller]
    fn check(text: &str, old: &str, new: &str, expected: &str) {
        assert_eq!(replace(text, old, new, false, ROOM).as_deref(), Ok(expected));
    }

    #[test]
    fn the_only_place_is_replaced() {
        check("one\ntwo\nthree\n", "two", "2", "one\n2\nthree\n");
        check("one\ntwo\n", "one\ntwo\n", "", "");
        check("那🙂x", "🙂", "", "那x");
    }

    #[test]
    fn line_ends_are_those_of_the_file_whatever_the_model_writes() {
        check("a\r\nb\r\nc\r\n", "a\nb", "1\n2\n3", "1\r\n2\r\n3\r\nc\r\n");
        check("a\r\nb\r\n", "a\r\nb", "1\r\n2", "1\r\n2\r\n");
        check("a\r\nb\r\n", "\nb\n", "\n", "a\r\n");
        check("a\nb\n", "a\r\nb", "1\r\n2", "1\n2\n");
        check("alone\rreturn\n", "alone", "a", "a\rreturn\n");
    }

    #[test]
    fn in_a_mixed_file_the_rest_stays_as_it_is() {
        check("a\r\nb\nc\r\n", "b\nc", "1\n2", "a\r\n1\n2\r\n");
        check("a\r\nb\nc\r\n", "a\nb", "1\n2", "1\r\n2\nc\r\n");
        check("a\r\nb\nc", "c", "1\n2", "a\r\nb\n1\n2");
        check("a\r\nb\nc", "a", "1\n2", "1\r\n2\r\nb\nc");
    }

    #[test]
    fn more_than_one_place_is_told_with_its_lines() {
        let found = |text, old| replace(text, old, "x", false, ROOM).unwrap_err();
        assert_eq!(found("a\nb\na b a\n", "a"), NoMatch::Ambiguous { count: 3, lines: vec![1, 3] });
        assert_eq!(found("aaa", "aa"), NoMatch::Ambiguous { count: 2, lines: vec![1] });
        assert_eq!(found("那那那", "那那"), NoMatch::Ambiguous { count: 2, lines: vec![1] });
        let many = "a\n".repeat(50);
        let many = found(&many, "a");
        assert_eq!(many, NoMatch::Ambiguous { count: 50, lines: (1..=10).collect() });
        assert_eq!(found("a", "b"), NoMatch::NotFound);
    }

    #[test]
    fn a_result_that_is_too_large_is_not_built() {
        let text = "a".repeat(1 << 20);
        let new = "b".repeat(1 << 20);
        assert!(matches!(replace(&text, "a", &new, true, ROOM), Err(NoMatch::Large { .. })));
    }

    #[test]
    fn line_ends_are_told_apart() {
        for (text, ends) in [
            ("", Ends::Lf),
            ("a\n", Ends::Lf),
            ("a\r\nb\r\n", Ends::CrLf),
            ("a\r\nb\n", Ends::Mixed),
            ("\r", Ends::Lf),
        ] {
            assert_eq!(Ends::of(text), ends, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn replacing_all_is_what_the_standard_library_does(text in "[ab那\n]{0,60}", old in "[ab那\n]{1,3}", new in "[abc\n]{0,4}") {
            let expected = text.contains(&old).then(|| text.replace(&old, &new)).ok_or(NoMatch::NotFound);
            prop_assert_eq!(replace(&text, &old, &new, true, ROOM), expected);
        }

        #[test]
        fn a_file_with_returns_is_edited_as_the_one_without(text in "[ab\n]{0,60}", old in "[ab\n]{1,3}", new in "[abc\n]{0,4}", all: bool) {
            let with_returns = |text: &str| text.replace('\n', "\r\n");
            let edited = replace(&with_returns(&text), &old, &new, all, ROOM);
            // Without any line end the file does not say which ones it has.
            let expected = replace(&text, &old, &new, all, ROOM)
                .map(|edited| if text.contains('\n') { with_returns(&edited) } else { edited });
            prop_assert_eq!(edited, expected);
        }

        #[test]
        fn line_ends_are_never_mixed_anew(text in "[ab\n]{0,60}", old in "[ab\n]{1,3}", new in "[abc\r\n]{0,6}") {
            let new = new.replace('\r', "");
            for text in [text.clone(), text.replace('\n', "\r\n")] {
                for new in [new.clone(), new.replace('\n', "\r\n")] {
                    if let Ok(edited) = replace(&text, &old, &new, true, ROOM) {
                        prop_assert!(Ends::of(&edited) != Ends::Mixed, "{edited:?}");
                    }
                }
            }
        }

        #[test]
        fn one_place_is_replaced_exactly_when_there_is_one(text in "[ab\r\n]{0,40}", old in "[ab\n]{1,3}") {
            let unified = text.replace("\r\n", "\n");
            let count = (0..unified.len()).filter(|at| unified[*at..].starts_with(&old)).count();
            match replace(&text, &old, "X", false, ROOM) {
                Ok(edited) => {
                    prop_assert_eq!(count, 1);
                    let (before, after) = edited.split_once('X').unwrap();
                    prop_assert!(text.starts_with(before) && text.ends_with(after));
                }
                Err(NoMatch::Ambiguous { count: told, .. }) => prop_assert_eq!(told, count),
                Err(NoMatch::NotFound) => prop_assert_eq!(count, 0),
                Err(NoMatch::Large { .. }) => prop_assert!(false),
            }
        }
    }
}
