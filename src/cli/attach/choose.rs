//! Which session is meant.

use std::io::{self, IsTerminal as _, Write as _};

use super::super::escape::one_line;
use super::super::prompt::session::last;
use super::super::reach::Reached;
use super::super::{Failure, Globals, exit, human, listing};
use super::{AttachArgs, create};
use crate::clock::now_ms;
use crate::event::SessionId;
use crate::protocol::{InitializeParams, LastSeq, ListedSession, SessionStatus};

/// Sessions that are offered when several may be meant.
const OFFERED_MAX: usize = 9;

/// The session that the arguments name; without a name the only one that runs in this directory, else the one that is
/// chosen on the terminal.
pub(super) async fn session(
    reached: &Reached,
    args: &AttachArgs,
    globals: &Globals,
    hello: &InitializeParams,
) -> Result<ListedSession, Failure> {
    if let Some(id) = &args.id {
        return named(reached, id, args.create).await;
    }
    if args.last {
        let id = last(reached, hello).await?;
        return listed(reached, id).await;
    }
    let own = |session: &ListedSession| session.parent_session_id.is_none();
    let mut here = listing::list(reached, hello.cwd.clone(), usize::MAX, own).await?;
    let running: Vec<usize> =
        (0..here.len()).filter(|at| here[*at].status == SessionStatus::Running).collect();
    if let [only] = running.as_slice() {
        return Ok(here.swap_remove(*only));
    }
    let cwd = hello.cwd.as_deref().unwrap_or_default();
    if here.is_empty() {
        return Err(Failure::new(
            exit::NO_SESSION,
            "session_not_found",
            format!("there is no session in {cwd} yet"),
        )
        .with_help("dshd prompt TEXT begins one; dshd sessions --all shows those of other directories"));
    }
    here.truncate(OFFERED_MAX);
    if globals.args.no_input || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let names: Vec<&str> = here.iter().map(|session| session.session_id.as_str()).collect();
        return Err(Failure::usage(format!("several sessions are in {cwd}"))
            .with_help(format!("dshd attach ID: {}", names.join(", "))));
    }
    let at = pick(&here)?;
    Ok(here.swap_remove(at))
}

async fn named(reached: &Reached, id: &str, may_create: bool) -> Result<ListedSession, Failure> {
    match listing::find(reached, id).await {
        Ok(id) => listed(reached, id).await,
        Err(failure) if may_create && failure.code == exit::NO_SESSION => {
            let id = SessionId::new(id).map_err(|error| Failure::usage(format!("{id:?}: {error}")))?;
            create(reached, &id).await?;
            listed(reached, id).await
        }
        Err(failure) => Err(failure),
    }
}

/// What the list says of a session; one that nobody has prompted is not in it.
async fn listed(reached: &Reached, id: SessionId) -> Result<ListedSession, Failure> {
    let found = listing::list(reached, None, 1, |session| session.session_id == id).await?.pop();
    Ok(found.unwrap_or_else(|| ListedSession {
        session_id: id,
        title: None,
        cwd: String::new(),
        created_at: 0,
        updated_at: 0,
        status: SessionStatus::Idle,
        last_seq: LastSeq(None),
        totals: None,
        parent_session_id: None,
        permission_mode: None,
        approvals: 0,
    }))
}

/// Asks which one, by its number.
fn pick(sessions: &[ListedSession]) -> Result<usize, Failure> {
    let now = now_ms();
    let mut stderr = io::stderr();
    let failed =
        |error: io::Error| Failure::new(exit::REFUSED, "io", format!("cannot ask on this terminal: {error}"));
    for (at, session) in sessions.iter().enumerate() {
        let state = if session.status == SessionStatus::Running { "running" } else { "idle" };
        let title = one_line(session.title.as_deref().unwrap_or_default(), 50);
        let age = human::ago(now.saturating_sub(session.updated_at));
        writeln!(stderr, "{}  {}  {state}  {age}  {title}", at + 1, session.session_id).map_err(failed)?;
    }
    write!(stderr, "which one? [1] ").and_then(|()| stderr.flush()).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    let number = match answer.trim() {
        "" => 1,
        text => text.parse::<usize>().unwrap_or(0),
    };
    number
        .checked_sub(1)
        .filter(|at| *at < sessions.len())
        .ok_or_else(|| Failure::usage(format!("expected a number from 1 to {}", sessions.len())))
}
