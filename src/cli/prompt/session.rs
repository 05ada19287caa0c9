//! Which session a prompt goes to.

use super::super::listing;
use super::super::reach::Reached;
use super::super::{Failure, exit};
use super::PromptArgs;
use crate::event::SessionId;
use crate::protocol::{InitializeParams, ListedSession, Method, PositionResult, SessionParams};

/// Finds the session that the flags name, or draws a new id.
///
/// # Errors
/// For the user: no session to go on with, or flags that only a new session takes.
pub(super) async fn choose(
    reached: &Reached,
    args: &PromptArgs,
    initialize: &InitializeParams,
) -> Result<SessionId, Failure> {
    if args.last {
        let id = last(reached, initialize).await?;
        refuse_settings(args, &id)?;
        return Ok(id);
    }
    let Some(id) = &args.session else {
        return Ok(SessionId::random());
    };
    let id = SessionId::new(id).map_err(|error| Failure::usage(format!("{id:?}: {error}")))?;
    if settings(args).is_some() && exists(reached, &id).await? {
        refuse_settings(args, &id)?;
    }
    Ok(id)
}

pub(in super::super) async fn last(
    reached: &Reached,
    initialize: &InitializeParams,
) -> Result<SessionId, Failure> {
    // Nobody means a subagent's session by "the last one".
    let own = |session: &ListedSession| session.parent_session_id.is_none();
    let found = listing::list(reached, initialize.cwd.clone(), 1, own).await?;
    found.into_iter().next().map(|session| session.session_id).ok_or_else(|| {
        let cwd = initialize.cwd.as_deref().unwrap_or_default();
        Failure::new(exit::NO_SESSION, "session_not_found", format!("there is no session in {cwd} yet"))
            .with_help("dshd prompt TEXT, without -c; or dshd sessions --all")
    })
}

async fn exists(reached: &Reached, id: &SessionId) -> Result<bool, Failure> {
    let params = SessionParams { session_id: id.clone() };
    match reached.call::<_, PositionResult>(Method::Resume, &params).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.code == exit::NO_SESSION => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The first flag given that only a new session takes.
fn settings(args: &PromptArgs) -> Option<&'static str> {
    let given = [
        ("--model", args.model.is_some()),
        ("--effort", args.effort.is_some()),
        ("--mode", args.mode.is_some()),
    ];
    given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
}

fn refuse_settings(args: &PromptArgs, id: &SessionId) -> Result<(), Failure> {
    match settings(args) {
        Some(flag) => Err(Failure::usage(format!("{flag} is for new sessions, and session {id} exists"))
            .with_help(format!("leave {flag} out, or begin a session without -s and -c"))),
        None => Ok(()),
    }
}
