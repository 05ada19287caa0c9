//! Running the calls of one answer, in the model's order: log, then act, then log what came of it.

use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::step::{Call, Withheld};
use super::{FactEvent, Lost, Stop, Turn};
use crate::event::{
    Block, EventBody, Failure, FailureCode, Message, PermissionMode, Role, Seq, Source, SourceKind,
    ToolCallStarted, ToolErrorInfo, ToolResult, TurnEndReason,
};
use crate::policy::{Ask, Need, Verdict};
use crate::tool::{Effect, Guard, ToolContext, ToolOutput};

/// Calls of one answer that run beside each other.
const CALLS_AT_ONCE_MAX: usize = 8;

/// Counts identical calls in a row.
#[derive(Debug)]
pub(super) struct Repeats {
    remind_at: u32,
    stop_at: u32,
    last: Option<(String, String)>,
    count: u32,
    reminder: Option<String>,
}

impl Repeats {
    /// Reminds at the `remind_at`-th identical call, stops at the `stop_at`-th.
    pub(super) fn new(remind_at: u32, stop_at: u32) -> Self {
        Self { remind_at, stop_at, last: None, count: 0, reminder: None }
    }

    /// What to remind the model of, once.
    pub(super) fn take_reminder(&mut self) -> Option<String> {
        self.reminder.take()
    }

    /// Notes a call; says why the turn must end, if it must.
    fn note(&mut self, call: &Call) -> Option<Failure> {
        let same = self
            .last
            .as_ref()
            .is_some_and(|(name, arguments)| *name == call.name && *arguments == call.arguments);
        if same {
            self.count += 1;
        } else {
            self.count = 1;
            self.last = Some((call.name.clone(), call.arguments.clone()));
        }
        let (count, name) = (self.count, &call.name);
        if count == self.remind_at {
            self.reminder = Some(format!(
                "You have called {name} {count} times in a row with the same arguments. The result will not change: \
                 use what you have, or try something else."
            ));
        }
        (count >= self.stop_at).then(|| {
            let message = format!("the model called {name} {count} times in a row with the same arguments");
            Failure::new(FailureCode::RepeatedCall, message)
        })
    }
}

/// A call, and why it does not run, if it does not.
struct Planned<'a> {
    call: &'a Call,
    refused: Option<&'static str>,
}

impl Turn {
    /// Runs the calls: those that only look or delegate beside each other, others one by one, all in the model's order.
    /// Says how the turn ends, if it does.
    pub(super) async fn run_calls(
        &mut self,
        step: u32,
        calls: &[Call],
        repeats: &mut Repeats,
    ) -> Result<Option<TurnEndReason>, Stop> {
        let (planned, ends) = plan(calls, repeats);
        let mut rest = planned.as_slice();
        while !rest.is_empty() {
            let beside = rest.iter().take_while(|planned| self.runs_beside(planned)).count().max(1);
            let (batch, after) = rest.split_at(beside);
            self.run_batch(step, batch).await?;
            rest = after;
        }
        Ok(ends)
    }

    fn runs_beside(&self, planned: &Planned<'_>) -> bool {
        let tool = planned.refused.is_none().then(|| self.offer.get(&planned.call.name)).flatten();
        tool.is_none_or(|tool| tool.effect() != Effect::Acts)
    }

    async fn run_batch(&mut self, step: u32, batch: &[Planned<'_>]) -> Result<(), Stop> {
        let turn = &*self;
        let mut told = Vec::with_capacity(batch.len());
        let mut runs = Vec::with_capacity(batch.len());
        for planned in batch {
            runs.push(turn.run_call(step, planned).boxed());
        }
        let mut outputs = stream::iter(runs).buffered(CALLS_AT_ONCE_MAX);
        while let Some(output) = outputs.next().await {
            let (call, started, output) = output?;
            told.push(turn.tell_result(step, call, started, output).await?);
        }
        drop(outputs);
        self.conversation.extend(told);
        Ok(())
    }

    async fn run_call<'a>(
        &self,
        step: u32,
        planned: &Planned<'a>,
    ) -> Result<(&'a Call, Option<Seq>, ToolOutput), Lost> {
        let call = planned.call;
        let cancelled = self.cancel.is_cancelled().then_some("the turn was cancelled");
        if let Some(why) = planned.refused.or(cancelled) {
            return Ok((call, None, not_started(why)));
        }
        let tool = self.offer.get(&call.name);
        let mut context = self.tool_context(call);
        if let Some(tool) = &tool
            && let Some(need) = tool.needs(&call.arguments, &context).await
        {
            if let Err(refused) = self.approve(call, need).await {
                return Ok((call, None, refused));
            }
            context.mode = PermissionMode::FullAccess;
            context.guard = Guard::default();
        }
        let started = vec![FactEvent::from(EventBody::ToolCall(ToolCallStarted {
            turn: self.number,
            step,
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        }))];
        let looks = tool.as_ref().is_none_or(|tool| tool.effect() == Effect::Reads);
        let seq =
            if looks { self.facts.tell(started).await? } else { self.facts.tell_durably(started).await? };
        let output = match tool {
            Some(tool) => tool.call(&call.arguments, &context).await,
            None => self.offer.unknown(&call.name),
        };
        Ok((call, Some(seq), output))
    }

    /// Asks for what a call needs beyond the mode. The output says why it does not run.
    async fn approve(&self, call: &Call, need: Need) -> Result<(), ToolOutput> {
        let (reason, denied) = (need.reason.clone(), need.denied.clone());
        let refused = |why: &str| Err(ToolOutput::refused(&format!("{reason}{why}"), denied.clone()));
        if !need.is_showable() {
            return refused("; it is too long to be shown to somebody who could allow it");
        }
        let ask = Ask { tool: call.name.clone(), call_id: call.id.clone(), need };
        match self.approver.ask(ask, &self.cancel).await {
            Verdict::Allowed => Ok(()),
            Verdict::Never => refused(""),
            Verdict::Rejected { by: Some(_) } => {
                refused("; the user was asked and rejected it. Do not try to reach the same in another way")
            }
            Verdict::Rejected { by: None } => refused("; the user was asked and did not answer in time"),
            Verdict::Unavailable => refused("; nobody is connected who could allow it"),
            Verdict::Cancelled => Err(not_started("the turn was cancelled")),
        }
    }

    fn tool_context(&self, call: &Call) -> ToolContext {
        ToolContext {
            session: self.session.clone(),
            call_id: call.id.clone(),
            cwd: self.cwd.clone(),
            mode: self.mode,
            takes_images: self.route.abilities.images,
            state: self.tool_state.clone(),
            blobs: self.blobs.clone(),
            guard: self.tools.guard(&self.session, self.mode),
            delegate: self.delegate.clone(),
            cancel: self.cancel.clone(),
        }
    }

    async fn tell_result(
        &self,
        step: u32,
        call: &Call,
        started: Option<Seq>,
        mut output: ToolOutput,
    ) -> Result<Arc<Message>, Lost> {
        let mut events: Vec<_> =
            std::mem::take(&mut output.events).into_iter().map(FactEvent::from).collect();
        let result = result_of(self.number, step, &call.id, output);
        let message = Arc::new(result.message.clone());
        let sources = started.into_iter().collect();
        events.push(FactEvent { sources, ..EventBody::ToolResult(result).into() });
        self.facts.tell(events).await?;
        self.tool_state.jobs().logged(&call.id);
        Ok(message)
    }
}

/// Decides which calls run, and how the turn ends after them, if it does.
fn plan<'a>(calls: &'a [Call], repeats: &mut Repeats) -> (Vec<Planned<'a>>, Option<TurnEndReason>) {
    let mut ends = None;
    let mut planned = Vec::with_capacity(calls.len());
    for call in calls {
        let refused = match call.withheld {
            Some(Withheld::Cut) => {
                ends.get_or_insert(TurnEndReason::MaxTokens);
                Some("the answer was cut at the output limit")
            }
            Some(Withheld::Large) => Some("its arguments are too long; write in several smaller calls"),
            None if ends.is_some() => Some("the turn was stopped"),
            None => repeats.note(call).map(|failure| {
                ends = Some(TurnEndReason::Error { error: failure });
                "the same call was made too often"
            }),
        };
        planned.push(Planned { call, refused });
    }
    (planned, ends)
}

/// The event for a call's output.
fn result_of(turn: u32, step: u32, call_id: &str, output: ToolOutput) -> ToolResult {
    let mut source = Source::of(SourceKind::Tool);
    source.call_id = Some(call_id.to_owned());
    let mut content = vec![Block::text(output.text)];
    content.extend(output.images);
    let mut message = Message::new(Role::Tool, source, content);
    message.tool_call_id = Some(call_id.to_owned());
    message.is_error = Some(output.is_error);
    ToolResult { turn, step, message, error: output.error, meta: output.meta }
}

/// The output of a call that was not run.
fn not_started(why: &str) -> ToolOutput {
    let error = ToolErrorInfo { name: "ToolError".to_owned(), code: "TOOL_NOT_STARTED".to_owned() };
    ToolOutput::refused(&format!("the call was not run: {why}"), error)
}

/// The result of a call that a crash left open, by whether it had been started.
pub fn lost_result(turn: u32, step: u32, call_id: &str, name: &str, started: bool) -> ToolResult {
    let (code, text) = if started {
        (
            "TOOL_OUTCOME_UNKNOWN",
            format!(
                "the daemon ended while {name} ran, so its outcome is unknown. Look at what it may have done \
                 before you repeat it."
            ),
        )
    } else {
        ("TOOL_NOT_STARTED", format!("the daemon ended before {name} was started"))
    };
    let error = ToolErrorInfo { name: "ToolError".to_owned(), code: code.to_owned() };
    result_of(turn, step, call_id, ToolOutput::refused(&text, error))
}
