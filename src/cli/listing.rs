//! The daemon's sessions, page by page, and the one that a user means by the beginning of its id.

use super::reach::Reached;
use super::{Failure, exit};
use crate::event::SessionId;
use crate::protocol::{
    ListParams, ListResult, ListedSession, Method, PositiveInt, QueueResult, SessionParams,
};

/// Sessions asked for at once.
const PAGE: PositiveInt = PositiveInt(200);

/// Pages that are read at most; a daemon that says there are always more is not believed for ever.
const PAGES_MAX: usize = 5000;

/// Candidates named when the beginning of an id fits several.
const CANDIDATES_MAX: usize = 5;

/// Lists sessions, newest first, until `count` of them are `wanted`.
///
/// # Errors
/// For the user.
pub(super) async fn list(
    reached: &Reached,
    cwd: Option<String>,
    count: usize,
    wanted: impl Fn(&ListedSession) -> bool,
) -> Result<Vec<ListedSession>, Failure> {
    let mut found = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let params = ListParams { cursor, limit: Some(PAGE), cwd: cwd.clone() };
        let page: ListResult = reached.call(Method::List, &params).await?;
        found.extend(page.sessions.into_iter().filter(|session| wanted(session)));
        cursor = page.next_cursor;
        if cursor.is_none() || found.len() >= count {
            break;
        }
    }
    found.truncate(count);
    Ok(found)
}

/// The session that a user means: that of this id, else the only one whose id begins so.
///
/// # Errors
/// For the user: none, or several.
pub(super) async fn find(reached: &Reached, id: &str) -> Result<SessionId, Failure> {
    let whole = SessionId::new(id).map_err(|error| Failure::usage(format!("{id:?}: {error}")))?;
    let params = SessionParams { session_id: whole.clone() };
    match reached.call::<_, QueueResult>(Method::Queue, &params).await {
        Ok(_) => return Ok(whole),
        Err(failure) if failure.code == exit::NO_SESSION => {}
        Err(failure) => return Err(failure),
    }
    let wanted = |session: &ListedSession| session.session_id.as_str().starts_with(id);
    let found = list(reached, None, usize::MAX, wanted).await?;
    choose(id, found.into_iter().map(|session| session.session_id).collect())
}

/// Chooses among the sessions whose id begins with `id`.
///
/// # Errors
/// For the user: none, or several.
pub(super) fn choose(id: &str, mut found: Vec<SessionId>) -> Result<SessionId, Failure> {
    if let Some(at) = found.iter().position(|found| found.as_str() == id) {
        return Ok(found.swap_remove(at));
    }
    match found.as_slice() {
        [] => Err(Failure::new(exit::NO_SESSION, "session_not_found", format!("there is no session {id}"))
            .with_help("dshd sessions --all")),
        [only] => Ok(only.clone()),
        several => {
            let names: Vec<&str> = several.iter().take(CANDIDATES_MAX).map(SessionId::as_str).collect();
            Err(Failure::usage(format!("{} sessions begin with {id}", several.len()))
                .with_help(format!("give more of the id: {}", names.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> Vec<SessionId> {
        ids.iter().map(|id| SessionId::new(id).unwrap()).collect()
    }

    #[test]
    fn a_whole_id_wins_over_those_that_begin_with_it() {
        assert_eq!(choose("a", ids(&["ab", "a", "ac"])).unwrap().as_str(), "a");
    }

    #[test]
    fn a_beginning_must_fit_one_session() {
        assert_eq!(choose("a", ids(&["abc"])).unwrap().as_str(), "abc");
        assert_eq!(choose("a", ids(&[])).unwrap_err().code, exit::NO_SESSION);
        let failure = choose("a", ids(&["ab", "ac"])).unwrap_err();
        assert_eq!(failure.code, exit::USAGE);
        assert_eq!(failure.help.as_deref(), Some("give more of the id: ab, ac"));
    }
}
