//! Running the calls of one answer, in the model's order: log, then act, then log what came of it.

use super::step::{Call, Withheld};
use super::{FactEvent, Stop, Turn};
use crate::event::{
    Block, EventBody, Failure, FailureCode, Message, Role, Seq, Source, SourceKind, ToolCallStarted,
    ToolErrorInfo, ToolResult, TurnEndReason,
};
use crate::tool::{Effect, ToolContext, ToolOutput};

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

impl Turn {
    /// Runs the calls. Says how the turn ends, if it does.
    pub(super) async fn run_calls(
        &mut self,
        step: u32,
        calls: &[Call],
        repeats: &mut Repeats,
    ) -> Result<Option<TurnEndReason>, Stop> {
        let mut ends = None;
        for call in calls {
            if let Some(withheld) = call.withheld {
                let why = match withheld {
                    Withheld::Cut => "the answer was cut at the output limit",
                    Withheld::Large => "its arguments are too long; write in several smaller calls",
                };
                if withheld == Withheld::Cut {
                    ends.get_or_insert(TurnEndReason::MaxTokens);
                }
                self.finish_call(step, call, None, not_started(why)).await?;
            } else if ends.is_some() || self.cancel.is_cancelled() {
                let why = if ends.is_some() { "the turn was stopped" } else { "the turn was cancelled" };
                self.finish_call(step, call, None, not_started(why)).await?;
            } else if let Some(failure) = repeats.note(call) {
                ends = Some(TurnEndReason::Error { error: failure });
                self.finish_call(step, call, None, not_started("the same call was made too often")).await?;
            } else {
                self.run_call(step, call).await?;
            }
        }
        Ok(ends)
    }

    async fn run_call(&mut self, step: u32, call: &Call) -> Result<(), Stop> {
        let tool = self.tools.get(&call.name);
        let started = vec![FactEvent::from(EventBody::ToolCall(ToolCallStarted {
            turn: self.number,
            step,
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        }))];
        let acts = tool.as_ref().is_some_and(|tool| tool.effect() == Effect::Acts);
        let seq =
            if acts { self.facts.tell_durably(started).await? } else { self.facts.tell(started).await? };
        let output = match tool {
            Some(tool) => {
                let context = ToolContext {
                    session: self.session.clone(),
                    call_id: call.id.clone(),
                    cwd: self.cwd.clone(),
                    cancel: self.cancel.clone(),
                };
                tool.call(&call.arguments, &context).await
            }
            None => self.tools.unknown(&call.name),
        };
        self.finish_call(step, call, Some(seq), output).await
    }

    async fn finish_call(
        &mut self,
        step: u32,
        call: &Call,
        started: Option<Seq>,
        output: ToolOutput,
    ) -> Result<(), Stop> {
        let result = result_of(self.number, step, &call.id, output);
        self.conversation.push(std::sync::Arc::new(result.message.clone()));
        let sources = started.into_iter().collect();
        let event = FactEvent { sources, ..EventBody::ToolResult(result).into() };
        self.facts.tell(vec![event]).await?;
        Ok(())
    }
}

/// The event for a call's output.
fn result_of(turn: u32, step: u32, call_id: &str, output: ToolOutput) -> ToolResult {
    let mut source = Source::of(SourceKind::Tool);
    source.call_id = Some(call_id.to_owned());
    let mut message = Message::new(Role::Tool, source, vec![Block::text(output.text)]);
    message.tool_call_id = Some(call_id.to_owned());
    message.is_error = Some(output.is_error);
    ToolResult { turn, step, message, error: output.error, meta: output.meta }
}

/// The output of a call that was not run.
fn not_started(why: &str) -> ToolOutput {
    ToolOutput {
        text: format!("Error: the call was not run: {why}"),
        is_error: true,
        error: Some(ToolErrorInfo { name: "ToolError".to_owned(), code: "TOOL_NOT_STARTED".to_owned() }),
        meta: None,
    }
}

/// The result of a call that a crash left open, by whether it had been started.
pub fn lost_result(turn: u32, step: u32, call_id: &str, name: &str, started: bool) -> ToolResult {
    let (code, text) = if started {
        (
            "TOOL_OUTCOME_UNKNOWN",
            format!(
                "Error: the daemon ended while {name} ran, so its outcome is unknown. Look at what it may have done \
                 before you repeat it."
            ),
        )
    } else {
        ("TOOL_NOT_STARTED", format!("Error: the daemon ended before {name} was started"))
    };
    let error = Some(ToolErrorInfo { name: "ToolError".to_owned(), code: code.to_owned() });
    result_of(turn, step, call_id, ToolOutput { text, is_error: true, error, meta: None })
}
