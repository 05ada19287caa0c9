//! A response that streams, read against deadlines.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::gate::Permit;
use crate::config::ProviderConfig;
use crate::provider::CallError;
use crate::provider::failure::Blame;

/// How long a stream may stay open after the model has finished.
const AFTER_FINISH: Duration = Duration::from_secs(5);
/// How long the end of a body may take after the stream's last event; then the connection is given up.
const END_WAIT: Duration = Duration::from_millis(10);

/// How far an answer is, which decides how long to wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) enum Progress {
    /// Nothing has been said.
    Waiting,
    /// The model speaks.
    Speaking,
    /// The model has finished; only figures may follow.
    Finished,
}

/// A response that streams. Dropping it drops the connection's stream.
pub(in crate::provider) struct Body<'e> {
    pub(super) response: Response,
    pub(super) blame: Blame<'e>,
    pub(super) config: &'e ProviderConfig,
    pub(super) first_token: Instant,
    /// The call's place at its provider, kept until all has been read.
    pub(super) _permit: Permit,
}

impl<'e> Body<'e> {
    pub(in crate::provider) fn blame(&self) -> Blame<'e> {
        self.blame
    }

    /// What has arrived already, if anything has; `Some(Ok(None))` at the end.
    pub(in crate::provider) fn arrived(&mut self) -> Option<Result<Option<Bytes>, CallError>> {
        let read = self.response.chunk().now_or_never()?;
        Some(read.map_err(|error| self.blame.transport(error)))
    }

    /// Waits a moment for the end of the body, after which the connection can be used again.
    pub(in crate::provider) async fn end(&mut self) {
        let deadline = Instant::now() + END_WAIT;
        while let Ok(Ok(Some(_))) = timeout_at(deadline, self.response.chunk()).await {}
    }

    /// Waits for more; `None` at the end.
    ///
    /// # Errors
    /// A broken connection, or silence for too long.
    pub(in crate::provider) async fn read(&mut self, progress: Progress) -> Result<Option<Bytes>, CallError> {
        let (blame, now, first_token) = (self.blame, Instant::now(), self.first_token);
        let idle_timeout = self.config.idle_timeout;
        let idle = now + idle_timeout;
        let deadline = match progress {
            Progress::Waiting => idle.min(first_token),
            Progress::Speaking => idle,
            Progress::Finished => now + AFTER_FINISH.min(idle_timeout),
        };
        match timeout_at(deadline, self.response.chunk()).await {
            Ok(read) => read.map_err(|error| blame.transport(error)),
            Err(_) if progress == Progress::Waiting && first_token <= idle => {
                Err(blame.timeout("the model said nothing", self.config.first_token_timeout))
            }
            Err(_) => Err(blame.timeout("the model fell silent: nothing came", idle_timeout)),
        }
    }
}
