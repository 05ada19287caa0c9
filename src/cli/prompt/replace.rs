//! Replacing a daemon that a client has started: when it is of another version, or has no key and we do. Never one that
//! a person or a service manager has started, that works, or that somebody else uses.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::discover::{DaemonFile, is_held};
use super::super::reach::Reached;
use super::super::{Failure, Globals, autostart, exit, human};
use super::{PromptArgs, outcome};
use crate::config::Loaded;
use crate::protocol::{DrainParams, Empty, Method, StatusResult};

/// A turn that has begun since we looked may take so long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(7);

/// The daemon ends within this.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// How often to look whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether the daemon should make room for one that we start.
pub(super) async fn is_due(reached: &Reached, args: &PromptArgs, globals: &Globals, loaded: &Loaded) -> bool {
    let is_other_version = reached.hello.server_info.version != env!("CARGO_PKG_VERSION");
    let lacks_our_key = outcome::key_trap(reached, args, globals, loaded).is_some();
    let data_dir = &loaded.paths.data_dir;
    let was_autostarted =
        DaemonFile::read(data_dir).is_some_and(|file| autostart::was_autostarted(data_dir, file.pid));
    if !(is_other_version || lacks_our_key) || !reached.is_local() || !was_autostarted {
        return false;
    }
    // A daemon that can't say how it is stays as it is.
    let status = reached.call::<_, StatusResult>(Method::Status, &Empty {}).await;
    status.is_ok_and(|status| status.counts.turns_running == 0 && status.counts.connections <= 1)
}

/// Stops it and waits until it is gone. Another command may have begun the same, or even have started the next one.
///
/// # Errors
/// When it refuses, or does not end.
pub(super) async fn stop(reached: Reached, loaded: &Loaded) -> Result<(), Failure> {
    let data_dir = &loaded.paths.data_dir;
    let pid = || DaemonFile::read(data_dir).map(|file| file.pid);
    let old = pid();
    let params = DrainParams { deadline_ms: Some(human::whole_ms(DRAIN_TIMEOUT)) };
    match reached.call::<_, Empty>(Method::Drain, &params).await {
        Ok(Empty {}) => {}
        Err(failure) if ["shutting_down", "connection_lost"].contains(&&*failure.kind) => {}
        Err(failure) => return Err(failure),
    }
    drop(reached);
    let deadline = Instant::now() + END_TIMEOUT;
    while is_held(data_dir) && pid().is_none_or(|pid| Some(pid) == old) {
        if Instant::now() >= deadline {
            let message = "the daemon that should be replaced does not end";
            return Err(Failure::new(exit::UNREACHABLE, "unresponsive", message).with_help("dshd stop"));
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}
