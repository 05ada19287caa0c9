//! `dshd approve` and `dshd reject`: answering from any terminal what a session's calls ask for.

use clap::Args;
use serde::Serialize;

use super::question::Question;
use super::reach::{self, Reached};
use super::{Failure, Globals, exit, listing, output};
use crate::event::SessionId;
use crate::protocol::{
    AnswerOutcome, Empty, ListedSession, Method, SubscribeParams, SubscribeResult, WaitingApproval,
};

/// Arguments of `dshd approve`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd approve
  dshd approve 3f9c
  dshd approve 3f9c --session-wide")]
pub struct ApproveArgs {
    /// The session; without it what waits is listed
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Which approval, or the beginning of its id, when several wait
    #[arg(long, value_name = "A", requires = "id")]
    pub approval: Option<String>,
    /// Allow the same for the rest of the session
    #[arg(long, requires = "id")]
    pub session_wide: bool,
}

/// Arguments of `dshd reject`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd reject 3f9c
  dshd reject 3f9c --approval 0190
  dshd reject")]
pub struct RejectArgs {
    /// The session; without it what waits is listed
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Which approval, or the beginning of its id, when several wait
    #[arg(long, value_name = "A", requires = "id")]
    pub approval: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    approvals: &'a [WaitingApproval],
}

/// Runs `dshd approve`.
pub(super) async fn run(args: ApproveArgs, globals: &Globals) -> Result<u8, Failure> {
    let outcome = if args.session_wide { AnswerOutcome::AllowSession } else { AnswerOutcome::AllowOnce };
    answer(args.id.as_deref(), args.approval.as_deref(), outcome, globals).await
}

/// Runs `dshd reject`.
pub(super) async fn reject(args: RejectArgs, globals: &Globals) -> Result<u8, Failure> {
    answer(args.id.as_deref(), args.approval.as_deref(), AnswerOutcome::Reject, globals).await
}

async fn answer(
    id: Option<&str>,
    approval: Option<&str>,
    outcome: AnswerOutcome,
    globals: &Globals,
) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let reached = reach::viewer(globals, &loaded).await?;
    let Some(id) = id else { return list(&reached, globals).await };
    let session = listing::find(&reached, id).await?;
    let question = choose(waiting(&reached, &session).await?, &session, approval)?;
    if outcome == AnswerOutcome::AllowSession && question.approval.rule.is_none() {
        return Err(Failure::usage("this call can be allowed once only".to_owned())
            .with_help(format!("dshd approve {session}")));
    }
    let Empty {} = reached.call(Method::Answer, &question.answer(outcome)).await?;
    if !globals.args.quiet && !globals.args.json {
        let word = match outcome {
            AnswerOutcome::AllowOnce => "allowed once",
            AnswerOutcome::AllowSession => "allowed for this session",
            AnswerOutcome::Reject => "rejected",
        };
        output::print(&format!("{word}\n{}\n", question.text()))?;
    }
    Ok(exit::OK)
}

/// What waits, everywhere.
async fn list(reached: &Reached, globals: &Globals) -> Result<u8, Failure> {
    let asking = |session: &ListedSession| session.approvals > 0 && session.parent_session_id.is_none();
    let mut all = Vec::new();
    for session in listing::list(reached, None, usize::MAX, asking).await? {
        all.extend(waiting(reached, &session.session_id).await?);
    }
    if globals.args.json {
        output::print_json(&Document { schema: "dshd.approvals/1", approvals: &all })?;
        return Ok(exit::OK);
    }
    if all.is_empty() {
        output::print("nothing waits for an approval\n")?;
    }
    for waiting in all {
        let question = Question { session: waiting.session_id, approval: waiting.approval };
        let (session, id) = (&question.session, &question.approval.id);
        output::print(&format!(
            "{session}  {id}\n{}\n  dshd approve {session} --approval {id}\n",
            question.text()
        ))?;
    }
    Ok(exit::OK)
}

/// What waits in a session; who asks follows it from then on, as who answers must.
async fn waiting(reached: &Reached, session: &SessionId) -> Result<Vec<WaitingApproval>, Failure> {
    let params = SubscribeParams {
        session_id: session.clone(),
        since: None,
        epoch: None,
        tree: None,
        children: std::collections::BTreeMap::new(),
    };
    Ok(reached.call::<_, SubscribeResult>(Method::Subscribe, &params).await?.approvals)
}

fn choose(
    waiting: Vec<WaitingApproval>,
    session: &SessionId,
    approval: Option<&str>,
) -> Result<Question, Failure> {
    let fits = |one: &WaitingApproval| approval.is_none_or(|wanted| one.approval.id.starts_with(wanted));
    let mut fitting: Vec<WaitingApproval> = waiting.into_iter().filter(fits).collect();
    if fitting.len() > 1 {
        let ids: Vec<&str> = fitting.iter().map(|one| one.approval.id.as_str()).collect();
        let help = format!("dshd approve {session} --approval {}", ids.join(" | "));
        return Err(Failure::usage(format!("{} calls wait for an approval", ids.len())).with_help(help));
    }
    let Some(one) = fitting.pop() else {
        let message = format!("nothing waits for an approval in session {session}");
        return Err(Failure::new(exit::REFUSED, "no_approval", message).with_help("dshd approve"));
    };
    Ok(Question { session: one.session_id, approval: one.approval })
}
