//! What an agent may do beyond its permission mode: what a call says that it needs, and who is asked for it.
//!
//! A tool knows what a call needs; the session knows who can be asked. The turn stands between them.

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::event::ToolErrorInfo;

/// Longest command, and longest diff, that somebody is asked to allow: what is allowed is shown whole.
pub const SHOWN_BYTES_MAX: usize = 64 * 1024;

/// What a call needs that the session's mode does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// What, as the end of a sentence: `may not write /etc/x: ...`.
    pub reason: String,
    /// The command that would run.
    pub command: Option<String>,
    /// What would change, as a unified diff.
    pub diff: Option<String>,
    /// The code of a call that is not allowed.
    pub denied: ToolErrorInfo,
    /// What later calls must be to be allowed with this one for the session; none: they are asked for anew.
    pub rule: Option<String>,
}

impl Need {
    /// Whether somebody can see all of it.
    pub fn is_showable(&self) -> bool {
        [&self.command, &self.diff].into_iter().flatten().all(|text| text.len() <= SHOWN_BYTES_MAX)
    }
}

/// A call that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The tool.
    pub tool: String,
    /// The call.
    pub call_id: String,
    /// What it needs.
    pub need: Need,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call runs, as if the mode were full access.
    Allowed,
    /// It does not; by whom.
    Rejected {
        /// Who said so; none: its time was over.
        by: Option<String>,
    },
    /// The turn ends.
    Cancelled,
    /// Nobody is there who can answer.
    Unavailable,
    /// The session does not ask.
    Never,
}

/// Asks for an approval. A trait because the arrow is turned around: sessions, above, know who can answer.
pub trait Approver: Send + Sync {
    /// Asks, and waits for the answer; returns soon after `cancel`.
    fn ask<'a>(&'a self, ask: Ask, cancel: &'a CancellationToken) -> BoxFuture<'a, Verdict>;
}
