//! `session/read`: a page of events, without following the session.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::caller::Caller;
use super::{Outcome, Started, invalid};
use crate::protocol::{LastSeq, PositiveInt, ReadParams, ReadResult};
use crate::rpc::{ErrorKind, RpcError};
use crate::store::{PageLimit, StoredLine};

/// Events of a page when the client does not say.
const EVENTS: u64 = 200;

/// Events of a page at most.
const EVENTS_MAX: u64 = 1000;

/// Bytes of a page at most, unless one event is longer.
const PAGE_BYTES: usize = 256 * 1024;

/// Reads a page.
///
/// # Errors
/// `invalid_params`.
pub fn start(caller: &Arc<Caller>, params: &ReadParams) -> Result<Started, RpcError> {
    let events = page_size(params.limit, EVENTS, EVENTS_MAX)?;
    let after = params.since.and_then(|since| since.0);
    let limit = PageLimit { events, bytes: PAGE_BYTES };
    let answer = caller.shared.runtime.read(&params.session_id, after, limit);
    Ok(Started::later(async move {
        let (page, position) = answer.await?;
        let next_since = page.lines.last().filter(|_| page.more).map(|line| line.seq);
        let events = page.lines.iter().map(raw).collect::<Result<_, RpcError>>()?;
        let result =
            ReadResult { events, epoch: position.epoch, last_seq: LastSeq(position.last), next_since };
        Outcome::of(&result)
    }))
}

/// A page's size that a client asks for.
pub(super) fn page_size(asked: Option<PositiveInt>, default: u64, max: u64) -> Result<usize, RpcError> {
    let size = asked.map_or(default, |asked| asked.0);
    match usize::try_from(size) {
        Ok(events) if size <= max => Ok(events),
        Ok(_) | Err(_) => Err(invalid("limit", &format!("expected an integer from 1 to {max}, got {size}"))),
    }
}

fn raw(line: &StoredLine) -> Result<Box<RawValue>, RpcError> {
    serde_json::from_slice(&line.json).map_err(|error| {
        RpcError::new(ErrorKind::Internal, format!("event {} can't be read back: {error}", line.seq))
    })
}
