//! `shutdown`: ends what belongs to this connection; on stdio, the process.

use std::sync::Arc;

use futures_util::future::join_all;

use super::caller::Caller;
use super::shared::Stop;
use super::{Outcome, Started, Then};
use crate::session::CloseCause;

/// Begins the end. The reply is the last thing.
pub fn start(caller: &Arc<Caller>) -> Started {
    let caller = Arc::clone(caller);
    if caller.defaults.owns_process {
        caller.shared.ask_to_stop(Stop::Now);
        return Started::later(async move {
            caller.shared.disposed.cancelled().await;
            Outcome::empty()
        });
    }
    caller.creations.close();
    Started::later(async move {
        caller.creations.wait().await;
        caller.follows.stop_all().await;
        let created = caller.take_created();
        let unheld = created.iter().filter(|session| !caller.shared.holders.any(session));
        let closes: Vec<_> =
            unheld.map(|session| caller.shared.runtime.close(session, CloseCause::Disposed)).collect();
        for closed in join_all(closes).await {
            if let Err(error) = closed {
                tracing::warn!(connection = caller.connection, %error, "a session could not be disposed of");
            }
        }
        Ok(Outcome::empty()?.then(Then::Leave))
    })
}
