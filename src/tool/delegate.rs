//! Delegation, seen from the tool: the arrow to sessions turned around.

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::event::{Block, PermissionMode, SessionId, StopReason};

/// What is delegated.
#[derive(Clone, Debug)]
pub struct Delegation {
    /// The call that it is for.
    pub call_id: String,
    /// What it is for, in a few words.
    pub description: String,
    /// What the other agent is told.
    pub prompt: String,
    /// Where it works, absolute; none: where its parent does.
    pub cwd: Option<PathBuf>,
    /// What it may touch: what its parent may now.
    pub mode: PermissionMode,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Delegated {
    /// The session that did it.
    pub child: SessionId,
    /// Why it stopped.
    pub stop: StopReason,
    /// Why, for a person, when not because it had said all.
    pub detail: Option<String>,
    /// What it said last.
    pub answer: Option<Vec<Block>>,
}

/// Why nothing was delegated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DelegateError {
    /// As many subagents as allowed run already.
    #[error(
        "{max} subagents run already, which is the limit (limits.subagents); call again when one has ended"
    )]
    Full {
        /// `limits.subagents`.
        max: usize,
    },
    /// The child session could not be made or prompted.
    #[error("the subagent could not be started: {0}")]
    Failed(String),
}

/// Runs another agent to its end.
pub trait Delegate: Send + Sync {
    /// Delegates and waits for the end. After `cancel` the other agent is ended and its end waited for; dropping the
    /// future ends it, too.
    fn delegate<'a>(
        &'a self,
        delegation: Delegation,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Delegated, DelegateError>>;
}
