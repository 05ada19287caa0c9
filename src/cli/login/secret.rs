//! Asking for a secret on the terminal: nothing is shown, Ctrl-C cancels, the terminal is always put back.

use std::io::{self, BufRead, Read as _};
use std::os::fd::AsFd;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::super::{Failure, exit};
use crate::telemetry;

/// Longest secret that can be typed or pasted.
const SECRET_BYTES_MAX: usize = 16 << 10;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const CTRL_U: u8 = 21;
const BACKSPACE: [u8; 2] = [8, 127];

/// A terminal that shows nothing of what is typed, until dropped.
struct Silent<F: AsFd> {
    terminal: F,
    before: Termios,
}

impl<F: AsFd> Silent<F> {
    fn new(terminal: F) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl<F: AsFd> Drop for Silent<F> {
    fn drop(&mut self) {
        // A terminal that is gone needs no mending.
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// Asks on stderr and reads from the terminal on stdin.
///
/// # Errors
/// With exit code 130 on Ctrl-C; when the terminal fails.
pub(super) fn ask(question: &str) -> Result<Zeroizing<String>, Failure> {
    let failed =
        |error: io::Error| Failure::new(exit::REFUSED, "io", format!("cannot ask on this terminal: {error}"));
    let silent = Silent::new(io::stdin()).map_err(failed)?;
    telemetry::say(question);
    let typed = read_keys(&mut io::stdin().lock()).map_err(failed);
    drop(silent);
    typed?.ok_or_else(|| Failure::new(exit::INTERRUPTED, "interrupted", "cancelled; no key was stored"))
}

/// Reads to the end of the line. None: Ctrl-C, or Ctrl-D with nothing typed.
fn read_keys(keys: &mut impl BufRead) -> io::Result<Option<Zeroizing<String>>> {
    // All of it at once, since a text that grows leaves copies behind.
    let mut typed = Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX));
    for key in keys.bytes() {
        match key? {
            b'\r' | b'\n' => break,
            CTRL_C => return Ok(None),
            CTRL_D if typed.is_empty() => return Ok(None),
            CTRL_D => break,
            CTRL_U => typed.clear(),
            key if BACKSPACE.contains(&key) => {
                typed.pop();
            }
            _ if typed.len() >= SECRET_BYTES_MAX => {
                return Err(io::Error::other(format!("more than {SECRET_BYTES_MAX} bytes were typed")));
            }
            key => typed.push(key),
        }
    }
    let text = std::str::from_utf8(&typed).map_err(|_| io::Error::other("what was typed is not UTF-8"))?;
    Ok(Some(Zeroizing::new(text.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keys: &[u8], expected: Option<&str>) {
        let typed = read_keys(&mut &*keys).unwrap();
        assert_eq!(typed.as_ref().map(|text| text.as_str()), expected);
    }

    #[test]
    fn a_line_is_read_with_its_corrections() {
        check(b"sk-1\nmore", Some("sk-1"));
        check(b"sk-12\x7f3\r", Some("sk-13"));
        check(b"wrong\x15sk-1\r", Some("sk-1"));
        check(b"sk-1\x04", Some("sk-1"));
    }

    #[test]
    fn ctrl_c_cancels_as_does_ctrl_d_on_an_empty_line() {
        check(b"sk-1\x03", None);
        check(b"\x04", None);
    }

    #[test]
    fn more_than_any_key_has_is_refused() {
        assert!(read_keys(&mut &*vec![b'x'; SECRET_BYTES_MAX + 1]).is_err());
    }
}
