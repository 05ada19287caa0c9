//! What may reach a terminal: text, tabs, line ends and plain colours. Everything else that a model or a tool writes could
//! move the cursor, set the title or answer on the user's behalf, and is dropped.

const ESC: char = '\x1b';

/// Drops control sequences from text that arrives in pieces. A sequence may be cut anywhere between two pieces.
#[derive(Debug, Default)]
pub(super) struct Filter {
    state: State,
    /// The parameters of a sequence that may turn out to be a colour.
    parameters: String,
    /// A colour was set and not reset.
    is_coloured: bool,
}

/// The longest parameters of a colour, in bytes.
const PARAMETERS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Plain text.
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// In `ESC [ … `.
    Sequence,
    /// In a string that goes on to BEL or `ESC \`: titles, links, device control.
    String,
    /// After an ESC in such a string.
    StringEscape,
}

impl Filter {
    /// Adds what may pass of `text` to `out`.
    pub(super) fn pass(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            self.state = self.step(c, out);
        }
    }

    /// Ends the text: resets a colour that was left on.
    pub(super) fn end(&mut self, out: &mut String) {
        if std::mem::take(&mut self.is_coloured) {
            out.push_str("\x1b[0m");
        }
        self.state = State::Text;
    }

    fn step(&mut self, c: char, out: &mut String) -> State {
        match self.state {
            State::Text => self.in_text(c, out),
            State::Escape => self.after_escape(c),
            State::Sequence => self.in_sequence(c, out),
            State::String => match c {
                '\x07' | '\u{9c}' => State::Text,
                ESC => State::StringEscape,
                _ => State::String,
            },
            State::StringEscape => match c {
                '\\' => State::Text,
                ESC => State::StringEscape,
                _ => State::String,
            },
        }
    }

    fn in_text(&mut self, c: char, out: &mut String) -> State {
        match c {
            ESC => State::Escape,
            '\u{9b}' => {
                self.parameters.clear();
                State::Sequence
            }
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => State::String,
            c => {
                if !c.is_control() || c == '\n' || c == '\t' {
                    out.push(c);
                }
                State::Text
            }
        }
    }

    fn after_escape(&mut self, c: char) -> State {
        match c {
            '[' => {
                self.parameters.clear();
                State::Sequence
            }
            ']' | 'P' | 'X' | '^' | '_' => State::String,
            // Intermediate bytes: the sequence's last character comes later.
            ESC | ' '..='/' => State::Escape,
            _ => State::Text,
        }
    }

    fn in_sequence(&mut self, c: char, out: &mut String) -> State {
        match c {
            ESC => State::Escape,
            ' '..='?' => {
                if self.parameters.len() < PARAMETERS_MAX {
                    self.parameters.push(c);
                }
                State::Sequence
            }
            'm' => {
                self.colour(out);
                State::Text
            }
            _ => State::Text,
        }
    }

    fn colour(&mut self, out: &mut String) {
        let is_plain = self.parameters.len() < PARAMETERS_MAX
            && self.parameters.chars().all(|c| c.is_ascii_digit() || c == ';' || c == ':');
        if is_plain {
            out.push_str("\x1b[");
            out.push_str(&self.parameters);
            out.push('m');
            self.is_coloured = !matches!(self.parameters.as_str(), "" | "0");
        }
    }
}

/// One line for a person: control characters become spaces, and what is longer than `width` ends in `…`.
pub(super) fn one_line(text: &str, width: usize) -> String {
    let mut plain = String::new();
    Filter::default().pass(text, &mut plain);
    let words = plain.split(|c: char| c.is_control()).filter(|part| !part.is_empty());
    let mut line = words.collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = line.char_indices().nth(width) {
        let end = line[..cut].char_indices().next_back().map_or(0, |(at, _)| at);
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        let mut whole = String::new();
        Filter::default().pass(input, &mut whole);
        assert_eq!(whole, expected);
        // However it is cut.
        let mut filter = Filter::default();
        let mut pieces = String::new();
        for c in input.chars() {
            filter.pass(c.encode_utf8(&mut [0; 4]), &mut pieces);
        }
        assert_eq!(pieces, expected);
    }

    #[test]
    fn text_and_colours_pass() {
        check("a\tb\nä🙂", "a\tb\nä🙂");
        check("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m");
        check("\x1b[38:2:1:2:3mx", "\x1b[38:2:1:2:3mx");
    }

    #[test]
    fn sequences_that_do_more_are_dropped() {
        check("a\x1b[2Jb\x1b[10;20Hc", "abc");
        check("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc");
        check("a\x1bPq#0\x1b\\b\x1b(Bc\x1bcd", "abcd");
        check("a\u{9b}2Jb\u{9d}0;t\u{9c}c", "abc");
        check("\x1b[?25lx\x1b[>4my", "xy");
        check("a\rb\x08c\x07d\x00e", "abcde");
    }

    #[test]
    fn a_colour_that_was_left_on_is_reset_at_the_end() {
        let mut filter = Filter::default();
        let mut out = String::new();
        filter.pass("\x1b[31mred", &mut out);
        filter.end(&mut out);
        assert_eq!(out, "\x1b[31mred\x1b[0m");
        filter.end(&mut out);
        assert_eq!(out, "\x1b[31mred\x1b[0m");
    }

    #[test]
    fn a_line_is_cut_on_a_character_with_an_ellipsis() {
        assert_eq!(one_line("one\ntwo\r\nthree", 80), "one two three");
        assert_eq!(one_line("äöüß", 4), "äöüß");
        assert_eq!(one_line("äöüßé", 4), "äöü…");
        assert_eq!(one_line("", 4), "");
    }
}
