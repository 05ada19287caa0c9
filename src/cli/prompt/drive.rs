//! Drives one prompt: events to the printer as they come, Ctrl-C to a cancel, until the reply.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::super::happening::{Envelope, Happening, Told};
use super::super::printer::{Piece, Printer};
use super::super::question::Said;
use super::super::reach::Reached;
use super::questions::{Noted, Questions};
use super::screen::{Screen, Stderr, Stdout};
use super::turn::{Show, Turn};
use crate::client::{CallError, Notification, Reply};
use crate::event::{MessageId, SessionId};
use crate::protocol::{
    CancelParams, CancelResult, Empty, LastSeq, Method, PositiveInt, PromptParams, ReadParams, ReadResult,
    SettledStatus, notification,
};
use crate::signal::{SignalStream, Urgency, Wish};

/// How often the live line moves.
const TICK: Duration = Duration::from_secs(1);

/// Events of a page when a turn is read from the log.
const PAGE_EVENTS: PositiveInt = PositiveInt(1000);

/// How it ended, for us.
#[derive(Debug)]
pub(super) enum Ended {
    /// The daemon answered.
    Replied(Replied),
    /// It refused, or the connection ended.
    Refused(CallError),
    /// The time given was over; the turn goes on.
    TimedOut,
    /// The user wanted to leave at once; the daemon ends the turn.
    Left,
    /// Nobody reads stdout any more.
    PipeClosed,
}

/// The result of `session/prompt`: of a receipt the message alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replied {
    /// The prompt's message.
    pub(super) message_id: MessageId,
    /// The outcome in a word.
    pub(super) status: Option<SettledStatus>,
    /// The `reason` of its `turn/end`, byte for byte.
    pub(super) reason: Option<Box<RawValue>>,
}

/// A prompt under way.
pub(super) struct Drive<'a> {
    pub(super) reached: &'a mut Reached,
    pub(super) signals: &'a mut SignalStream,
    pub(super) printer: &'a Printer,
    pub(super) screen: Screen,
    pub(super) turn: Turn,
    session: SessionId,
    pieces: VecDeque<Piece>,
    /// The user wants it cancelled.
    is_cancelling: bool,
    /// The cancel that was sent.
    cancel: Option<Reply<CancelResult>>,
    /// Commands that ran when the user cancelled.
    commands: usize,
    /// Somebody is here who can be asked.
    pub(super) asks: bool,
    questions: Questions,
}

impl<'a> Drive<'a> {
    /// Ready to send.
    pub(super) fn new(
        reached: &'a mut Reached,
        signals: &'a mut SignalStream,
        printer: &'a Printer,
        screen: Screen,
        prompt: &PromptParams,
    ) -> Self {
        Self {
            reached,
            signals,
            printer,
            screen,
            turn: Turn::new(prompt.idempotency_key.clone().unwrap_or_default()),
            session: prompt.session_id.clone(),
            pieces: VecDeque::new(),
            is_cancelling: false,
            cancel: None,
            commands: 0,
            asks: false,
            questions: Questions::default(),
        }
    }

    /// Sends the prompt and follows it to its end.
    pub(super) async fn run(&mut self, prompt: &PromptParams, timeout: Option<Duration>) -> Ended {
        let mut reply = match self.reached.client.send::<_, Replied>(Method::Prompt, prompt).await {
            Ok(reply) => reply,
            Err(error) => return Ended::Refused(error),
        };
        let mut is_over = false;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut tick = interval_at(Instant::now() + TICK, TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_drained = self.pieces.is_empty();
            tokio::select! {
                biased;
                wish = self.signals.next() => if self.heard(wish).await { return Ended::Left },
                () = until(deadline) => return Ended::TimedOut,
                () = self.printer.failed() => return Ended::PipeClosed,
                () = self.printer.has_room(), if !is_drained => {
                    if let Some(piece) = self.pieces.pop_front() {
                        self.printer.print(piece);
                    }
                }
                key = self.questions.key() => if self.typed(&key).await { return Ended::Left },
                told = self.reached.notifications.next(), if is_drained && !is_over => match told {
                    Some(told) => self.take(&told).await,
                    // The connection has ended; the reply was there before, or tells why it ended.
                    None => is_over = true,
                },
                outcome = &mut reply, if is_drained => {
                    while let Some(told) = self.reached.notifications.take_ready() {
                        self.take(&told).await;
                    }
                    return match outcome {
                        Ok(replied) => Ended::Replied(replied),
                        Err(error) => Ended::Refused(error),
                    };
                }
                _ = tick.tick(), if is_drained => self.show(Screen::tick),
            }
        }
    }

    /// Shows a turn whose events came in an earlier life of this prompt's key, from the log.
    ///
    /// # Errors
    /// When the log can't be read.
    pub(super) async fn replay(&mut self, replied: &Replied) -> Result<(), CallError> {
        self.turn.know_message(&replied.message_id);
        let mut since = None;
        loop {
            let params = ReadParams { session_id: self.session.clone(), since, limit: Some(PAGE_EVENTS) };
            let page: ReadResult = self.reached.client.call(Method::Read, &params).await?;
            for event in &page.events {
                self.take_event(event);
            }
            since = page.next_since.map(|seq| LastSeq(Some(seq)));
            if since.is_none() || self.turn.reason().is_some() {
                return Ok(());
            }
        }
    }

    /// Says that the cancelling is over, and gives all that waits to the printer.
    pub(super) async fn flush(&mut self) {
        if self.is_cancelling {
            let ended = match self.commands {
                0 => String::new(),
                1 => " (1 process tree ended)".to_owned(),
                n => format!(" ({n} process trees ended)"),
            };
            self.commentary(&format!("done{ended}\n"));
        }
        for piece in self.pieces.drain(..) {
            self.printer.send(piece).await;
        }
    }

    /// Shows something of our own making.
    pub(super) fn show(&mut self, show: impl FnOnce(&mut Screen, &mut Vec<Piece>)) {
        let mut pieces = Vec::new();
        show(&mut self.screen, &mut pieces);
        self.pieces.extend(pieces);
    }

    /// Takes the turn's last state to the screen.
    pub(super) fn finish(&mut self, is_ok: bool) {
        let mut pieces = Vec::new();
        self.screen.finish(&self.turn, is_ok, self.session.as_str(), &mut pieces);
        self.pieces.extend(pieces);
    }

    /// A signal. `true`: leave at once.
    async fn heard(&mut self, wish: Option<Wish>) -> bool {
        match wish {
            Some(Wish::Stop(Urgency::Once)) => {
                self.is_cancelling = true;
                self.commands = self.turn.running_commands();
                self.show(Screen::interrupt);
                self.commentary("^C cancelling… ");
                self.send_cancel().await;
                false
            }
            Some(Wish::Stop(Urgency::Again) | Wish::Reload) | None => true,
        }
    }

    /// A key while a question waits. `true`: leave at once.
    async fn typed(&mut self, key: &[u8]) -> bool {
        const INTERRUPT: &[u8] = b"\x03";
        if key == INTERRUPT {
            let urgency = if self.is_cancelling { Urgency::Again } else { Urgency::Once };
            return self.heard(Some(Wish::Stop(urgency))).await;
        }
        match self.questions.said(key) {
            Some((question, Said::Answer(outcome))) => {
                let params = question.answer(outcome);
                // What becomes of it is told by its event; a connection that has ended, by the prompt's reply.
                if let Err(error) = self.reached.client.send::<_, Empty>(Method::Answer, &params).await {
                    tracing::debug!(%error, "cannot answer");
                }
            }
            Some((question, Said::ShowDiff)) => {
                let diff = question.diff();
                self.commentary(&format!("{diff}\n"));
            }
            Some((_, Said::Nothing)) | None => {}
        }
        false
    }

    /// A call asks, or has been answered.
    fn note_approval(&mut self, session: &str, happening: &Happening) {
        if !self.asks {
            return;
        }
        match self.questions.note(session, happening) {
            Some(Noted::Asks(question)) => {
                self.show(Screen::break_line);
                self.commentary(&format!("{}\n{}\n", question.text(), question.keys()));
            }
            Some(Noted::Decided(words)) => self.commentary(&format!("{words}\n")),
            None => {}
        }
    }

    /// Cancels our prompt, once it is known which message it is: never what others run.
    async fn send_cancel(&mut self) {
        let (true, None, Some(id)) = (self.is_cancelling, &self.cancel, self.turn.message_id()) else {
            return;
        };
        let params = CancelParams { session_id: self.session.clone(), message_id: Some(id.clone()) };
        match self.reached.client.send(Method::Cancel, &params).await {
            Ok(cancel) => self.cancel = Some(cancel),
            // The connection has ended, which the prompt's reply tells as well.
            Err(error) => tracing::debug!(%error, "cannot cancel"),
        }
    }

    async fn take(&mut self, told: &Notification) {
        if told.method != notification::SESSION_EVENT {
            return;
        }
        let event: Told<'_> = match serde_json::from_str(told.params.get()) {
            Ok(event) => event,
            Err(error) => {
                tracing::debug!(%error, "passed over an event that this version cannot read");
                return;
            }
        };
        if self.screen.style().stdout == Stdout::Json {
            self.pieces.push_back(Piece::Out(format!("{}\n", told.params.get()).into_bytes()));
        }
        if event.session_id == self.session.as_str() {
            self.take_event(event.event);
            self.send_cancel().await;
        } else {
            // We asked for no other session, so it is one that works for ours.
            self.read(&event.session_id, event.event, |turn, happening, time_ms, shows| {
                turn.take_child(&event.session_id, happening, time_ms, shows);
            });
        }
    }

    fn take_event(&mut self, event: &RawValue) {
        let session = self.session.to_string();
        self.read(&session, event, Turn::take);
    }

    fn read(
        &mut self,
        session: &str,
        event: &RawValue,
        take: impl FnOnce(&mut Turn, Happening, u64, &mut Vec<Show>),
    ) {
        let envelope: Envelope<'_> = match serde_json::from_str(event.get()) {
            Ok(envelope) => envelope,
            Err(error) => {
                tracing::debug!(%error, "passed over an event that this version cannot read");
                return;
            }
        };
        let mut shows = Vec::new();
        let happening = envelope.happening();
        self.note_approval(session, &happening);
        take(&mut self.turn, happening, envelope.time_ms, &mut shows);
        for show in shows {
            self.show(|screen, pieces| screen.show(show, pieces));
        }
    }

    fn commentary(&mut self, text: &str) {
        if self.screen.style().stderr != Stderr::Silent {
            self.pieces.push_back(Piece::Err(text.to_owned().into_bytes()));
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The last line of `prompt --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResultLine<'a> {
    /// Always `result`.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The session.
    pub(super) session_id: &'a str,
    /// `ok`, `aborted`, `error`; `running` when it goes on without us.
    pub(super) status: &'static str,
    /// How the turn ended, as its event says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a RawValue>,
    /// The answer.
    pub(super) text: &'a str,
    /// Tokens of all model calls.
    pub(super) usage: &'a crate::event::Usage,
    /// From the prompt to here.
    pub(super) duration_ms: u64,
    /// No model was called: the built-in script answered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) scripted: bool,
}
