//! One model call with its retries: what arrives is shown at once, what is whole is logged, what failed is told.

use std::time::Duration;

use super::measure::{Measured, cost_of};
use super::sink::TurnSink;
use super::{FactEvent, Stop, Turn};
use crate::event::{
    AssistantAttempt, AssistantMessage, Block, EventBody, Failure, FailureCode, LlmRetry, LlmRetryStarted,
    Message, Role, Source, SourceKind, StepMark, TurnEndReason,
};
use crate::metrics::METRICS;
use crate::provider::{CallError, Completion, Finish, ModelRequest, Retry};

/// A call that the model asks for.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Why it must not run, if it must not.
    pub(super) withheld: Option<Withheld>,
}

/// Why a call must not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withheld {
    /// Its answer was cut: the call may be incomplete, and the turn ends.
    Cut,
    /// Its arguments don't fit into an event.
    Large,
}

/// What a whole answer asks for.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing more: the turn ends.
    Final(TurnEndReason),
    /// Calls to run, then the next step.
    Calls(Vec<Call>),
}

/// What is kept over the attempts of one step.
#[derive(Debug, Default)]
struct Attempts {
    made: u32,
    retries: u32,
    asked_again: bool,
    made_room: bool,
}

impl Turn {
    /// Asks the model until it gave a whole answer, and logs that.
    pub(super) async fn ask(&mut self, step: u32) -> Result<Step, Stop> {
        let adapter = match &self.route.adapter {
            Ok(adapter) => adapter.clone(),
            Err(failure) => {
                let failure = failure.clone();
                self.tell(self.attempt(step, failure.clone(), None)).await?;
                return Err(Stop::failed(failure));
            }
        };
        let mut request = self.request(step).await;
        let bytes_max = self.config.limits.message_bytes.bytes();
        let text = self.text.clone();
        let mut attempts = Attempts::default();
        loop {
            attempts.made += 1;
            text.begin(self.number, step, attempts.made);
            let mut sink = TurnSink::new(&text, bytes_max);
            let answer = tokio::select! {
                biased;
                () = self.cancel.cancelled() => None,
                answer = adapter.call(&request, &mut sink) => Some(answer),
            };
            let error = match answer {
                None => return self.interrupted(step, sink).await,
                Some(Ok(completion)) => {
                    let blocks = sink.into_blocks();
                    // Who was stopped may have said nothing, and would say nothing again.
                    if !blocks.is_empty() || completion.finish != Finish::Stop {
                        return self.answered(step, blocks, completion).await;
                    }
                    (empty_answer(), None, false)
                }
                Some(Err(error)) => (error, sink.text(), sink.has_text()),
            };
            let (error, arrived, started) = error;
            let too_long = error.failure.code == FailureCode::ContextWindowExceeded;
            if too_long && !started && !std::mem::replace(&mut attempts.made_room, true) {
                self.text.discard();
                self.tell(self.attempt(step, error.failure.clone(), None)).await?;
                if !self.make_room(step, true).await? {
                    return Err(Stop::failed(error.failure));
                }
                self.remind(step).await?;
                request = self.request(step).await;
                continue;
            }
            self.failed(step, error, arrived, started, &mut attempts).await?;
        }
    }

    async fn request(&self, step: u32) -> ModelRequest {
        ModelRequest {
            model: self.route.model.clone(),
            abilities: self.route.abilities.clone(),
            messages: self.conversation.clone(),
            images: self.images().await,
            tools: self.offer.specs().clone(),
            max_tokens: self.route.max_tokens,
            reasoning_effort: self.route.reasoning_effort.clone(),
            place: Some(StepMark { turn: self.number, step }),
        }
    }

    /// Logs a whole answer and says what it asks for.
    async fn answered(
        &mut self,
        step: u32,
        blocks: Vec<Block>,
        completion: Completion,
    ) -> Result<Step, Stop> {
        let cut = completion.finish == Finish::Length;
        let arguments_max = self.config.limits.event_bytes.bytes() / 2;
        let mut calls = Vec::new();
        for block in &blocks {
            if let Block::ToolCall { id, name, arguments } = block {
                let withheld = cut
                    .then_some(Withheld::Cut)
                    .or((arguments.len() > arguments_max).then_some(Withheld::Large));
                let (id, name, arguments) = (id.clone(), name.clone(), arguments.clone());
                calls.push(Call { id, name, arguments, withheld });
            }
        }
        let mut source = self.model_source();
        source.replay_state = completion.replay_state;
        let message = Message::new(Role::Assistant, source, blocks);
        self.log_answer(step, message, completion.usage, false).await?;
        Ok(match completion.finish {
            Finish::Stop | Finish::Length | Finish::ContentFilter if !calls.is_empty() => Step::Calls(calls),
            Finish::Pause => Step::Calls(calls),
            Finish::Stop => Step::Final(TurnEndReason::Completed),
            Finish::Length => Step::Final(TurnEndReason::MaxTokens),
            Finish::ContentFilter => Step::Final(TurnEndReason::Blocked),
        })
    }

    /// Keeps what was streamed before a cancel.
    async fn interrupted(&mut self, step: u32, sink: TurnSink<'_>) -> Result<Step, Stop> {
        let prefix = sink.into_prefix();
        if prefix.is_empty() {
            self.text.discard();
        } else {
            let message = Message::new(Role::Assistant, self.model_source(), prefix);
            self.log_answer(step, message, None, true).await?;
        }
        Err(Stop::Cancelled)
    }

    async fn log_answer(
        &mut self,
        step: u32,
        message: Message,
        usage: Option<crate::event::Usage>,
        interrupted: bool,
    ) -> Result<(), Stop> {
        self.conversation.push(std::sync::Arc::new(message.clone()));
        self.measured = Measured::of(usage.as_ref(), self.conversation.len());
        let cost = usage.as_ref().and_then(|usage| cost_of(&self.route, usage));
        let body = AssistantMessage { turn: self.number, step, message, usage, cost, interrupted };
        let event = FactEvent { seals_text: true, ..EventBody::AssistantMessage(body).into() };
        self.facts.tell(vec![event]).await?;
        Ok(())
    }

    /// Decides what follows a failed call: another attempt (`Ok`) or the end.
    async fn failed(
        &self,
        step: u32,
        error: CallError,
        arrived: Option<String>,
        started: bool,
        attempts: &mut Attempts,
    ) -> Result<(), Stop> {
        if started {
            let body = self.attempt(step, error.failure.clone(), arrived);
            let seal = FactEvent { seals_text: true, ..body.into() };
            self.facts.tell(vec![seal]).await?;
            if std::mem::replace(&mut attempts.asked_again, true) {
                return Err(Stop::failed(error.failure));
            }
        } else {
            self.text.discard();
        }
        attempts.retries += 1;
        if let Some(delay) = self.route.retry.delay(&error, attempts.retries) {
            return self.pause(step, attempts.retries, delay, error.failure).await;
        }
        if !started {
            self.tell(self.attempt(step, error.failure.clone(), None)).await?;
        }
        Err(Stop::failed(error.failure))
    }

    pub(super) async fn pause(
        &self,
        step: u32,
        retry: u32,
        delay: Duration,
        failure: Failure,
    ) -> Result<(), Stop> {
        METRICS.retries.add(1);
        let retry_id = uuid::Uuid::new_v4().to_string();
        self.tell(EventBody::LlmRetry(LlmRetry {
            retry_id: retry_id.clone(),
            turn: self.number,
            step,
            provider: self.route.provider.clone(),
            retry,
            max_retries: self.route.retry.max,
            delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            failure,
        }))
        .await?;
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(Stop::Cancelled),
            () = tokio::time::sleep(delay) => {}
        }
        self.tell(EventBody::LlmRetryStarted(LlmRetryStarted { retry_id, turn: self.number, step, retry }))
            .await?;
        Ok(())
    }

    fn attempt(&self, step: u32, failure: Failure, text: Option<String>) -> EventBody {
        EventBody::AssistantAttempt(AssistantAttempt { turn: self.number, step, failure, text })
    }

    fn model_source(&self) -> Source {
        let mut source = Source::of(SourceKind::Model);
        source.provider = Some(self.route.provider.clone());
        source.model = Some(self.route.model.clone());
        source
    }
}

fn empty_answer() -> CallError {
    CallError {
        failure: Failure::new(
            FailureCode::EmptyResponse,
            "the model ended its answer without saying anything",
        ),
        retry: Retry::Backoff,
    }
}
