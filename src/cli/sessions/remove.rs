//! `dshd sessions rm`: deletes sessions for good.

use std::io::{self, IsTerminal, Write as _};

use super::super::escape::one_line;
use super::super::reach::Reached;
use super::super::{Failure, Globals, exit, listing, output};
use crate::event::SessionId;
use crate::protocol::{Empty, Method, SessionParams};

/// Deletes them, after a yes. All are found before the first is deleted.
pub(super) async fn run(
    reached: &Reached,
    ids: &[String],
    yes: bool,
    globals: &Globals,
) -> Result<u8, Failure> {
    let mut sessions = Vec::new();
    for id in ids {
        let session = listing::find(reached, id).await?;
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }
    if !yes && !agreed(&sessions, globals)? {
        return Ok(exit::REFUSED);
    }
    for session_id in sessions {
        let params = SessionParams { session_id: session_id.clone() };
        let Empty {} = reached.call_patiently(Method::Delete, &params).await?;
        if !globals.args.quiet && !globals.args.json {
            output::print(&format!("deleted {session_id}\n"))?;
        }
    }
    Ok(exit::OK)
}

/// Asks on the terminal. What was typed is read by the line.
fn agreed(sessions: &[SessionId], globals: &Globals) -> Result<bool, Failure> {
    if globals.args.no_input || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage("sessions are deleted for good, and nobody can be asked here")
            .with_help("pass -y to delete them"));
    }
    let names: Vec<String> = sessions.iter().map(|session| one_line(session.as_str(), 80)).collect();
    let mut stderr = io::stderr();
    let failed =
        |error: io::Error| Failure::new(exit::REFUSED, "io", format!("cannot ask on this terminal: {error}"));
    write!(stderr, "delete {} for good? [y/N] ", names.join(", "))
        .and_then(|()| stderr.flush())
        .map_err(failed)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
