//! Facts: how a turn tells its session what happened. A fact is in the log, and published, when it is acknowledged.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::event::{EventBody, Message, Seq, SurfaceOp};

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
    /// Acknowledge only when they are on stable storage.
    pub durable: bool,
    /// Take the messages that wait for the next step, behind these events.
    pub claims: bool,
    /// What became of them, or that nothing is taken any more.
    pub ack: oneshot::Sender<Result<Logged, Lost>>,
}

/// What became of a fact.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The first event's position.
    pub first: Seq,
    /// Messages that waited for the next step, now in the log behind the events.
    pub claimed: Vec<Arc<Message>>,
    /// Whether a message waits for the next step.
    pub waiting: bool,
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
        self.send(events, false, false).await.map(|told| told.first)
    }

    /// As [`Facts::tell`], and says whether a message waits for the next step.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_and_look(&self, events: Vec<FactEvent>) -> Result<bool, Lost> {
        self.send(events, false, false).await.map(|told| told.waiting)
    }

    /// As [`Facts::tell`], and takes the messages that wait for the next step: they stand in the log behind the events.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_and_claim(&self, events: Vec<FactEvent>) -> Result<Logged, Lost> {
        self.send(events, false, true).await
    }

    /// As [`Facts::tell`], and the events are on stable storage when this returns.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_durably(&self, events: Vec<FactEvent>) -> Result<Seq, Lost> {
        self.send(events, true, false).await.map(|told| told.first)
    }

    async fn send(&self, events: Vec<FactEvent>, durable: bool, claims: bool) -> Result<Logged, Lost> {
        let (ack, acknowledged) = oneshot::channel();
        self.0.send(Fact { events, durable, claims, ack }).await.map_err(|_| Lost)?;
        acknowledged.await.unwrap_or(Err(Lost))
    }
}
