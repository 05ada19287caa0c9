//! What of a turn goes where: the answer to stdout, the rest to stderr, and how it looks. No I/O: it makes pieces for the
//! printer.
//!
//! A terminal sees text as it is written. A pipe gets the answer alone, once it is known to be the answer and not what
//! the model said before it called a tool.

use std::io::IsTerminal;
use std::time::Duration;

use tokio::time::Instant;

use super::super::escape::{Filter, one_line};
use super::super::printer::Piece;
use super::super::{Globals, human};
use super::turn::{Show, ToolLine, Turn, failure_of};
use crate::event::TurnEndReason;

/// After so much silence a live line says what is going on.
const LIVE_AFTER: Duration = Duration::from_secs(1);

/// Columns when the terminal does not say.
const WIDTH_DEFAULT: usize = 80;

/// Where text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Stdout {
    /// To a terminal, as it is written, filtered.
    Stream,
    /// Anywhere, when the answer is whole, untouched.
    Hold,
    /// Nowhere: events are printed instead.
    Json,
}

/// How commentary looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Stderr {
    /// None.
    Silent,
    /// Lines of plain words.
    Plain,
    /// Symbols, colours, a live line.
    Fancy,
}

/// How to show a turn.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Style {
    pub(in super::super) stdout: Stdout,
    pub(in super::super) stderr: Stderr,
    pub(in super::super) thinking: bool,
    pub(in super::super) width: usize,
}

impl Style {
    /// As flags, environment and streams ask for.
    pub(super) fn of(globals: &Globals, thinking: bool) -> Self {
        let stdout = if globals.args.json {
            Stdout::Json
        } else if std::io::stdout().is_terminal() && !globals.args.quiet {
            Stdout::Stream
        } else {
            Stdout::Hold
        };
        let is_terminal = std::io::stderr().is_terminal();
        let is_coloured = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
        let stderr = if globals.args.quiet || globals.args.json {
            Stderr::Silent
        } else if is_terminal && is_coloured {
            Stderr::Fancy
        } else if is_terminal || globals.args.verbose > 0 {
            Stderr::Plain
        } else {
            Stderr::Silent
        };
        Self { stdout, stderr, thinking, width: width() }
    }
}

/// The terminal's columns.
pub(in super::super) fn width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(WIDTH_DEFAULT)
}

/// Where the terminal's cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cursor {
    /// At the start of a line.
    LineStart,
    /// Behind text.
    InText,
    /// Behind reasoning.
    InThought,
}

impl Cursor {
    fn behind(text: &str, otherwise: Self) -> Self {
        if text.ends_with('\n') { Self::LineStart } else { otherwise }
    }
}

/// The state of what is seen.
#[derive(Debug)]
pub(in super::super) struct Screen {
    style: Style,
    text: Filter,
    thoughts: Filter,
    cursor: Cursor,
    /// The live line is there.
    is_live: bool,
    /// A line about the cancelling is under way.
    is_cancelling: bool,
    doing: String,
    started: Instant,
    quiet_since: Instant,
}

impl Screen {
    /// An empty screen.
    pub(in super::super) fn new(style: Style) -> Self {
        let now = Instant::now();
        Self {
            style,
            text: Filter::default(),
            thoughts: Filter::default(),
            cursor: Cursor::LineStart,
            is_live: false,
            is_cancelling: false,
            doing: "thinking".to_owned(),
            started: now,
            quiet_since: now,
        }
    }

    /// How it shows things.
    pub(super) fn style(&self) -> &Style {
        &self.style
    }

    /// Shows something.
    pub(in super::super) fn show(&mut self, show: Show, pieces: &mut Vec<Piece>) {
        match show {
            Show::Text(text) => self.write_text(&text, pieces),
            Show::Reasoning(text) => self.write_thought(&text, pieces),
            // How a turn went stands in the turn: `Screen::turn_ended`.
            Show::MessageEnd(_) | Show::Void | Show::Ended(_) => self.end_line(pieces),
            Show::ToolStart(what) => self.doing = one_line(&what, 40),
            Show::Tool(line) => {
                "thinking".clone_into(&mut self.doing);
                let line = self.tool(&line);
                self.comment(&line, pieces);
            }
            Show::Retry(why) => {
                let line = format!("retry: {}", one_line(&why, 200));
                self.comment(&line, pieces);
            }
            Show::Summarised(what) => {
                let line = format!("summarised: {}", one_line(&what, 200));
                self.comment(&line, pieces);
            }
            Show::Prompt(text) => {
                let (mut shown, mut filter) = (String::new(), Filter::default());
                filter.pass(&text, &mut shown);
                filter.end(&mut shown);
                self.comment(&format!("› {}", shown.replace('\n', "\n  ")), pieces);
            }
        }
    }

    /// Leaves the terminal's line, for what others will write.
    pub(super) fn break_line(&mut self, pieces: &mut Vec<Piece>) {
        self.end_line(pieces);
        self.clear_live(pieces);
    }

    /// Says how a turn went that was watched.
    pub(in super::super) fn turn_ended(
        &mut self,
        turn: &Turn,
        reason: &TurnEndReason,
        session: &str,
        pieces: &mut Vec<Piece>,
    ) {
        let line = match (reason, failure_of(reason)) {
            (_, Some(failure)) => format!("error: {}", one_line(&failure.message, 400)),
            (TurnEndReason::Completed | TurnEndReason::MaxTokens, None) => self.footer(turn, session),
            (TurnEndReason::Aborted { .. }, None) => "cancelled".to_owned(),
            (TurnEndReason::Interrupted, None) => "interrupted: the daemon had ended".to_owned(),
            (TurnEndReason::Blocked | TurnEndReason::Error { .. }, None) => "blocked".to_owned(),
        };
        self.comment(&line, pieces);
        self.started = Instant::now();
    }

    /// What is being done, in a word, and since when in milliseconds.
    pub(in super::super) fn doing(&self) -> (&str, u64) {
        (&self.doing, self.elapsed_ms())
    }

    /// A turn begins now.
    pub(in super::super) fn turn_started(&mut self) {
        self.started = Instant::now();
        "thinking".clone_into(&mut self.doing);
    }

    /// How long it has been, in milliseconds.
    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Says a line of commentary.
    pub(in super::super) fn comment(&mut self, line: &str, pieces: &mut Vec<Piece>) {
        if self.style.stderr == Stderr::Silent || self.is_cancelling {
            return;
        }
        self.end_line(pieces);
        self.clear_live(pieces);
        pieces.push(Piece::Err(format!("{line}\n").into_bytes()));
    }

    /// Makes room for what is said about a Ctrl-C, which the terminal has echoed.
    pub(super) fn interrupt(&mut self, pieces: &mut Vec<Piece>) {
        self.end_line(pieces);
        self.clear_live(pieces);
        if self.style.stderr == Stderr::Fancy {
            pieces.push(Piece::Err(b"\r".to_vec()));
        }
        self.is_cancelling = true;
    }

    /// Shows what is going on when nothing was seen for a while. Called about once a second.
    pub(super) fn tick(&mut self, pieces: &mut Vec<Piece>) {
        let is_quiet = self.quiet_since.elapsed() >= LIVE_AFTER;
        if self.style.stderr == Stderr::Fancy
            && is_quiet
            && self.cursor == Cursor::LineStart
            && !self.is_cancelling
        {
            let seconds = self.started.elapsed().as_secs();
            let line = format!("\r\x1b[K\x1b[2m  {}… {seconds} s   ^C cancel\x1b[0m", self.doing);
            pieces.push(Piece::Err(line.into_bytes()));
            self.is_live = true;
        }
    }

    /// Shows what is left at the end: the answer, when it was held back, and how it went.
    pub(super) fn finish(&mut self, turn: &Turn, is_ok: bool, session: &str, pieces: &mut Vec<Piece>) {
        self.end_line(pieces);
        self.clear_live(pieces);
        if self.style.stdout == Stdout::Hold && !turn.text().is_empty() {
            let mut text = turn.text().to_owned();
            if !text.ends_with('\n') {
                text.push('\n');
            }
            pieces.push(Piece::Out(text.into_bytes()));
        }
        if is_ok {
            let line = self.footer(turn, session);
            self.comment(&line, pieces);
        }
    }

    fn write_text(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        if self.style.stdout != Stdout::Stream {
            return;
        }
        if self.cursor == Cursor::InThought {
            self.end_line(pieces);
        }
        let mut passed = String::new();
        self.text.pass(text, &mut passed);
        if passed.is_empty() {
            return;
        }
        self.clear_live(pieces);
        self.cursor = Cursor::behind(&passed, Cursor::InText);
        pieces.push(Piece::Out(passed.into_bytes()));
    }

    fn write_thought(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        if !self.style.thinking {
            return;
        }
        let mut passed = String::new();
        self.thoughts.pass(text, &mut passed);
        if passed.is_empty() {
            return;
        }
        self.clear_live(pieces);
        self.cursor = Cursor::behind(&passed, Cursor::InThought);
        let passed =
            if self.style.stderr == Stderr::Fancy { format!("\x1b[2m{passed}\x1b[0m") } else { passed };
        pieces.push(Piece::Err(passed.into_bytes()));
    }

    /// Brings the cursor to the start of a line, on the stream that left it elsewhere.
    fn end_line(&mut self, pieces: &mut Vec<Piece>) {
        let mut rest = String::new();
        self.text.end(&mut rest);
        let cursor = std::mem::replace(&mut self.cursor, Cursor::LineStart);
        if cursor == Cursor::InText {
            rest.push('\n');
        }
        if !rest.is_empty() {
            pieces.push(Piece::Out(rest.into_bytes()));
        }
        if cursor == Cursor::InThought {
            pieces.push(Piece::Err(b"\n".to_vec()));
        }
    }

    fn clear_live(&mut self, pieces: &mut Vec<Piece>) {
        self.quiet_since = Instant::now();
        if std::mem::take(&mut self.is_live) {
            pieces.push(Piece::Err(b"\r\x1b[K".to_vec()));
        }
    }

    fn tool(&self, line: &ToolLine) -> String {
        let exit = line.exit.as_ref().map_or_else(String::new, |exit| format!("  {exit}"));
        let error = if line.is_error { "  failed" } else { "" };
        if self.style.stderr == Stderr::Plain {
            let whose = if line.of_child { "subagent's tool" } else { "tool" };
            return format!("{whose}: {} {}{exit}{error}", line.name, one_line(&line.what, 200));
        }
        let indent = if line.of_child { "  " } else { "" };
        let room = self.style.width.saturating_sub(indent.len() + 9 + 12 + exit.len() + error.len()).max(16);
        let what = one_line(&line.what, room);
        let pad = room.saturating_sub(what.chars().count());
        let colour = if line.is_error || line.exit.is_some() { "31" } else { "32" };
        let elapsed = human::elapsed(line.elapsed_ms);
        format!("{indent}\x1b[{colour}m●\x1b[0m {:<6} {what}{:pad$} {elapsed:>9}{exit}{error}", line.name, "")
    }

    fn footer(&self, turn: &Turn, session: &str) -> String {
        let plural = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let usage = turn.usage();
        let read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        let tokens = if usage.total_tokens == 0 {
            String::new()
        } else {
            format!(
                " · {} in ({} cached) / {} out",
                human::count(read),
                human::count(usage.cache_read_tokens),
                human::count(usage.output_tokens)
            )
        };
        let facts = format!(
            "{} · {} · {}{tokens} · session {session}",
            plural(turn.steps(), "step"),
            plural(turn.tools(), "tool"),
            human::elapsed(self.elapsed_ms())
        );
        match self.style.stderr {
            Stderr::Fancy => format!("\x1b[32m✓\x1b[0m ok   {facts}"),
            Stderr::Plain | Stderr::Silent => format!("ok: {facts}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(stdout: Stdout, stderr: Stderr) -> Screen {
        Screen::new(Style { stdout, stderr, thinking: true, width: 60 })
    }

    /// What both streams would look like, `2>` before each piece of stderr.
    fn seen(screen: &mut Screen, shows: Vec<Show>) -> String {
        let mut pieces = Vec::new();
        for show in shows {
            screen.show(show, &mut pieces);
        }
        let text = |piece: Piece| match piece {
            Piece::Out(bytes) => String::from_utf8(bytes).unwrap(),
            Piece::Err(bytes) => format!("2>{}", String::from_utf8(bytes).unwrap()),
        };
        pieces.into_iter().map(text).collect()
    }

    fn tool() -> Show {
        Show::Tool(ToolLine {
            name: "bash".to_owned(),
            what: "cargo test".to_owned(),
            elapsed_ms: 3100,
            exit: Some("exit 101".to_owned()),
            is_error: false,
            of_child: false,
        })
    }

    #[test]
    fn commentary_begins_on_a_line_of_its_own() {
        let shows = vec![Show::Text("looking".to_owned()), Show::MessageEnd(true), tool()];
        assert_eq!(
            seen(&mut screen(Stdout::Stream, Stderr::Plain), shows),
            "looking\n2>tool: bash cargo test  exit 101\n"
        );
    }

    #[test]
    fn thoughts_go_to_stderr_and_end_before_text() {
        let shows = vec![Show::Reasoning("hm".to_owned()), Show::Text("yes\n".to_owned())];
        assert_eq!(seen(&mut screen(Stdout::Stream, Stderr::Plain), shows), "2>hm2>\nyes\n");
    }

    #[test]
    fn a_terminal_gets_no_control_sequences_of_the_model() {
        let shows = vec![Show::Text("a\x1b]0;x\x07\x1b[31mb".to_owned()), Show::MessageEnd(false)];
        assert_eq!(seen(&mut screen(Stdout::Stream, Stderr::Silent), shows), "a\x1b[31mb\x1b[0m\n");
    }

    #[test]
    fn what_is_held_back_is_not_shown_before_the_end() {
        let shows = vec![Show::Text("a".to_owned()), Show::MessageEnd(true), tool()];
        assert_eq!(seen(&mut screen(Stdout::Hold, Stderr::Silent), shows), "");
    }

    #[test]
    fn a_fancy_tool_line_has_a_dot_and_its_time() {
        let line = seen(&mut screen(Stdout::Stream, Stderr::Fancy), vec![tool()]);
        assert!(line.starts_with("2>\x1b[31m●\x1b[0m bash   cargo test"), "{line}");
        assert!(line.ends_with("3.1 s  exit 101\n"), "{line}");
    }
}
