//! Facts: how a turn tells its session what happened. A fact is in the log, and published, when it is acknowledged.

use tokio::sync::{mpsc, oneshot};

use crate::event::{EventBody, Seq, SurfaceOp};

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
    /// The first event's position, or that nothing is taken any more.
    pub ack: oneshot::Sender<Result<Seq, Lost>>,
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
        self.send(events, false).await
    }

    /// As [`Facts::tell`], and the events are on stable storage when this returns.
    ///
    /// # Errors
    /// [`Lost`] when storage failed.
    pub async fn tell_durably(&self, events: Vec<FactEvent>) -> Result<Seq, Lost> {
        self.send(events, true).await
    }

    async fn send(&self, events: Vec<FactEvent>, durable: bool) -> Result<Seq, Lost> {
        let (ack, acknowledged) = oneshot::channel();
        self.0.send(Fact { events, durable, ack }).await.map_err(|_| Lost)?;
        acknowledged.await.unwrap_or(Err(Lost))
    }
}
