//! The order of the end: nothing new, creations, turns, agents, connections, the rest. Every failure is collected; none
//! stops what follows.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::core::Core;
use crate::config::Config;
use crate::handler::shared::Phase;
use crate::shutdown::Scope;

/// What was queued for peers is written within this.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// Agents end within this beyond `shutdown.cancel_grace`; the runtime has a bound of its own below it.
const DISPOSE_MAX: Duration = Duration::from_secs(8);

/// Of an end that nobody waits for: official SDKs send SIGTERM one second after the reply.
/// Tools are killed after twice the grace, see `session::actor`.
const HURRIED_GRACE: Duration = Duration::from_millis(100);
const HURRIED_DISPOSE_MAX: Duration = Duration::from_millis(450);
const HURRIED_FLUSH_MAX: Duration = Duration::from_millis(200);

/// Tasks that were told to stop are given this.
const ABORT_WAIT: Duration = Duration::from_millis(100);

/// How long each part of the end may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Creations under way, then running turns.
    drain: Duration,
    /// Replaces `shutdown.cancel_grace`.
    cancel_grace: Option<Duration>,
    /// Agents.
    dispose_max: Duration,
    /// What is queued for peers.
    flush_max: Duration,
}

impl Plan {
    /// Of a daemon: its turns may finish.
    pub(super) fn daemon(config: &Config, deadline: Option<Duration>) -> Self {
        Self {
            drain: deadline.unwrap_or(config.shutdown.drain_timeout),
            cancel_grace: None,
            dispose_max: config.shutdown.cancel_grace + DISPOSE_MAX,
            flush_max: FLUSH_MAX,
        }
    }

    /// On stdio after `shutdown` or a signal: nobody waits.
    pub(super) fn at_once() -> Self {
        Self {
            drain: Duration::ZERO,
            cancel_grace: Some(HURRIED_GRACE),
            dispose_max: HURRIED_DISPOSE_MAX,
            flush_max: HURRIED_FLUSH_MAX,
        }
    }

    /// On stdio after the end of the input: what was in flight is answered already.
    pub(super) fn input_ended() -> Self {
        Self { drain: Duration::ZERO, cancel_grace: None, dispose_max: DISPOSE_MAX, flush_max: FLUSH_MAX }
    }

    /// Whether nobody waits.
    pub(super) fn is_hurried(&self) -> bool {
        self.cancel_grace.is_some()
    }

    /// Beyond this something is wedged.
    pub(super) fn longest(&self) -> Duration {
        2 * self.drain + self.dispose_max + self.flush_max + FLUSH_MAX
    }
}

/// Ends everything, in order. `hurry`: no more waiting. Says what failed.
pub(super) async fn end(
    core: &Core,
    plan: &Plan,
    hurry: &CancellationToken,
    listening: Option<&Scope>,
) -> Vec<String> {
    let mut failures = Vec::new();
    tracing::info!(deadline_ms = plan.drain.as_millis(), "stopping");
    core.runtime.stop_taking();
    core.phase.send_replace(Phase::Draining { deadline: plan.drain });

    let creations = core.runtime.creations_done();
    if unless(hurry, timeout(plan.drain.max(ABORT_WAIT), creations)).await.is_some_and(|done| done.is_err()) {
        failures.push("sessions were still being opened".to_owned());
    }
    if core.runtime.is_busy() && !plan.drain.is_zero() {
        let done = unless(hurry, core.runtime.turns_done(plan.drain)).await;
        tracing::info!(finished = done == Some(true), "running turns had their time");
    }
    // Until here new peers were served too: they may look, and cancel.
    if let Some(listening) = listening {
        listening.drain();
        if !listening.wait(FLUSH_MAX).await {
            failures.push("a listener did not close".to_owned());
        }
    }
    if let Some(grace) = plan.cancel_grace {
        core.config.send_modify(|config| std::sync::Arc::make_mut(config).shutdown.cancel_grace = grace);
    }
    match timeout(plan.dispose_max, core.runtime.end()).await {
        Ok(failed) => failures.extend(failed),
        Err(_) => failures.push("sessions did not end in time".to_owned()),
    }
    // What nobody has ended, e.g. because its session did not end in time.
    crate::process::end_all().await;
    core.shared.disposed.cancel();

    core.connections.drain();
    let mut flushed = unless(hurry, core.connections.wait(plan.flush_max)).await;
    if flushed.is_none() {
        // Peers that read hear how their turns ended, however little time there is.
        flushed = Some(core.connections.wait(HURRIED_FLUSH_MAX.min(plan.flush_max)).await);
    }
    if flushed != Some(true) {
        core.connections.abort();
        if !core.connections.wait(ABORT_WAIT).await {
            failures.push(format!("{} connections did not end", core.connections.len()));
        }
    }
    core.tasks.abort();
    if !core.tasks.wait(ABORT_WAIT).await {
        tracing::warn!(tasks = core.tasks.len(), "tasks outlive the runtime");
    }
    tracing::info!(failures = failures.len(), "stopped");
    failures
}

/// The work's output, or none when the process is hurried.
async fn unless<T>(hurry: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = hurry.cancelled() => None,
        output = work => Some(output),
    }
}
