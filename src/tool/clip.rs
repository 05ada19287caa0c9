//! Text for the model from bytes that may be anything and any number: cut on character boundaries, and the cut told.

use std::borrow::Cow;

use crate::process::{Captured, Spooled};

/// The longest foreign text inside one of our sentences, in bytes.
const LINE_BYTES_MAX: usize = 500;

/// A stream's text.
#[derive(Debug)]
pub(super) struct Text {
    head: String,
    tail: String,
    /// Bytes that were dropped between them.
    cut: u64,
    /// The file that has them.
    spooled: Option<Spooled>,
    /// Whether some bytes were no UTF-8.
    pub(super) lossy: bool,
}

impl Text {
    pub(super) fn of(captured: &Captured) -> Self {
        let spooled = captured.spooled.clone();
        if captured.omitted == 0 {
            let head = String::from_utf8_lossy(&captured.head);
            let lossy = matches!(head, Cow::Owned(_));
            return Self { head: head.into_owned(), tail: String::new(), cut: 0, spooled, lossy };
        }
        let head = without_partial_end(&captured.head);
        let tail = without_partial_start(&captured.tail);
        let lost = captured.head.len() - head.len() + captured.tail.len() - tail.len();
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        Self {
            lossy: matches!(head, Cow::Owned(_)) || matches!(tail, Cow::Owned(_)),
            head: head.into_owned(),
            tail: tail.into_owned(),
            cut: captured.omitted + lost as u64,
            spooled,
        }
    }

    /// A text that is all there.
    pub(super) fn whole(text: &str) -> Self {
        Self { head: text.to_owned(), tail: String::new(), cut: 0, spooled: None, lossy: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.cut == 0
    }

    /// Bytes that it takes when it is written whole.
    pub(super) fn len(&self) -> usize {
        let note = if self.cut == 0 { 0 } else { self.note(self.cut).len() };
        self.head.len() + note + self.tail.len()
    }

    /// Appends the text in at most `room` bytes, or a little more when not even the note of the cut fits.
    pub(super) fn write(&self, out: &mut String, room: usize) {
        if self.len() <= room {
            out.push_str(&self.head);
            if self.cut > 0 {
                out.push_str(&self.note(self.cut));
                out.push_str(&self.tail);
            }
            return;
        }
        let end = if self.cut == 0 { &self.head } else { &self.tail };
        let all = self.cut + (self.head.len() + self.tail.len()) as u64;
        let room = room.saturating_sub(self.note(all).len());
        let first = &self.head[..self.head.floor_char_boundary(room / 2)];
        let last = &end[end.ceil_char_boundary(end.len().saturating_sub(room - first.len()))..];
        out.push_str(first);
        out.push_str(&self.note(all - (first.len() + last.len()) as u64));
        out.push_str(last);
    }

    fn note(&self, cut: u64) -> String {
        match &self.spooled {
            None => format!("\n[... {cut} bytes cut ...]\n"),
            Some(Spooled { path, is_whole }) => {
                let what = if *is_whole { "all of it" } else { "its start" };
                format!("\n[... {cut} bytes cut; {what} is in {} ...]\n", path.display())
            }
        }
    }
}

fn without_partial_end(bytes: &[u8]) -> &[u8] {
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let length = match bytes[at] {
            0x80..=0xBF => continue,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            _ => 1,
        };
        return if length > back { &bytes[..at] } else { bytes };
    }
    bytes
}

fn without_partial_start(bytes: &[u8]) -> &[u8] {
    let continued = bytes.iter().take(3).take_while(|byte| (0x80..=0xBF).contains(*byte)).count();
    &bytes[continued..]
}

/// A foreign text as part of a sentence: one line of bounded length.
pub(super) fn line(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(LINE_BYTES_MAX)];
    let mut line: String = cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut.len() < text.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(captured: &Captured, room: usize) -> String {
        let mut out = String::new();
        Text::of(captured).write(&mut out, room);
        out
    }

    fn whole(text: &str) -> Captured {
        Captured { head: text.into(), ..Captured::default() }
    }

    #[test]
    fn what_fits_is_unchanged() {
        assert_eq!(written(&whole("hi\n"), 3), "hi\n");
    }

    #[test]
    fn what_does_not_fit_keeps_its_start_and_end_and_tells_the_cut() {
        let captured = whole(&format!("{}{}", "a".repeat(500), "z".repeat(500)));
        let text = written(&captured, 126);
        assert_eq!(text, format!("{}\n[... 900 bytes cut ...]\n{}", "a".repeat(50), "z".repeat(50)));
        assert!(text.len() <= 126);
    }

    #[test]
    fn the_note_of_a_cut_names_the_file_that_has_the_rest() {
        let at = |is_whole| Some(Spooled { path: "/spool/1.out".into(), is_whole });
        let captured = Captured { head: b"a".to_vec(), tail: b"z".to_vec(), omitted: 7, spooled: at(true) };
        assert_eq!(written(&captured, 99), "a\n[... 7 bytes cut; all of it is in /spool/1.out ...]\nz");
        let captured = Captured { spooled: at(false), ..captured };
        assert_eq!(written(&captured, 99), "a\n[... 7 bytes cut; its start is in /spool/1.out ...]\nz");
        assert_eq!(written(&Captured { spooled: at(true), ..whole("hi") }, 9), "hi");
    }

    #[test]
    fn a_character_that_the_capture_split_is_left_out_and_is_no_invalid_text() {
        let crab = "🦀".as_bytes();
        let (head, tail) = ([b"a", &crab[..2]].concat(), [&crab[3..], b"z"].concat());
        let captured = Captured { head, tail, omitted: 10, spooled: None };
        let text = Text::of(&captured);
        assert!(!text.lossy);
        let mut out = String::new();
        text.write(&mut out, 1000);
        assert_eq!(out, "a\n[... 13 bytes cut ...]\nz");
    }

    #[test]
    fn invalid_bytes_are_shown_and_told() {
        let text = Text::of(&Captured { head: b"a\xFFb".to_vec(), ..Captured::default() });
        assert!(text.lossy);
        assert_eq!(text.head, "a\u{FFFD}b");
        assert!(!Text::of(&whole("a\u{FFFD}b")).lossy);
    }

    #[test]
    fn foreign_text_in_a_sentence_is_one_short_line() {
        assert_eq!(line("a\nb\u{1b}c"), "a b c");
        assert_eq!(line(&"é".repeat(400)).chars().count(), LINE_BYTES_MAX / 2 + 1);
    }

    proptest! {
        #[test]
        fn no_text_is_longer_than_its_room_and_shown_and_cut_make_the_whole(text in ".{0,200}", room in 40_usize..200) {
            let captured = whole(&text);
            let out = written(&captured, room);
            prop_assert!(out.len() <= room);
            if text.len() > room {
                let (first, rest) = out.split_once("\n[... ").unwrap();
                let (cut, last) = rest.split_once(" bytes cut ...]\n").unwrap();
                prop_assert!(text.starts_with(first) && text.ends_with(last));
                prop_assert_eq!(first.len() + last.len() + cut.parse::<usize>().unwrap(), text.len());
            } else {
                prop_assert_eq!(out, text);
            }
        }
    }
}
