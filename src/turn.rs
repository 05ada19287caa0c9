//! One turn: model step, tool calls, again, until the model has said all.
//!
//! A turn reads the conversation it was given and tells what happens as [`Fact`]s, which the session's actor logs and
//! publishes before it acknowledges them. Text goes to [`text::LiveText`]. The turn knows neither log nor clients.

mod branch;
mod call;
mod compact;
mod context;
mod fact;
mod instructions;
mod measure;
mod pictures;
mod sink;
mod small_file;
mod step;
pub mod text;

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use self::call::lost_result;
pub use self::fact::{Decided, Fact, FactEvent, Facts, Fresh, Given, Logged, Lost, Told, Wants};
pub use self::measure::Measured;

use self::call::Repeats;
use self::step::Step;
use self::text::LiveText;
use crate::config::{Config, ModelConfig};
use crate::event::{
    EventBody, Failure, FailureCode, Message, PermissionMode, RequestContext, RequestHeader, SessionId,
    StepMark, TurnEndReason,
};
use crate::policy::Approver;
use crate::provider::Provider;
use crate::provider::retry::RetryPolicy;
use crate::store::Blobs;
use crate::tool::{Delegate, Offer, ToolState, Tools};

/// What of `shutdown.cancel_grace` the processes that a cancelled turn has left get to end by themselves.
const GRACE_SHARE: u32 = 2;

/// The model that a turn talks to.
#[derive(Clone)]
pub struct Route {
    /// The provider's name.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// What the model can do.
    pub abilities: ModelConfig,
    /// The adapter, or why there is none.
    pub adapter: Result<Arc<dyn Provider>, Failure>,
    /// When failed calls are made again.
    pub retry: RetryPolicy,
    /// Output limit in tokens.
    pub max_tokens: Option<u64>,
    /// How hard to think.
    pub reasoning_effort: Option<String>,
}

/// All that a turn needs.
pub struct Turn {
    /// The session.
    pub session: SessionId,
    /// Its number.
    pub number: u32,
    /// The prompt.
    pub prompt: Arc<Message>,
    /// What the model has seen so far.
    pub conversation: Vec<Arc<Message>>,
    /// Where it works.
    pub cwd: PathBuf,
    /// What it may touch.
    pub mode: PermissionMode,
    /// The model.
    pub route: Route,
    /// The tools of the daemon.
    pub tools: Tools,
    /// Those that this step offers.
    pub offer: Offer,
    /// What they keep between calls.
    pub tool_state: Arc<ToolState>,
    /// Asks for what the mode does not allow.
    pub approver: Arc<dyn Approver>,
    /// Runs subagents; none in a subagent.
    pub delegate: Option<Arc<dyn Delegate>>,
    /// The configuration at its start.
    pub config: Arc<Config>,
    /// The last `request/header` of this process, if any.
    pub header: Option<Arc<RequestHeader>>,
    /// Why a header is written when `header` is none: `initial` or `resume`.
    pub header_reason: &'static str,
    /// The last `request/context`, if any.
    pub context: Option<RequestContext>,
    /// The size of the conversation, as the provider told it last.
    pub measured: Option<Measured>,
    /// What this turn keeps between its steps.
    pub memory: Memory,
    /// Whether the session has a title.
    pub titled: bool,
    /// The session's pictures.
    pub blobs: Blobs,
    /// Where facts go.
    pub facts: Facts,
    /// Where text goes.
    pub text: Arc<LiveText>,
    /// Cancelled: stop, keep what there is, return.
    pub cancel: CancellationToken,
}

/// What a turn keeps between its steps.
#[derive(Debug, Default)]
pub struct Memory {
    /// Directories whose `AGENTS.md` is to be looked at before the next call of the model.
    touched: Vec<PathBuf>,
    /// A summary failed: none is tried again before its time.
    cramped: bool,
}

/// How a turn ended, before its end is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By itself.
    Ended(TurnEndReason),
    /// It was cancelled; who did it knows why.
    Cancelled,
    /// Its facts are no longer taken: storage failed.
    Lost,
}

/// Why a turn stops before its model has said all.
#[derive(Debug)]
enum Stop {
    Reason(TurnEndReason),
    Cancelled,
    Lost,
}

impl From<Lost> for Stop {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

impl Stop {
    fn failed(failure: Failure) -> Self {
        Self::Reason(TurnEndReason::Error { error: failure })
    }
}

impl Turn {
    /// Runs the turn to its end. The caller writes `turn/end`.
    pub async fn run(mut self) -> Outcome {
        self.tool_state.begin_turn();
        match self.steps().await {
            Ok(reason) | Err(Stop::Reason(reason)) => Outcome::Ended(reason),
            Err(Stop::Cancelled) => {
                self.tool_state.cancel_turn(self.config.shutdown.cancel_grace / GRACE_SHARE).await;
                Outcome::Cancelled
            }
            Err(Stop::Lost) => Outcome::Lost,
        }
    }

    async fn steps(&mut self) -> Result<TurnEndReason, Stop> {
        let mut repeats = Repeats::new(self.config.turn.repeat_remind, self.config.turn.repeat_stop);
        for number in 1..=self.config.turn.max_steps {
            let asked = match self.step(number, repeats.take_reminder()).await {
                Ok(asked) => asked,
                Err(stop) => {
                    self.close_step(number, &stop).await?;
                    return Err(stop);
                }
            };
            let ends = match asked {
                Step::Final(reason) => Some(reason),
                Step::Calls(calls) => {
                    self.note_touched(&calls);
                    self.run_calls(number, &calls, &mut repeats).await?
                }
            };
            let end = EventBody::StepEnd(StepMark { turn: self.number, step: number });
            let waiting = self.facts.tell_and_look(vec![end.into()]).await?;
            if self.cancel.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            match ends {
                // Somebody has said something meanwhile: the model hears of it before the turn may end.
                Some(TurnEndReason::Completed) if waiting && number < self.config.turn.max_steps => {}
                Some(reason) => return Ok(reason),
                None => {}
            }
        }
        let max = self.config.turn.max_steps;
        let message = format!("the turn reached turn.max_steps ({max} model calls); prompt again to go on");
        Err(Stop::failed(Failure::new(FailureCode::MaxSteps, message)))
    }

    /// Opens a step, makes room if the conversation has grown too long, and asks the model.
    async fn step(&mut self, number: u32, reminder: Option<String>) -> Result<Step, Stop> {
        let mut exhausted = self.begin_step(number).await?;
        // Whatever becomes of making room: what was said to the agent goes into the conversation.
        let room = if exhausted.is_none() { self.make_room(number, false).await } else { Ok(false) };
        self.open_step(number, reminder).await?;
        if room? {
            // The summary counts, too.
            exhausted = self.facts.tell_and_refresh(Vec::new()).await?.exhausted;
        }
        match exhausted {
            Some(failure) => Err(Stop::failed(failure)),
            None => self.ask(number).await,
        }
    }

    async fn close_step(&self, number: u32, stop: &Stop) -> Result<(), Stop> {
        if !matches!(stop, Stop::Lost) {
            self.tell(EventBody::StepEnd(StepMark { turn: self.number, step: number })).await?;
        }
        Ok(())
    }

    async fn tell(&self, body: EventBody) -> Result<crate::event::Seq, Lost> {
        self.facts.tell(vec![FactEvent::from(body)]).await
    }
}
