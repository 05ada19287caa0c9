//! One session, followed and prompted over as many connections as it takes.
//!
//! A [`Session`] connects, follows its session from a place, and when the connection is lost connects again and goes on from
//! where it was: each event comes once and in order, text that was given already is not given again, a prompt that was
//! under way is asked about under its key and runs once. It gives up when no daemon is to be had for so long
//! ([`Options::patience`]), or at once when trying again can't help.
//!
//! ```no_run
//! use dshd::client::{Address, ConnectOptions};
//! use dshd::client::session::{Dial, From, Options, Session, Update};
//! use dshd::event::SessionId;
//! use dshd::protocol::{ContentBlock, InitializeParams, SettledPrompt};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let address: Address = "unix:/run/dshd/dshd.sock".parse()?;
//! let hello = InitializeParams { cwd: Some("/home/me/src".to_owned()), ..InitializeParams::default() };
//! let dial = Dial::address(address, ConnectOptions::default(), hello);
//! let id = SessionId::new("my-session")?;
//! let (session, mut updates) = Session::open(dial, id, From::Now, Options::default()).await?;
//! let prompt = session.prompt(vec![ContentBlock::Text { text: "What is in this directory?".to_owned() }]);
//! let mut prompt = std::pin::pin!(prompt);
//! loop {
//!     tokio::select! {
//!         settled = &mut prompt => {
//!             let settled: SettledPrompt = settled?;
//!             return Ok(println!("{:?}", settled.status));
//!         }
//!         Some(update) = updates.next() => match update {
//!             Update::Told(notification) => println!("{}", notification.params.get()),
//!             other => eprintln!("{other:?}"),
//!         },
//!     }
//! }
//! # }
//! ```
//! Read the updates while a request waits: they are bounded, and what is not read stops the connection ([`super`]).

mod dial;
mod follow;
mod text;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

pub use self::dial::{Dial, DialError};
use self::follow::Follow;
use super::{CallError, Client, Notification};
use crate::event::{Epoch, Seq, SessionId};
use crate::protocol::{ContentBlock, Method, PromptParams, WhenBusy};
use crate::shutdown::Scope;

/// Updates that wait for their reader; beyond them the connection is not read.
const UPDATES_MAX: usize = 256;

/// When the daemon that is overloaded does not say when to ask again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With the first event.
    Start,
    /// With what comes. A session that does not exist yet is followed from its first event, once it is prompted here.
    Now,
    /// After an event that was seen.
    After(Epoch, Seq),
}

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long to try without a connection; then it is [`SessionError::GaveUp`].
    pub patience: Duration,
    /// The first pause before another try; it doubles up to [`Options::longest_pause`], with jitter.
    pub first_pause: Duration,
    /// The longest pause between two tries.
    pub longest_pause: Duration,
    /// Whether subagents' events are wanted.
    pub tree: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_mins(2),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
            tree: true,
        }
    }
}

/// What happens to the session and to the way to it.
#[derive(Debug)]
pub enum Update {
    /// The daemon told this. Text that was given before the connection was lost is left out.
    Told(Notification),
    /// The connection is lost; another try is made in so long.
    Lost {
        /// Why.
        why: String,
        /// How long.
        retry_in: Duration,
    },
    /// There is a connection again, and nothing was missed.
    Back,
    /// The history that was followed is no more: what comes is another one, from its start.
    Replaced,
    /// The last update: why there will be no more.
    Ended(SessionError),
}

/// Why a session can't be followed or asked any longer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SessionError {
    /// No daemon for too long.
    #[error("no daemon for {} s: {why}", .patience.as_secs())]
    GaveUp {
        /// How long was tried.
        patience: Duration,
        /// What the last try said.
        why: String,
    },
    /// The session ended for its followers: `closed`, `deleted`, `disposed`, `storage_failed`.
    #[error("the session ended: {cause}")]
    Closed {
        /// As `session.closed` says.
        cause: String,
    },
    /// The daemon refused, and would again.
    #[error("{0}")]
    Refused(CallError),
    /// No daemon can be reached this way.
    #[error("{0}")]
    Unreachable(String),
    /// The [`Session`] was dropped.
    #[error("the session was let go")]
    Dropped,
}

/// The connection in force.
#[derive(Clone, Debug)]
enum Line {
    /// None yet, or none any more.
    Down,
    /// The n-th connection.
    Up(u64, Client),
    /// There will be none.
    Ended(SessionError),
}

/// A session. Dropping it lets it go; the daemon keeps it.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    line: watch::Receiver<Line>,
    scope: Scope,
}

/// What happens, in order.
#[derive(Debug)]
pub struct Updates(mpsc::Receiver<Update>);

impl Updates {
    /// The next update; `None` after [`Update::Ended`]. Cancel safe.
    pub async fn next(&mut self) -> Option<Update> {
        self.0.recv().await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.scope.abort();
    }
}

impl Session {
    /// Connects and follows. The first connection is not waited for longer than any other.
    ///
    /// # Errors
    /// [`SessionError`]; a session that does not exist is refused unless it is followed from [`From::Now`].
    pub async fn open(
        dial: Dial,
        id: SessionId,
        from: From,
        options: Options,
    ) -> Result<(Self, Updates), SessionError> {
        let (updates, receiver) = mpsc::channel(UPDATES_MAX);
        let (line, in_force) = watch::channel(Line::Down);
        let mut follow = Follow::new(id.clone(), from, options, dial, updates, line);
        follow.connect_first().await?;
        let scope = Scope::new();
        let aborting = scope.aborting().clone();
        scope.spawn(async move {
            aborting.run_until_cancelled(follow.run()).await;
        });
        Ok((Self { id, line: in_force, scope }, Updates(receiver)))
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Prompts under a key of its own, behind a turn that runs, and waits for the reply, over as many connections as it
    /// takes. `R` is [`crate::protocol::SettledPrompt`] or [`crate::protocol::Receipt`], as `initialize` said.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn prompt<R: DeserializeOwned>(
        &self,
        content_blocks: Vec<ContentBlock>,
    ) -> Result<R, SessionError> {
        self.prompt_with(PromptParams {
            session_id: self.id.clone(),
            content_blocks,
            when_busy: Some(WhenBusy::Queue),
            idempotency_key: None,
        })
        .await
    }

    /// The same with parameters of one's own; a key is made when there is none.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn prompt_with<R: DeserializeOwned>(
        &self,
        mut params: PromptParams,
    ) -> Result<R, SessionError> {
        params.idempotency_key.get_or_insert_with(|| uuid::Uuid::new_v4().to_string());
        self.ask(Method::Prompt, &params).await
    }

    /// Asks what may be asked twice: when the connection is lost before the reply, it is asked again on the next one.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn ask<P, R>(&self, method: Method, params: &P) -> Result<R, SessionError>
    where
        P: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let mut after = None;
        loop {
            let (nth, client) = self.connection(after).await?;
            let error = match client.call(method, params).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            match retry(&error) {
                Retry::Never => return Err(SessionError::Refused(error)),
                Retry::Here(pause) => tokio::time::sleep(pause).await,
                Retry::Elsewhere => after = Some(nth),
            }
        }
    }

    /// The connection in force, and a later one than `after`.
    async fn connection(&self, after: Option<u64>) -> Result<(u64, Client), SessionError> {
        let mut line = self.line.clone();
        let usable = |line: &Line| match line {
            Line::Up(nth, _) => Some(*nth) > after,
            Line::Ended(_) => true,
            Line::Down => false,
        };
        match line.wait_for(usable).await.map(|line| line.clone()) {
            Ok(Line::Up(nth, client)) => Ok((nth, client)),
            Ok(Line::Ended(error)) => Err(error),
            Ok(Line::Down) | Err(_) => Err(SessionError::Dropped),
        }
    }
}

/// What to do after an error.
enum Retry {
    Never,
    /// On this connection, after a pause.
    Here(Duration),
    /// On the next connection.
    Elsewhere,
}

fn retry(error: &CallError) -> Retry {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct After {
        retry_after_ms: u64,
    }
    match error {
        CallError::Closed(_) => Retry::Elsewhere,
        CallError::Rpc(refused) if refused.kind == "shutting_down" => Retry::Elsewhere,
        CallError::Rpc(refused) if refused.kind == "overloaded" => {
            let after = refused.data::<After>().map(|after| Duration::from_millis(after.retry_after_ms));
            Retry::Here(after.unwrap_or(ASK_AGAIN_AFTER))
        }
        CallError::Rpc(_)
        | CallError::NotDshd { .. }
        | CallError::TimedOut(_)
        | CallError::Params(_)
        | CallError::Result { .. } => Retry::Never,
    }
}

#[cfg(test)]
mod tests;
