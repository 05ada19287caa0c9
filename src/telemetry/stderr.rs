//! stderr that never blocks. A parent that does not read the pipe of its child must not stop it, so a line that
//! finds no room is dropped and counted.

use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::metrics::METRICS;

/// A pipe that polls as writable takes so much without blocking (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;
/// Longest wait for room for a line that people should not miss.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was lost since the last line that was written whole.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    /// Lines of which nothing, or only the start, was written.
    lines: usize,
    /// The last line has no end yet.
    torn: bool,
}

static LOSS: Mutex<Loss> = Mutex::new(Loss { lines: 0, torn: false });

/// Writes whole lines to stderr, or drops them.
#[derive(Debug, Default)]
pub struct Stderr {
    _private: (),
}

impl Stderr {
    /// A writer; all share one stderr.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether people look at it in colours.
    pub fn is_terminal() -> bool {
        let choice = anstream::AutoStream::choice(&io::stderr());
        io::stderr().is_terminal() && choice != anstream::ColorChoice::Never
    }
}

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut loss = LOSS.lock().unwrap_or_else(PoisonError::into_inner);
        write_or_drop(&io::stderr(), line, &mut loss, Duration::ZERO);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line for people to stderr. Waits a moment for room, since it may be all that they get to know, and drops
/// it when nobody reads there.
pub fn say(line: &str) {
    let mut loss = LOSS.lock().unwrap_or_else(PoisonError::into_inner);
    // Who has missed a line already is not waited for again.
    let patience = if loss.lines == 0 { PATIENCE } else { Duration::ZERO };
    write_or_drop(&io::stderr(), format!("{line}\n").as_bytes(), &mut loss, patience);
}

fn write_or_drop(fd: &impl AsFd, line: &[u8], loss: &mut Loss, patience: Duration) {
    let mut pending = Vec::new();
    if loss.torn {
        pending.extend_from_slice(b"\n");
    }
    if loss.lines > 0 {
        pending.extend_from_slice(format!("({} log lines were dropped here)\n", loss.lines).as_bytes());
    }
    let line = if pending.is_empty() {
        line
    } else {
        pending.extend_from_slice(line);
        &pending
    };
    let written = write_pieces(fd, line, patience);
    if written == line.len() {
        *loss = Loss::default();
    } else {
        METRICS.log_lines_dropped.add(1);
        loss.lines += 1;
        loss.torn = if written == 0 { loss.torn } else { line[written - 1] != b'\n' };
    }
}

/// Writes as much as finds room, each piece within `patience`. The count.
fn write_pieces(fd: &impl AsFd, mut rest: &[u8], patience: Duration) -> usize {
    let mut written = 0;
    while !rest.is_empty() && has_room(fd, patience) {
        match rustix::io::write(fd, &rest[..rest.len().min(PIECE_BYTES)]) {
            Ok(count) => {
                written += count;
                rest = &rest[count..];
            }
            Err(rustix::io::Errno::INTR) => {}
            // Closed, or full after all.
            Err(_) => break,
        }
    }
    written
}

fn has_room(fd: &impl AsFd, patience: Duration) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::OUT)];
    let patience = Timespec::try_from(patience).ok();
    // Without a time, which no `Duration` of ours lacks, poll would wait for ever.
    patience.is_some()
        && matches!(poll(&mut fds, patience.as_ref()), Ok(1..))
        && fds[0].revents().contains(PollFlags::OUT)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::mpsc;

    use super::*;

    /// Runs `work`, which must not block.
    fn promptly<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, wait) = mpsc::sync_channel(1);
        let _thread = std::thread::spawn(move || done.send(work()));
        wait.recv_timeout(Duration::from_secs(20)).expect("the writer blocks")
    }

    #[test]
    fn a_full_pipe_drops_lines_and_says_so_once_it_is_read() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (writer, mut loss, sent) = promptly(move || {
            let mut loss = Loss::default();
            let mut sent = 0;
            while loss.lines == 0 {
                write_or_drop(&writer, b"a line of some length\n", &mut loss, Duration::ZERO);
                sent += 1;
            }
            (writer, loss, sent)
        });
        let mut full = vec![0; 32 * 1024];
        reader.read_exact(&mut full).unwrap();
        assert!(full.starts_with(b"a line of some length\n"));
        let text = promptly(move || {
            write_or_drop(&writer, b"the next line\n", &mut loss, Duration::ZERO);
            drop(writer);
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        assert!(
            text.ends_with("(1 log lines were dropped here)\nthe next line\n"),
            "{text} after {sent} lines"
        );
    }

    #[test]
    fn a_line_longer_than_the_room_is_torn_and_the_next_begins_anew() {
        let (mut reader, writer) = io::pipe().unwrap();
        let loss = promptly(move || {
            let mut loss = Loss::default();
            write_or_drop(&writer, &vec![b'x'; 1 << 20], &mut loss, Duration::ZERO);
            (writer, loss)
        });
        let (writer, mut loss) = loss;
        assert!(loss.torn);
        let mut start = vec![0; 32 * 1024];
        reader.read_exact(&mut start).unwrap();
        let text = promptly(move || {
            write_or_drop(&writer, b"next\n", &mut loss, Duration::ZERO);
            drop(writer);
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        assert!(text.ends_with("xx\n(1 log lines were dropped here)\nnext\n"));
    }

    #[test]
    fn a_reader_that_is_gone_is_no_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut loss = Loss::default();
        write_or_drop(&writer, b"line\n", &mut loss, Duration::ZERO);
        assert_eq!(loss.lines, 1);
    }
}
