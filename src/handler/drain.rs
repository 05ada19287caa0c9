//! `server/drain`: stops the daemon as SIGTERM does.

use std::sync::Arc;
use std::time::Duration;

use super::Started;
use super::caller::Caller;
use super::shared::Stop;
use crate::protocol::{DrainParams, Empty};

/// Asks the daemon to stop, and answers at once.
pub fn start(caller: &Arc<Caller>, params: DrainParams) -> Started {
    tracing::info!(connection = caller.connection, "a client asks the daemon to stop");
    caller.shared.ask_to_stop(Stop::Drain(params.deadline_ms.map(Duration::from_millis)));
    Started::now(&Empty {})
}
