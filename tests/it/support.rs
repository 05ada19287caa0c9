//! What the tests stand on: a home of their own, a daemon in it, raw peers that speak lines to it.
//!
//! Every wait has a deadline and fails the test with what was seen so far. Nothing is shared between tests.

mod daemon;
mod fake;
mod home;
mod peer;
mod proxy;
mod random;
mod script;
mod terminal;

use std::future::Future;
use std::time::Duration;

pub(crate) use self::daemon::Daemon;
pub(crate) use self::fake::{Fake, hello_of};
pub(crate) use self::home::{Home, Ran, SANDBOX, finish};
pub(crate) use self::peer::Peer;
pub(crate) use self::proxy::Proxy;
pub(crate) use self::random::{Random, number, seed};
pub(crate) use self::script::{assert_dense, of_type};
pub(crate) use self::terminal::Terminal;

/// The longest that anything may take before a test fails: long, since machines are slow when they are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Awaits at most [`PATIENCE`].
#[track_caller]
pub(crate) fn within<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(tokio::time::error::Elapsed { .. }) => {
                panic!("{what}: nothing within {PATIENCE:?} ({caller})")
            }
        }
    }
}
