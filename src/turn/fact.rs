//! Facts: how a turn tells its session what happened. A fact is in the log, and published, when it is acknowledged.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Route;
use crate::event::{ApprovalOutcome, EventBody, Failure, Message, PermissionMode, Seq, SurfaceOp};

/// Facts that may wait for the actor.
const FACTS_MAX: usize = 4;

/// The session takes no more facts: its storage failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// One event to be logged.
#[derive(Debug)]
pub struct FactEvent {
    /// What happened.
    pub body: EventBody,
    /// Events that it rests on.
    pub sources: Vec<Seq>,
    /// Whether the text in flight ends with it.
    pub seals_text: bool,
    /// How it changes what the model sees, when not by being added at the end.
    pub surface: Option<SurfaceOp>,
}

impl From<EventBody> for FactEvent {
    fn from(body: EventBody) -> Self {
        Self { body, sources: Vec::new(), seals_text: false, surface: None }
    }
}

/// Events to be logged together.
#[derive(Debug)]
pub struct Fact {
    /// The events, in order.
    pub events: Vec<FactEvent>,
    /// What the turn wants to know or to have beside their position.
    pub wants: Wants,
    /// What became of them, or that nothing is taken any more.
    pub ack: oneshot::Sender<Result<Logged, Lost>>,
}

/// What a turn wants beside the position of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Nothing.
    Position,
    /// That they are on stable storage.
    Durability,
    /// What may have changed since the last step.
    Fresh,
    /// The messages that wait for the next step, logged behind the events.
    Claim,
    /// The conversation as the log has it.
    Conversation,
    /// An answer to the one event, which asks for an approval. It is logged only if somebody can answer.
    Approval,
}

/// What became of a fact.
#[derive(Debug)]
pub struct Logged {
    /// The first event's position.
    pub first: Seq,
    /// Whether a message waits for the next step.
    pub waiting: bool,
    /// What was wanted.
    pub given: Given,
}

/// What a turn gets.
#[derive(Debug)]
pub enum Given {
    /// Nothing more.
    Nothing,
    /// What may have changed.
    Fresh(Box<Fresh>),
    /// Messages, now in the log.
    Claimed(Vec<Arc<Message>>),
    /// The conversation.
    Conversation(Vec<Told>),
    /// The answer to what was asked, later.
    Pending(oneshot::Receiver<Decided>),
    /// The same at once.
    Decided(Decided),
}

/// What became of an approval, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What.
    pub outcome: ApprovalOutcome,
    /// Who, where somebody did.
    pub by: Option<String>,
}

/// A message that the model sees.
#[derive(Clone, Debug)]
pub struct Told {
    /// Its event.
    pub seq: Seq,
    /// The message.
    pub message: Arc<Message>,
}

/// What a client may change while a turn runs.
pub struct Fresh {
    /// The model.
    pub route: Route,
    /// Where it works.
    pub cwd: PathBuf,
    /// What it may touch.
    pub mode: PermissionMode,
    /// The budget is used up.
    pub exhausted: Option<Failure>,
}

impl std::fmt::Debug for Fresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fresh").field("model", &self.route.model).finish_non_exhaustive()
    }
}

/// Where a turn tells its facts.
#[derive(Clone, Debug)]
pub struct Facts(mpsc::Sender<Fact>);

impl Facts {
    /// A channel of facts.
    pub fn channel() -> (Self, mpsc::Receiver<Fact>) {
        let (sender, receiver) = mpsc::channel(FACTS_MAX);
        (Self(sender), receiver)
    }

    /// Tells events; they are logged and published when this returns, the first at the position returned.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell(&self, events: Vec<FactEvent>) -> Result<Seq, Lost> {
        self.send(events, Wants::Position).await.map(|logged| logged.first)
    }

    /// As [`Facts::tell`], and the events are on stable storage when this returns.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_durably(&self, events: Vec<FactEvent>) -> Result<Seq, Lost> {
        self.send(events, Wants::Durability).await.map(|logged| logged.first)
    }

    /// As [`Facts::tell`], and says whether a message waits for the next step.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_and_look(&self, events: Vec<FactEvent>) -> Result<bool, Lost> {
        self.send(events, Wants::Position).await.map(|logged| logged.waiting)
    }

    /// As [`Facts::tell`], and says what a client has made of the session meanwhile.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_and_refresh(&self, events: Vec<FactEvent>) -> Result<Box<Fresh>, Lost> {
        let given = self.send(events, Wants::Fresh).await?.given;
        if let Given::Fresh(fresh) = given { Ok(fresh) } else { Err(Lost) }
    }

    /// As [`Facts::tell`], and takes the messages that wait for the next step: they stand in the log behind the events.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_and_claim(&self, events: Vec<FactEvent>) -> Result<(Seq, Vec<Arc<Message>>), Lost> {
        let logged = self.send(events, Wants::Claim).await?;
        if let Given::Claimed(claimed) = logged.given { Ok((logged.first, claimed)) } else { Err(Lost) }
    }

    /// As [`Facts::tell`], and reads the conversation as the log then has it.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_and_read(&self, events: Vec<FactEvent>) -> Result<Vec<Told>, Lost> {
        let given = self.send(events, Wants::Conversation).await?.given;
        if let Given::Conversation(conversation) = given { Ok(conversation) } else { Err(Lost) }
    }

    /// Asks for an approval: what became of it, or what will tell.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn ask(&self, asked: EventBody) -> Result<Given, Lost> {
        self.send(vec![asked.into()], Wants::Approval).await.map(|logged| logged.given)
    }

    async fn send(&self, events: Vec<FactEvent>, wants: Wants) -> Result<Logged, Lost> {
        let (ack, acknowledged) = oneshot::channel();
        self.0.send(Fact { events, wants, ack }).await.map_err(|_| Lost)?;
        acknowledged.await.unwrap_or(Err(Lost))
    }
}
