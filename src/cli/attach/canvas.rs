//! What is on the screen of an attached terminal: whole lines that scroll away, and below them a few rows that are drawn anew:
//! the line that is being written, what goes on, the line that is typed. Makes bytes; no I/O.

use std::fmt::Write as _;

/// Rows below what scrolls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bottom {
    /// What goes on, if anything is to be said of it.
    pub(super) state: String,
    /// The line that is typed, with its mark; none: nothing can be typed.
    pub(super) input: Option<String>,
    /// The cursor's column in it.
    pub(super) column: usize,
}

/// The screen.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    /// A line that has no end yet.
    open: String,
    /// Whole lines that are not drawn yet.
    lines: String,
    /// Rows below that are on the screen.
    rows: usize,
    drawn: Option<Bottom>,
    /// The open line has changed since it was drawn.
    is_stale: bool,
}

impl Canvas {
    /// Adds text, which may end in the middle of a line.
    pub(super) fn write(&mut self, text: &str) {
        self.open.push_str(text);
        if let Some(end) = self.open.rfind('\n') {
            let rest = self.open.split_off(end + 1);
            self.lines.push_str(&std::mem::replace(&mut self.open, rest));
        }
        self.is_stale = true;
    }

    /// Draws what has changed: nothing when nothing has.
    pub(super) fn draw(&mut self, bottom: &Bottom, columns: usize) -> String {
        if !self.is_stale && self.drawn.as_ref() == Some(bottom) {
            return String::new();
        }
        let mut out = self.erase();
        out.push_str(&std::mem::take(&mut self.lines));
        let tail = tail(&self.open, columns.saturating_sub(1));
        let state = head(&bottom.state, columns.saturating_sub(1));
        let rows: Vec<String> =
            [tail, if state.is_empty() { state } else { format!("\x1b[2m{state}\x1b[0m") }]
                .into_iter()
                .filter(|row| !row.is_empty())
                .chain(bottom.input.clone())
                .collect();
        out.push_str(&rows.join("\n"));
        if bottom.input.is_some() {
            out.push('\r');
            if bottom.column > 0 {
                // Writing to a String does not fail.
                let _ = write!(out, "\x1b[{}C", bottom.column);
            }
        }
        self.rows = rows.len();
        self.drawn = Some(bottom.clone());
        self.is_stale = false;
        out
    }

    /// Takes the rows below away and leaves the cursor at a line's start, with everything written.
    pub(super) fn finish(&mut self) -> String {
        let mut out = self.erase();
        out.push_str(&std::mem::take(&mut self.lines));
        if !self.open.is_empty() {
            out.push_str(&std::mem::take(&mut self.open));
            out.push('\n');
        }
        self.drawn = None;
        out
    }

    fn erase(&mut self) -> String {
        let rows = std::mem::take(&mut self.rows);
        match rows {
            0 => String::new(),
            1 => "\r\x1b[J".to_owned(),
            rows => format!("\r\x1b[{}A\x1b[J", rows - 1),
        }
    }
}

/// The last columns of a line, without colours.
fn tail(line: &str, columns: usize) -> String {
    let plain = plain(line);
    let skip = plain.len().saturating_sub(columns);
    plain.into_iter().skip(skip).collect()
}

fn head(line: &str, columns: usize) -> String {
    plain(line).into_iter().take(columns).collect()
}

/// Characters of a line without its colours, each of which takes one column; wide ones count twice and leave a blank.
fn plain(line: &str) -> Vec<char> {
    let mut plain = Vec::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            '\t' => plain.extend([' '; 4]),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typing(text: &str, state: &str) -> Bottom {
        Bottom { state: state.to_owned(), input: Some(format!("> {text}")), column: 2 + text.len() }
    }

    #[test]
    fn whole_lines_scroll_and_the_rest_is_drawn_anew() {
        let mut canvas = Canvas::default();
        canvas.write("one\ntw");
        assert_eq!(canvas.draw(&typing("", ""), 80), "one\ntw\n> \r\x1b[2C");
        assert_eq!(canvas.draw(&typing("", ""), 80), "", "nothing has changed");
        canvas.write("o\n");
        assert_eq!(canvas.draw(&typing("", ""), 80), "\r\x1b[1A\x1b[Jtwo\n> \r\x1b[2C");
        assert_eq!(canvas.draw(&typing("x", "busy"), 80), "\r\x1b[J\x1b[2mbusy\x1b[0m\n> x\r\x1b[3C");
        assert_eq!(canvas.finish(), "\r\x1b[1A\x1b[J");
    }

    #[test]
    fn an_open_line_shows_its_end_and_is_written_whole_at_last() {
        let mut canvas = Canvas::default();
        canvas.write("\x1b[31m0123456789\x1b[0m");
        assert_eq!(canvas.draw(&Bottom::default(), 6), "56789");
        assert_eq!(canvas.finish(), "\r\x1b[J\x1b[31m0123456789\x1b[0m\n");
    }
}
