//! `dshd cancel`: cancels a session's turn.

use clap::Args;
use futures_util::future::try_join_all;
use serde::Serialize;

use super::reach::{self, Reached};
use super::{Failure, Globals, exit, listing, output};
use crate::event::SessionId;
use crate::protocol::{CancelParams, CancelResult, Empty, Method, SessionStatus, StatusResult};

/// Arguments of `dshd cancel`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd cancel 3f9c
  dshd cancel --all
  dshd cancel 3f9c --json")]
pub struct CancelArgs {
    /// The session
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub id: Option<String>,
    /// Every running session
    #[arg(long)]
    pub all: bool,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    sessions: Vec<Line>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    session_id: SessionId,
    /// Whether anything ran.
    cancelled: bool,
}

pub(super) async fn run(args: CancelArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let reached = reach::viewer(globals, &loaded).await?;
    let sessions = match &args.id {
        Some(id) => vec![listing::find(&reached, id).await?],
        None => running(&reached).await?,
    };
    let mut lines = Vec::with_capacity(sessions.len());
    for cancelled in try_join_all(sessions.into_iter().map(|id| cancel(&reached, id))).await? {
        lines.push(cancelled);
    }
    if globals.args.json {
        output::print_json(&Document { schema: "dshd.cancel/1", sessions: lines })?;
    } else if !globals.args.quiet {
        output::print(&text(&lines))?;
    }
    Ok(exit::OK)
}

async fn running(reached: &Reached) -> Result<Vec<SessionId>, Failure> {
    let status: StatusResult = reached.call(Method::Status, &Empty {}).await?;
    let running = status.sessions.into_iter().filter(|session| session.status == SessionStatus::Running);
    Ok(running.map(|session| session.session_id).collect())
}

/// Answered when the turn has ended, however long its end takes; the daemon bounds that.
async fn cancel(reached: &Reached, session_id: SessionId) -> Result<Line, Failure> {
    let params = CancelParams { session_id: session_id.clone(), message_id: None };
    let result: CancelResult = reached.call_patiently(Method::Cancel, &params).await?;
    Ok(Line { session_id, cancelled: result.cancelled })
}

fn text(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "nothing runs\n".to_owned();
    }
    let line = |line: &Line| {
        if line.cancelled {
            format!("cancelled {}\n", line.session_id)
        } else {
            format!("nothing runs in {}\n", line.session_id)
        }
    };
    lines.iter().map(line).collect()
}
