//! Writing results to stdout: a reader that goes away ends the command quietly.

use std::io::{self, Write};

use serde::Serialize;

use super::{Failure, exit};

/// Writes text as it is.
///
/// # Errors
/// [`Failure::broken_pipe`] when the reader is gone, else the I/O error.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(stdout_failed)
}

/// Writes text byte for byte, colours and all.
///
/// # Errors
/// As [`print()`].
pub(super) fn print_raw(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(stdout_failed)
}

/// Writes one JSON document and a line end.
///
/// # Errors
/// As [`print()`].
pub(super) fn print_json<T: Serialize>(document: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(document)
        .map_err(|error| Failure::bug(format!("cannot write the result as JSON: {error}")))?;
    print(&(text + "\n"))
}

/// What a failed write to stdout means for the command.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(super) fn stdout_failed(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::broken_pipe();
    }
    Failure::new(exit::REFUSED, "io", format!("cannot write to stdout: {error}"))
}
