//! The task behind a session: it reads one connection after another, and knows the place.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::text::Texts;
use super::{Dial, DialError, From, Line, Options, SessionError, Update};
use crate::client::{CallError, Client, Notification, Notifications};
use crate::event::{Epoch, Seq, SessionId};
use crate::protocol::{
    ChildCursor, LastSeq, Method, SessionStatus, SessionStatusNotice, SubscribeParams, SubscribeResult,
    notification,
};

/// The longest wait for the answer to a subscription.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(30);

/// A place in a session's history.
type Place = (Epoch, Seq);

pub(super) struct Follow {
    id: SessionId,
    options: Options,
    dial: Dial,
    updates: mpsc::Sender<Update>,
    line: watch::Sender<Line>,
    /// How the next subscription begins.
    begin: Begin,
    /// Where its subagents are that work right now; none: nothing of them has come yet.
    children: BTreeMap<SessionId, Option<Place>>,
    texts: Texts,
    connections: u64,
    notifications: Option<Notifications>,
    client: Option<Client>,
    /// The session does not exist yet; its first event is the first to come.
    is_unborn: bool,
    /// What its agent does, as was told last.
    status: SessionStatus,
    /// It works, which a new connection takes as known: told before what comes.
    runs_unsaid: bool,
    /// It has become idle while there was no connection: told after this event, when nobody else has told it.
    idle_after: Option<LastSeq>,
    /// How long the daemon that ends asks us to wait.
    asked_pause: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Begin {
    Start,
    /// With what comes.
    Now,
    After(Place),
}

/// An event's `params`, as far as its place is concerned.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    session_id: SessionId,
    epoch: Epoch,
    #[serde(borrow)]
    event: Event<'a>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    seq: Option<Seq>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// The data of `subagent/started` and `subagent/finished`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Child {
    child_session_id: SessionId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Closed {
    session_id: SessionId,
    cause: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Draining {
    reconnect_after_ms: u64,
}

/// Why a connection can't be used.
enum Fault {
    /// Another may.
    Lost(String),
    Fatal(SessionError),
}

impl Follow {
    pub(super) fn new(
        id: SessionId,
        from: From,
        options: Options,
        dial: Dial,
        updates: mpsc::Sender<Update>,
        line: watch::Sender<Line>,
    ) -> Self {
        let begin = match from {
            From::Start => Begin::Start,
            From::Now => Begin::Now,
            From::After(epoch, seq) => Begin::After((epoch, seq)),
        };
        Self {
            id,
            options,
            dial,
            updates,
            line,
            begin,
            children: BTreeMap::new(),
            texts: Texts::default(),
            connections: 0,
            notifications: None,
            client: None,
            is_unborn: false,
            status: SessionStatus::Idle,
            runs_unsaid: false,
            idle_after: None,
            asked_pause: None,
        }
    }

    /// Makes the first connection.
    pub(super) async fn connect_first(&mut self) -> Result<(), SessionError> {
        match self.connect().await {
            Ok(_replaced) => Ok(()),
            Err(Fault::Fatal(error)) => Err(error),
            Err(Fault::Lost(why)) => self.connect_again(why, false).await,
        }
    }

    /// Reads until the session or all patience ends.
    pub(super) async fn run(mut self) {
        let error = loop {
            let fault = self.read().await;
            self.line.send_replace(Line::Down);
            self.notifications = None;
            match fault {
                Fault::Fatal(error) => break error,
                Fault::Lost(why) => {
                    if let Err(error) = self.connect_again(why, true).await {
                        break error;
                    }
                }
            }
        };
        self.line.send_replace(Line::Ended(error.clone()));
        self.tell(Update::Ended(error)).await;
    }

    /// Who dropped the updates wants none; the connection is read on for the replies.
    async fn tell(&self, update: Update) {
        let _ = self.updates.send(update).await;
    }

    /// Reads one connection until it ends.
    async fn read(&mut self) -> Fault {
        loop {
            let next = match &mut self.notifications {
                Some(notifications) => notifications.next().await,
                None => None,
            };
            let Some(told) = next else {
                let why = match &self.client {
                    Some(client) => client.ended().await,
                    None => CallError::Closed("it was never made".to_owned()),
                };
                return Fault::Lost(why.to_string());
            };
            if let Some(error) = self.take(told).await {
                return Fault::Fatal(error);
            }
        }
    }

    /// Notes where we are after a notification, and passes it on.
    async fn take(&mut self, told: Notification) -> Option<SessionError> {
        let Notification { method, params } = told;
        let mut end = None;
        let params = match method.as_ref() {
            notification::SESSION_EVENT => self.take_event(params),
            notification::SERVER_DRAINING => {
                let draining = serde_json::from_str::<Draining>(params.get()).ok();
                self.asked_pause =
                    draining.map(|draining| Duration::from_millis(draining.reconnect_after_ms));
                Some(params)
            }
            notification::SESSION_STATUS => {
                let told = serde_json::from_str::<SessionStatusNotice>(params.get()).ok();
                if let Some(told) = told.filter(|told| told.session_id == self.id) {
                    (self.status, self.idle_after) = (told.status, None);
                    self.runs_unsaid = false;
                }
                Some(params)
            }
            notification::SESSION_CLOSED => {
                let closed = serde_json::from_str::<Closed>(params.get()).ok();
                // The daemon ends, and the next one goes on.
                let ended =
                    closed.filter(|closed| closed.session_id == self.id && closed.cause != "shutting_down");
                end = ended.map(|closed| SessionError::Closed { cause: closed.cause });
                Some(params)
            }
            _ => Some(params),
        };
        if let Some(params) = params {
            self.tell(Update::Told(Notification { method, params })).await;
        }
        self.tell_status_due().await;
        end
    }

    /// Tells what became of the agent while there was no connection: that it works at once, that it is idle when all that
    /// happened before was told.
    async fn tell_status_due(&mut self) {
        if std::mem::take(&mut self.runs_unsaid) {
            self.tell_status(SessionStatus::Running).await;
        }
        let here = match self.begin {
            Begin::After((_, seq)) => Some(seq),
            Begin::Start | Begin::Now => None,
        };
        if self.idle_after.is_some_and(|due| here >= due.0) {
            self.idle_after = None;
            self.tell_status(SessionStatus::Idle).await;
        }
    }

    async fn tell_status(&mut self, status: SessionStatus) {
        self.status = status;
        let notice = SessionStatusNotice { session_id: self.id.clone(), status };
        if let Ok(params) = serde_json::value::to_raw_value(&notice) {
            let method = notification::SESSION_STATUS.into();
            self.tell(Update::Told(Notification { method, params })).await;
        }
    }

    fn take_event(&mut self, params: Box<RawValue>) -> Option<Box<RawValue>> {
        let Ok(Told { session_id, epoch, event }) = serde_json::from_str::<Told<'_>>(params.get()) else {
            return Some(params);
        };
        let Some(seq) = event.seq else { return self.texts.take(params) };
        if matches!(event.kind.as_ref(), "assistant/message" | "assistant/attempt" | "turn/end") {
            self.texts.end(&session_id);
        }
        if session_id == self.id {
            self.begin = Begin::After((epoch, seq));
            let child =
                || serde_json::from_str::<Child>(event.data.get()).ok().map(|child| child.child_session_id);
            match event.kind.as_ref() {
                "subagent/started" => drop(child().map(|child| self.children.insert(child, None))),
                // All that it did has come before this.
                "subagent/finished" => drop(child().map(|child| self.children.remove(&child))),
                _ => {}
            }
        } else if let Some(place) = self.children.get_mut(&session_id) {
            *place = Some((epoch, seq));
        }
        Some(params)
    }

    /// Tries until there is a connection, or patience ends. `told`: whether it is said that there was none.
    async fn connect_again(&mut self, mut why: String, told: bool) -> Result<(), SessionError> {
        let Options { patience, first_pause, longest_pause, .. } = self.options;
        let since = Instant::now();
        let mut pause = self.asked_pause.take().unwrap_or(first_pause);
        while since.elapsed() + pause < patience {
            if told {
                self.tell(Update::Lost { why: why.clone(), retry_in: pause }).await;
            }
            tokio::time::sleep(pause).await;
            match self.connect().await {
                Ok(replaced) => {
                    if replaced {
                        self.tell(Update::Replaced).await;
                    } else if told {
                        self.tell(Update::Back).await;
                    }
                    self.tell_status_due().await;
                    return Ok(());
                }
                Err(Fault::Fatal(error)) => return Err(error),
                Err(Fault::Lost(now)) => why = now,
            }
            // Clients that have lost the same daemon do not all come back at once.
            let jitter = uuid::Uuid::new_v4().as_u64_pair().0 % 50 + 75;
            pause = (pause * 2)
                .min(longest_pause)
                .mul_f64(f64::from(u32::try_from(jitter).unwrap_or(100)) / 100.0);
        }
        Err(SessionError::GaveUp { patience, why })
    }

    /// Makes a connection and subscribes. Says whether the history is another one than before.
    async fn connect(&mut self) -> Result<bool, Fault> {
        let (client, notifications) = self.dial.dial().await.map_err(|error| match error {
            DialError::Later(why) => Fault::Lost(why),
            DialError::Never(why) => Fault::Fatal(SessionError::Unreachable(why)),
        })?;
        self.texts.begin_again();
        let mut replaced = false;
        loop {
            let error = match self.subscribe(&client).await {
                Ok(()) => break,
                Err(error) => error,
            };
            match error.rpc().map(|error| error.kind.as_str()) {
                Some("cursor_invalid") if !replaced => {
                    replaced = true;
                    self.begin = Begin::Start;
                    self.children.clear();
                    self.texts = Texts::default();
                }
                // It will exist when it is prompted; then it is followed without being asked for.
                Some("session_not_found") if matches!(self.begin, Begin::Now) || self.is_unborn => {
                    (self.begin, self.is_unborn) = (Begin::Start, true);
                    break;
                }
                Some("shutting_down" | "overloaded") | None => return Err(Fault::Lost(error.to_string())),
                Some(_) => return Err(Fault::Fatal(SessionError::Refused(error))),
            }
        }
        self.connections += 1;
        self.notifications = Some(notifications);
        self.client = Some(client.clone());
        self.line.send_replace(Line::Up(self.connections, client));
        Ok(replaced)
    }

    async fn subscribe(&mut self, client: &Client) -> Result<(), CallError> {
        let (since, epoch) = match self.begin {
            Begin::Start => (Some(LastSeq(None)), None),
            Begin::Now => (None, None),
            Begin::After((epoch, seq)) => (Some(LastSeq(Some(seq))), Some(epoch)),
        };
        let child = |(id, place): (&SessionId, &Option<Place>)| {
            let (epoch, since) = place.map_or((Epoch(0), None), |(epoch, seq)| (epoch, Some(seq)));
            (id.clone(), ChildCursor { epoch, since: LastSeq(since) })
        };
        let params = SubscribeParams {
            session_id: self.id.clone(),
            since,
            epoch,
            tree: Some(self.options.tree),
            children: self.children.iter().map(child).collect(),
        };
        let reply: SubscribeResult = client.call_within(SUBSCRIBE_WAIT, Method::Subscribe, &params).await?;
        self.is_unborn = false;
        self.idle_after = match (self.status, reply.status) {
            (SessionStatus::Running, SessionStatus::Idle) => Some(reply.last_seq),
            (SessionStatus::Running, SessionStatus::Running) | (SessionStatus::Idle, _) => None,
        };
        let has_begun_to_run = (self.status, reply.status) == (SessionStatus::Idle, SessionStatus::Running);
        self.runs_unsaid = has_begun_to_run && !matches!(self.begin, Begin::Now);
        if matches!(self.begin, Begin::Now) {
            self.status = reply.status;
            self.begin = match reply.last_seq.0 {
                Some(seq) => Begin::After((reply.epoch, seq)),
                None => Begin::Start,
            };
        }
        Ok(())
    }
}
