//! `session/list`: all sessions, newest first, page by page.

use std::sync::Arc;

use super::caller::Caller;
use super::read::page_size;
use super::{Outcome, Started, invalid, wire_status};
use crate::protocol::{LastSeq, ListParams, ListResult, ListedSession};
use crate::rpc::RpcError;
use crate::runtime::Listed;

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
    let after = params.cursor.as_deref().map(Place::parse).transpose()?;
    let answer = caller.shared.runtime.list();
    Ok(Started::later(async move {
        let mut all = answer.await?;
        all.retain(|listed| params.cwd.as_ref().is_none_or(|cwd| listed.summary.header.cwd == *cwd));
        all.sort_by_cached_key(Place::of);
        let from = after.map_or(0, |after| all.partition_point(|listed| Place::of(listed) <= after));
        let page: Vec<&Listed> = all[from..].iter().take(size).collect();
        let more = from + page.len() < all.len();
        let next_cursor = page.last().filter(|_| more).map(|last| Place::of(last).text());
        Outcome::of(&ListResult { sessions: page.into_iter().map(wire).collect(), next_cursor })
    }))
}

/// A session's place in the list: the newest first, then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    updated_at: std::cmp::Reverse<u64>,
    id: String,
}

impl Place {
    fn of(listed: &Listed) -> Self {
        let summary = &listed.summary;
        Self { updated_at: std::cmp::Reverse(summary.updated_at), id: summary.header.id.as_str().to_owned() }
    }

    fn text(&self) -> String {
        format!("{}:{}", self.updated_at.0, self.id)
    }

    fn parse(text: &str) -> Result<Self, RpcError> {
        let wrong = || invalid("cursor", "expected the nextCursor of a page before");
        let (updated_at, id) = text.split_once(':').ok_or_else(wrong)?;
        let updated_at = std::cmp::Reverse(updated_at.parse().map_err(|_| wrong())?);
        Ok(Self { updated_at, id: id.to_owned() })
    }
}

fn wire(listed: &Listed) -> ListedSession {
    let summary = &listed.summary;
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_whatever_the_session_is_called() {
        let place = Place { updated_at: std::cmp::Reverse(7), id: "a:b:c".to_owned() };
        assert_eq!(Place::parse(&place.text()).unwrap(), place);
        assert!(Place::parse("nonsense").is_err());
        assert!(Place::parse("x:s").is_err());
    }

    #[test]
    fn newer_sessions_come_first() {
        let at =
            |updated_at, id: &str| Place { updated_at: std::cmp::Reverse(updated_at), id: id.to_owned() };
        assert!(at(9, "z") < at(8, "a"));
        assert!(at(8, "a") < at(8, "b"));
    }
}
