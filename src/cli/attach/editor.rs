//! The line that is typed: what each key does to it. No I/O.

/// Lines that the up key brings back.
const HISTORY_MAX: usize = 100;

/// The longest line, in characters.
const LINE_CHARS_MAX: usize = 64 * 1024;

/// What a key asks for beyond the line itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Say this.
    Say(String),
    /// Cancel, or leave.
    Interrupt,
    /// Leave; the session goes on.
    Detach,
}

/// The line and where its cursor is.
#[derive(Debug)]
pub(super) struct Editor {
    line: Vec<char>,
    at: usize,
    history: Vec<String>,
    /// Which line of the history is shown; none: a new one.
    shown: Option<usize>,
    /// Bytes of a key or a character that are not whole yet.
    pending: Vec<u8>,
    /// In a paste, where a line's end is text.
    pasting: bool,
    /// Keys that detach, when nothing else is in the line.
    detach: Vec<u8>,
}

impl Editor {
    /// An empty line. `detach`: the bytes that leave.
    pub(super) fn new(detach: Vec<u8>) -> Self {
        Self {
            line: Vec::new(),
            at: 0,
            history: Vec::new(),
            shown: None,
            pending: Vec::new(),
            pasting: false,
            detach,
        }
    }

    /// Whether nothing is typed.
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        self.line.clear();
        self.at = 0;
        self.shown = None;
    }

    /// The part of the line that fits into so many columns, and the cursor's column in it. Line ends show as `⏎`.
    pub(super) fn view(&self, columns: usize) -> (String, usize) {
        let columns = columns.max(2);
        let from = (self.at + 1).saturating_sub(columns);
        let shown = self.line.iter().skip(from).take(columns - 1);
        let text = shown.map(|c| if *c == '\n' { '⏎' } else { *c }).collect();
        (text, self.at - from)
    }

    /// Takes what was typed.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Wish> {
        self.pending.extend_from_slice(bytes);
        let mut wishes = Vec::new();
        loop {
            let pending = std::mem::take(&mut self.pending);
            let Some((key, used)) = key(&pending) else {
                self.pending = pending;
                return wishes;
            };
            self.pending = pending[used..].to_vec();
            wishes.extend(self.press(key));
        }
    }

    fn press(&mut self, key: Key) -> Option<Wish> {
        match key {
            Key::Char(c) => self.insert(c),
            Key::Enter if self.pasting => self.insert('\n'),
            Key::Enter => return self.enter(),
            Key::Paste(pasting) => self.pasting = pasting,
            Key::Left => self.at = self.at.saturating_sub(1),
            Key::Right => self.at = (self.at + 1).min(self.line.len()),
            Key::Home => self.at = 0,
            Key::End => self.at = self.line.len(),
            Key::Up => self.recall(true),
            Key::Down => self.recall(false),
            Key::Backspace if self.at > 0 => {
                self.at -= 1;
                self.line.remove(self.at);
            }
            Key::KillLine => drop(self.line.drain(..std::mem::take(&mut self.at))),
            Key::KillWord => {
                let from = self.line[..self.at].iter().rposition(|c| !c.is_whitespace()).map_or(0, |end| {
                    self.line[..end].iter().rposition(|c| c.is_whitespace()).map_or(0, |space| space + 1)
                });
                self.line.drain(from..self.at);
                self.at = from;
            }
            Key::CtrlC => return Some(Wish::Interrupt),
            Key::CtrlD if self.line.is_empty() => return Some(Wish::Detach),
            Key::Delete | Key::CtrlD if self.at < self.line.len() => drop(self.line.remove(self.at)),
            Key::Control(byte) if self.detach == [byte] => return Some(Wish::Detach),
            Key::Backspace | Key::Delete | Key::CtrlD | Key::Control(_) | Key::Other => {}
        }
        let typed: String = self.line.iter().collect();
        if !self.pasting && !typed.is_empty() && typed.as_bytes() == self.detach {
            self.clear();
            return Some(Wish::Detach);
        }
        None
    }

    fn insert(&mut self, c: char) {
        if self.line.len() < LINE_CHARS_MAX {
            self.line.insert(self.at, c);
            self.at += 1;
        }
    }

    fn enter(&mut self) -> Option<Wish> {
        let text: String = self.line.iter().collect();
        self.clear();
        if text.trim().is_empty() {
            return None;
        }
        if self.history.last() != Some(&text) {
            self.history.push(text.clone());
            if self.history.len() > HISTORY_MAX {
                self.history.remove(0);
            }
        }
        Some(Wish::Say(text))
    }

    fn recall(&mut self, older: bool) {
        let now = self.shown.unwrap_or(self.history.len());
        let then = if older { now.checked_sub(1) } else { Some(now + 1) };
        let Some(then) = then else { return };
        let line = self.history.get(then).cloned().unwrap_or_default();
        self.shown = (then < self.history.len()).then_some(then);
        self.line = line.chars().collect();
        self.at = self.line.len();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Char(char),
    Enter,
    Backspace,
    Delete,
    Left,
    Right,
    Up,
    Down,
    Home,
    End,
    KillLine,
    KillWord,
    CtrlC,
    CtrlD,
    /// Another control key.
    Control(u8),
    /// A paste begins or ends.
    Paste(bool),
    /// A key that means nothing here.
    Other,
}

/// The first whole key, and its bytes; none: more bytes are needed.
fn key(bytes: &[u8]) -> Option<(Key, usize)> {
    let first = *bytes.first()?;
    let key = match first {
        b'\r' | b'\n' => Key::Enter,
        0x7f | 0x08 => Key::Backspace,
        0x01 => Key::Home,
        0x03 => Key::CtrlC,
        0x04 => Key::CtrlD,
        0x05 => Key::End,
        0x15 => Key::KillLine,
        0x17 => Key::KillWord,
        0x1b => return escape(bytes),
        b'\t' => Key::Char(' '),
        0x00..0x20 => Key::Control(first),
        _ => return character(bytes),
    };
    Some((key, 1))
}

/// A sequence of the terminal. A lone ESC is a key, too, and is told by what follows it.
fn escape(bytes: &[u8]) -> Option<(Key, usize)> {
    let rest = match bytes.get(1)? {
        b'[' | b'O' => &bytes[2..],
        _ => return Some((Key::Other, 1)),
    };
    let end = rest.iter().position(|byte| (0x40..0x7f).contains(byte))?;
    let key = match (&rest[..end], rest[end]) {
        (_, b'A') => Key::Up,
        (_, b'B') => Key::Down,
        (_, b'C') => Key::Right,
        (_, b'D') => Key::Left,
        (_, b'H') | (b"1" | b"7", b'~') => Key::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Key::End,
        (b"3", b'~') => Key::Delete,
        (b"200", b'~') => Key::Paste(true),
        (b"201", b'~') => Key::Paste(false),
        _ => Key::Other,
    };
    Some((key, end + 3))
}

fn character(bytes: &[u8]) -> Option<(Key, usize)> {
    let length = match bytes[0] {
        0x00..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Some((Key::Other, 1)),
    };
    let whole = bytes.get(..length)?;
    let c = std::str::from_utf8(whole).ok().and_then(|text| text.chars().next());
    Some(c.filter(|c| !c.is_control()).map_or((Key::Other, 1), |c| (Key::Char(c), length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> (String, usize, Vec<Wish>) {
        let mut editor = Editor::new(b"~.".to_vec());
        // Byte by byte, as a slow line brings them.
        let wishes = keys.bytes().flat_map(|byte| editor.take(&[byte])).collect();
        let (line, at) = editor.view(80);
        (line, at, wishes)
    }

    #[test]
    fn keys_edit_the_line_by_characters() {
        let cases = [
            ("aé🙂", "aé🙂", 3),
            ("ab\x1b[Dc", "acb", 2),
            ("ab\x7f", "a", 1),
            ("ab\x1b[D\x1b[D\x1b[3~", "b", 0),
            ("ab\x01c\x05d", "cabd", 4),
            ("one two  \x17", "one ", 4),
            ("one two\x1b[D\x15", "o", 0),
            ("a\x1b[99;5uz", "az", 2),
            ("\x1b[200~a\rb\x1b[201~", "a⏎b", 3),
        ];
        for (keys, line, at) in cases {
            assert_eq!(typed(keys), (line.to_owned(), at, Vec::new()), "{keys:?}");
        }
    }

    #[test]
    fn a_line_is_said_and_can_be_brought_back() {
        let (line, _, wishes) = typed("first\rsecond\r   \r\x1b[A\x1b[A");
        assert_eq!(wishes, [Wish::Say("first".to_owned()), Wish::Say("second".to_owned())]);
        assert_eq!(line, "first");
        assert_eq!(typed("first\r\x1b[A\x1b[B").0, "");
    }

    #[test]
    fn leaving_needs_an_empty_line_or_its_keys() {
        assert_eq!(typed("\x04").2, [Wish::Detach]);
        assert_eq!(typed("a\x04").2, []);
        assert_eq!(typed("~.").2, [Wish::Detach]);
        assert_eq!(typed("a~.").2, []);
        assert_eq!(typed("\x03").2, [Wish::Interrupt]);
        let mut editor = Editor::new(vec![0x11]);
        assert_eq!(editor.take(b"text\x11"), [Wish::Detach]);
    }

    #[test]
    fn what_is_too_long_shows_the_part_with_the_cursor() {
        let mut editor = Editor::new(Vec::new());
        editor.take(b"0123456789");
        assert_eq!(editor.view(5), ("6789".to_owned(), 4));
        editor.take(b"\x01");
        assert_eq!(editor.view(5), ("0123".to_owned(), 0));
    }
}
