//! `dshd sessions`: lists sessions, closes them, deletes them.

mod remove;

use clap::Args;
use serde::Serialize;

use super::escape::one_line;
use super::reach::{self, Reached};
use super::table::Table;
use super::{Failure, Globals, exit, human, listing, offline, output, refusal};
use crate::clock::now_ms;
use crate::event::{SessionId, Totals};
use crate::protocol::{Empty, LastSeq, ListedSession, Method, Mode, SessionParams, SessionStatus};
use crate::store::Summary;

/// Arguments of `dshd sessions`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd sessions
  dshd sessions --running --json
  dshd sessions rm 3f9c a01b")]
pub struct SessionsArgs {
    /// What to do; without it the sessions are listed
    #[command(subcommand)]
    pub action: Option<SessionsAction>,
    /// List all, however many, and those of subagents
    #[arg(long, short)]
    pub all: bool,
    /// Only sessions of this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<std::path::PathBuf>,
    /// Only sessions that run
    #[arg(long)]
    pub running: bool,
    /// At most so many
    #[arg(short = 'n', value_name = "N", default_value_t = 50)]
    pub count: usize,
    /// Order of the list
    #[arg(long, value_enum, default_value_t, value_name = "BY")]
    pub sort: SortBy,
    /// Print no header
    #[arg(long)]
    pub no_header: bool,
}

/// What to do with sessions.
#[derive(Debug, clap::Subcommand)]
pub enum SessionsAction {
    /// End a session's agent; its log stays
    Close {
        /// The session
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Delete sessions for good, and those of their subagents
    Rm {
        /// The sessions
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SortBy {
    /// Newest first.
    #[default]
    Updated,
    /// Last made first.
    Created,
    /// By title.
    Title,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    sessions: Vec<Line<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    session_id: &'a SessionId,
    title: Option<&'a str>,
    cwd: &'a str,
    created_at: String,
    updated_at: String,
    status: SessionStatus,
    last_seq: LastSeq,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<Totals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_hit_percent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_session_id: Option<&'a SessionId>,
    /// What its agent may touch.
    #[serde(skip_serializing_if = "Option::is_none")]
    permission_mode: Option<Mode>,
    /// Approvals that wait.
    approvals: u64,
}

pub(super) async fn run(args: SessionsArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let reached = match reach::viewer(globals, &loaded).await {
        Ok(reached) => reached,
        Err(failure) if failure.kind == refusal::NO_DAEMON && args.action.is_none() => {
            let store = offline::store(failure, &loaded)?;
            let sessions = offline::list(&store).await?.into_iter().map(stored).collect();
            return show(sessions, &args, globals);
        }
        Err(failure) => return Err(failure),
    };
    match &args.action {
        Some(SessionsAction::Close { id }) => return close(&reached, id, globals).await,
        Some(SessionsAction::Rm { ids, yes }) => return remove::run(&reached, ids, *yes, globals).await,
        None => {}
    }
    // The order that is asked for decides which ones are shown, so all are needed unless it is the daemon's own.
    let needed = if args.sort == SortBy::Updated && !args.all { args.count } else { usize::MAX };
    let wanted = |session: &ListedSession| is_wanted(session, &args);
    let sessions = listing::list(&reached, cwd(&args, globals), needed, wanted).await?;
    show(sessions, &args, globals)
}

/// The directory that is asked for, as sessions name theirs.
fn cwd(args: &SessionsArgs, globals: &Globals) -> Option<String> {
    let cwd = globals.environment.cwd().join(args.cwd.as_deref()?);
    Some(cwd.canonicalize().unwrap_or(cwd).to_string_lossy().into_owned())
}

/// A session of the store, in which nothing runs.
fn stored(summary: Summary) -> ListedSession {
    ListedSession {
        session_id: summary.header.id,
        title: summary.title,
        cwd: summary.header.cwd,
        created_at: summary.header.created_at,
        updated_at: summary.updated_at,
        status: SessionStatus::Idle,
        last_seq: LastSeq(summary.last),
        totals: summary.totals,
        parent_session_id: summary.header.parent_session,
        permission_mode: summary.mode.map(Into::into),
        approvals: 0,
    }
}

/// A subagent's session is its parent's business: it is listed only when all are.
fn is_wanted(session: &ListedSession, args: &SessionsArgs) -> bool {
    (args.all || session.parent_session_id.is_none())
        && (!args.running || session.status == SessionStatus::Running)
}

fn show(mut sessions: Vec<ListedSession>, args: &SessionsArgs, globals: &Globals) -> Result<u8, Failure> {
    if let Some(cwd) = cwd(args, globals) {
        sessions.retain(|session| session.cwd == cwd);
    }
    sessions.retain(|session| is_wanted(session, args));
    sort(&mut sessions, args.sort);
    sessions.truncate(if args.all { usize::MAX } else { args.count });
    if globals.args.json {
        let sessions = sessions.iter().map(line).collect();
        output::print_json(&Document { schema: "dshd.sessions/1", sessions })?;
    } else {
        output::print(&text(&sessions, !args.no_header, globals))?;
    }
    Ok(exit::OK)
}

fn sort(sessions: &mut [ListedSession], by: SortBy) {
    match by {
        SortBy::Updated => {}
        SortBy::Created => sessions.sort_by_key(|session| std::cmp::Reverse(session.created_at)),
        SortBy::Title => sessions.sort_by(|a, b| a.title.cmp(&b.title)),
    }
}

fn line(session: &ListedSession) -> Line<'_> {
    Line {
        session_id: &session.session_id,
        title: session.title.as_deref(),
        cwd: &session.cwd,
        created_at: human::iso(session.created_at),
        updated_at: human::iso(session.updated_at),
        status: session.status,
        last_seq: session.last_seq,
        totals: session.totals,
        cache_hit_percent: session.totals.and_then(|totals| totals.cache_hit_percent()),
        parent_session_id: session.parent_session_id.as_ref(),
        permission_mode: session.permission_mode,
        approvals: session.approvals,
    }
}

fn text(sessions: &[ListedSession], has_header: bool, globals: &Globals) -> String {
    // What nobody tells takes no room.
    let counted = sessions.iter().any(|session| session.totals.is_some());
    let priced = sessions.iter().any(|session| session.totals.is_some_and(|totals| totals.cost.is_some()));
    let mut header = vec!["SESSION", "STATE", "UPDATED"];
    header.extend(counted.then_some(["TOKENS", "CACHED"]).into_iter().flatten());
    header.extend(priced.then_some("COST"));
    header.extend(["CWD", "TITLE"]);
    let mut table = Table::new(&header, has_header);
    let now = now_ms();
    for session in sessions {
        let state = match session.status {
            SessionStatus::Running if session.approvals > 0 => "approval?",
            SessionStatus::Running => "running",
            SessionStatus::Idle => "idle",
        };
        let updated = human::ago(now.saturating_sub(session.updated_at));
        let mut row = vec![session.session_id.to_string(), state.to_owned(), updated];
        if counted {
            row.push(used(session, |totals| Some(human::count(totals.usage.total_tokens))));
            row.push(used(session, |totals| Some(format!("{}%", totals.cache_hit_percent()?))));
        }
        if priced {
            row.push(used(session, |totals| Some(format!("{:.2}", totals.cost?.amount()))));
        }
        row.push(human::short_path(&session.cwd, &globals.environment));
        row.push(one_line(session.title.as_deref().unwrap_or_default(), usize::MAX));
        table.push(row);
    }
    table.text()
}

/// What a session has used, or a dash.
fn used(session: &ListedSession, part: impl Fn(Totals) -> Option<String>) -> String {
    session.totals.and_then(part).unwrap_or_else(|| "-".to_owned())
}

/// Answered when the agent is gone, however long its end takes; the daemon bounds that.
async fn close(reached: &Reached, id: &str, globals: &Globals) -> Result<u8, Failure> {
    let session_id = listing::find(reached, id).await?;
    let params = SessionParams { session_id: session_id.clone() };
    let Empty {} = reached.call_patiently(Method::Close, &params).await?;
    if !globals.args.quiet && !globals.args.json {
        output::print(&format!("closed {session_id}; its log stays\n"))?;
    }
    Ok(exit::OK)
}
