//! `session/list`: all sessions, newest first, page by page.

use std::cmp::Reverse;
use std::sync::Arc;

use super::caller::Caller;
use super::read::page_size;
use super::{Outcome, Started, invalid, wire_status};
use crate::event::SessionId;
use crate::protocol::{LastSeq, ListParams, ListResult, ListedSession};
use crate::rpc::RpcError;
use crate::runtime::Listed;
use crate::store::{ListQuery, Place};

/// Sessions of a page when the client does not say.
const SESSIONS: u64 = 50;

/// Sessions of a page at most.
const SESSIONS_MAX: u64 = 200;

/// Lists a page.
///
/// # Errors
/// `invalid_params`.
pub fn start(caller: &Arc<Caller>, params: ListParams) -> Result<Started, RpcError> {
    let size = page_size(params.limit, SESSIONS, SESSIONS_MAX)?;
    let after = params.cursor.as_deref().map(parse).transpose()?;
    let query = ListQuery { after, limit: size, cwd: params.cwd };
    let answer = caller.shared.runtime.list(query);
    let caller = Arc::clone(caller);
    Ok(Started::later(async move {
        let (sessions, more) = answer.await?;
        let next_cursor = sessions.last().filter(|_| more).map(cursor);
        let sessions = sessions.iter().map(|listed| wire(&caller, listed)).collect();
        Outcome::of(&ListResult { sessions, next_cursor })
    }))
}

/// A session's place in the list, as a client gives it back.
fn cursor(listed: &Listed) -> String {
    format!("{}:{}", listed.summary.updated_at, listed.summary.header.id)
}

fn parse(text: &str) -> Result<Place, RpcError> {
    let wrong = || invalid("cursor", "expected the nextCursor of a page before");
    let (updated_at, id) = text.split_once(':').ok_or_else(wrong)?;
    let updated_at = Reverse(updated_at.parse().map_err(|_| wrong())?);
    Ok(Place { updated_at, id: SessionId::new(id).map_err(|_| wrong())? })
}

fn wire(caller: &Caller, listed: &Listed) -> ListedSession {
    let summary = &listed.summary;
    let feed = caller.shared.runtime.loaded_feed(&summary.header.id);
    let approvals = feed.map_or(0, |feed| caller.shared.runtime.waiting(&feed).len() as u64);
    ListedSession {
        session_id: summary.header.id.clone(),
        title: summary.title.clone(),
        cwd: summary.header.cwd.clone(),
        created_at: summary.header.created_at,
        updated_at: summary.updated_at,
        status: wire_status(listed.status),
        last_seq: LastSeq(summary.last),
        totals: summary.totals,
        parent_session_id: summary.header.parent_session.clone(),
        permission_mode: summary.mode.map(Into::into),
        approvals,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_whatever_the_session_is_called() {
        let place = Place { updated_at: Reverse(7), id: SessionId::new("a:b:c").unwrap() };
        assert_eq!(parse("7:a:b:c").unwrap(), place);
        for wrong in ["nonsense", "x:s", "7:", "-1:s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn newer_sessions_come_first() {
        let at = |updated_at, id| Place { updated_at: Reverse(updated_at), id: SessionId::new(id).unwrap() };
        assert!(at(9, "z") < at(8, "a"));
        assert!(at(8, "a") < at(8, "b"));
    }
}
