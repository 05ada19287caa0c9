//! The text of a command for the model: standard output, standard error, then the facts of its end, one a line. What
//! does not fit is cut in the middle, and the file that has it is named.

use crate::event::SessionId;
use crate::process::{Captured, End, Spool, Stopped};
use crate::tool::clip::Text;

const STDERR: &str = "[stderr]\n";
const LOSSY: &str = "[some output was not valid UTF-8 and is shown as \u{FFFD}]";

/// Composes texts within a bound.
#[derive(Clone, Debug)]
pub(in crate::tool) struct Composer {
    /// Of a text.
    pub(in crate::tool) bytes_max: usize,
    /// Where what does not fit is kept; none: nowhere.
    pub(in crate::tool) spool: Option<Spool>,
}

impl Composer {
    /// The text, after `start` and before `facts`.
    pub(in crate::tool) async fn compose(
        &self,
        session: &SessionId,
        start: String,
        (mut stdout, mut stderr): (Captured, Captured),
        facts: Vec<String>,
    ) -> String {
        let mut text = start;
        let mut parts = Parts::new(&stdout, &stderr, facts);
        let (stdout_room, stderr_room) = parts.rooms(self.bytes_max.saturating_sub(text.len()));
        let too_long = (parts.stdout.len() > stdout_room, parts.stderr.len() > stderr_room);
        if too_long.0 || too_long.1 {
            if too_long.0 {
                self.keep(session, &mut stdout).await;
            }
            if too_long.1 {
                self.keep(session, &mut stderr).await;
            }
            parts = Parts { facts: parts.facts, stdout: Text::of(&stdout), stderr: Text::of(&stderr) };
        }
        let rooms = parts.rooms(self.bytes_max.saturating_sub(text.len()));
        parts.write(&mut text, rooms);
        text
    }

    /// Puts output that memory has whole into a file, since the text won't have it whole.
    async fn keep(&self, session: &SessionId, output: &mut Captured) {
        let Some(spool) = self.spool.clone().filter(|_| output.omitted == 0 && output.spooled.is_none())
        else {
            return;
        };
        let (session, bytes) = (session.clone(), output.head.clone());
        let kept = tokio::task::spawn_blocking(move || spool.keep(&session, &bytes)).await;
        match kept {
            Ok(Ok(spooled)) => output.spooled = Some(spooled),
            Ok(Err(error)) => tracing::warn!(%error, "a command's output can't be spooled"),
            Err(error) => tracing::error!(%error, "a command's output could not be spooled"),
        }
    }
}

struct Parts {
    stdout: Text,
    stderr: Text,
    facts: String,
}

impl Parts {
    fn new(stdout: &Captured, stderr: &Captured, mut facts: Vec<String>) -> Self {
        let (stdout, stderr) = (Text::of(stdout), Text::of(stderr));
        if stdout.lossy || stderr.lossy {
            facts.insert(0, LOSSY.to_owned());
        }
        Self { stdout, stderr, facts: facts.join("\n") }
    }

    fn rooms(&self, room: usize) -> (usize, usize) {
        let room = room.saturating_sub(STDERR.len() + 2 + self.facts.len());
        share(room, self.stdout.len(), self.stderr.len())
    }

    fn write(&self, text: &mut String, (stdout_room, stderr_room): (usize, usize)) {
        self.stdout.write(text, stdout_room);
        if !self.stderr.is_empty() {
            end_line(text);
            text.push_str(STDERR);
            self.stderr.write(text, stderr_room);
        }
        if !self.facts.is_empty() {
            end_line(text);
            text.push_str(&self.facts);
        }
        if text.is_empty() {
            text.push_str("(no output)");
        }
    }
}

/// What is told of a command's end beside its output.
pub(super) fn facts(end: End, stopped: Option<Stopped>, timeout_ms: u128) -> Vec<String> {
    let mut facts = Vec::new();
    if stopped == Some(Stopped::TimedOut) {
        facts.push(format!("[timed out after {timeout_ms} ms; the command was ended]"));
    }
    if end != End::Exited(0) {
        facts.push(format!("[{}]", end_text(end)));
    }
    facts
}

/// How a command ended.
pub(in crate::tool) fn end_text(end: End) -> String {
    match end {
        End::Exited(code) => format!("exit code: {code}"),
        End::Signalled(signal) => format!("killed by signal: {}", signal_name(signal)),
        End::Stuck => "killed, but a process of it hangs in the kernel".to_owned(),
    }
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned)
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Divides the room between two texts: whoever needs less than half leaves the rest to the other.
fn share(room: usize, first: usize, second: usize) -> (usize, usize) {
    let half = room / 2;
    if first + second <= room {
        (first, second)
    } else if second <= half {
        (room - second, second)
    } else if first <= half {
        (first, room - first)
    } else {
        (half, half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_shared_by_need() {
        assert_eq!(share(100, 10, 20), (10, 20));
        assert_eq!(share(100, 1000, 20), (80, 20));
        assert_eq!(share(100, 20, 1000), (20, 80));
        assert_eq!(share(100, 1000, 1000), (50, 50));
    }
}
