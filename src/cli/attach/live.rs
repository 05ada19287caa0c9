//! Attached on a terminal: what happens scrolls by, below it a line is typed.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::value::RawValue;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::super::escape::one_line;
use super::super::happening::{Envelope, Happening, Told};
use super::super::printer::{Piece, Printer};
use super::super::prompt::screen::{Screen, Stderr, Stdout, Style, width};
use super::super::prompt::turn::{Show, Turn};
use super::super::question::{Question, Said, word};
use super::super::{Failure, exit, human};
use super::canvas::{Bottom, Canvas};
use super::editor::{Editor, Wish};
use super::keyboard::Keyboard;
use super::{Past, ended};
use crate::client::session::{Session, SessionError, Update, Updates};
use crate::event::SessionId;
use crate::protocol::{
    CancelParams, CancelResult, ContentBlock, Empty, Method, Receipt, SessionStatus, SessionStatusNotice,
    notification,
};
use crate::signal::SignalStream;

/// How often what goes on is drawn anew.
const TICK: Duration = Duration::from_millis(500);

/// Prompts of ours that wait for their receipt.
const ASKED_MAX: usize = 16;

/// How it begins.
pub(super) struct Setup {
    pub(super) header: String,
    pub(super) detach: Vec<u8>,
    pub(super) read_only: bool,
}

/// The answer to something that was asked: what is to be said of it, if anything.
type Asked<'a> = BoxFuture<'a, Option<String>>;

struct Live<'a> {
    session: &'a Session,
    read_only: bool,
    turn: Turn,
    screen: Screen,
    canvas: Canvas,
    editor: Editor,
    status: SessionStatus,
    /// Calls that wait for an approval, the oldest first.
    questions: VecDeque<Question>,
    /// Why there is no connection right now.
    lost: Option<String>,
    /// Ctrl-C was pressed while there was nothing to cancel.
    is_leaving: bool,
    asked: FuturesUnordered<Asked<'a>>,
}

/// How it ends.
enum End {
    Detached,
    Session(SessionError),
    Signal(u8),
}

pub(super) async fn run(
    session: Session,
    mut updates: Updates,
    past: Past,
    setup: Setup,
) -> Result<u8, Failure> {
    let mut signals = SignalStream::install()
        .map_err(|error| Failure::bug(format!("cannot listen for signals: {error}")))?;
    let mut keyboard = Keyboard::take()
        .map_err(|error| Failure::new(exit::REFUSED, "io", format!("cannot use this terminal: {error}")))?;
    let printer = Printer::new();
    let mut live = Live::new(&session, &setup);
    for event in &past.events {
        live.take_event(None, event);
    }
    let mut tick = interval_at(Instant::now() + TICK, TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = loop {
        let drawn = live.draw();
        if !drawn.is_empty() {
            printer.send(Piece::Out(drawn.into_bytes())).await;
        }
        tokio::select! {
            biased;
            _ = signals.next() => break End::Signal(signals.first_stop().map_or(exit::INTERRUPTED, exit::of_signal)),
            () = printer.failed() => break End::Detached,
            typed = keyboard.next() => match typed {
                Some(bytes) => if live.typed(&bytes) { break End::Detached },
                None => break End::Detached,
            },
            Some(said) = live.asked.next() => live.say(said),
            update = updates.next() => match update {
                Some(Update::Ended(error)) => break End::Session(error),
                Some(update) => live.take(update),
                None => break End::Detached,
            },
            _ = tick.tick() => {}
        }
    };
    printer.send(Piece::Out(live.canvas.finish().into_bytes())).await;
    let is_running = live.status == SessionStatus::Running;
    drop(live);
    let printed = printer.finish().await;
    drop(keyboard);
    printed?;
    match end {
        End::Session(error) => Err(ended(&error, session.id())),
        End::Signal(code) => Ok(code),
        End::Detached if is_running => {
            super::super::tell::say(&format!("detached; still running: dshd attach {}", session.id()));
            Ok(exit::STILL_RUNNING)
        }
        End::Detached => {
            super::super::tell::say(&format!("detached: dshd attach {}", session.id()));
            Ok(exit::OK)
        }
    }
}

impl<'a> Live<'a> {
    fn new(session: &'a Session, setup: &Setup) -> Self {
        let style = Style { stdout: Stdout::Stream, stderr: Stderr::Fancy, thinking: false, width: width() };
        let mut canvas = Canvas::default();
        canvas.write(&format!("\x1b[1m{}\x1b[0m\n", setup.header));
        Self {
            session,
            read_only: setup.read_only,
            turn: Turn::watching(),
            screen: Screen::new(style),
            canvas,
            editor: Editor::new(setup.detach.clone()),
            status: SessionStatus::Idle,
            questions: VecDeque::new(),
            lost: None,
            is_leaving: false,
            asked: FuturesUnordered::new(),
        }
    }

    fn draw(&mut self) -> String {
        let columns = width();
        let (doing, since_ms) = self.screen.doing();
        let state = match (&self.lost, self.status) {
            (Some(why), _) => format!("  reconnecting… ({why})"),
            (None, _) if !self.read_only && !self.questions.is_empty() => {
                self.questions.front().map(Question::keys).unwrap_or_default()
            }
            (None, SessionStatus::Running) => {
                format!("  {doing}… {} s   ^C cancel   ^D detach", since_ms / 1000)
            }
            (None, SessionStatus::Idle) if self.is_leaving => "  nothing runs; ^C again to detach".to_owned(),
            (None, SessionStatus::Idle) => String::new(),
        };
        let bottom = if self.read_only {
            Bottom { state, input: None, column: 0 }
        } else {
            let (line, at) = self.editor.view(columns.saturating_sub(2));
            Bottom { state, input: Some(format!("> {line}")), column: at + 2 }
        };
        self.canvas.draw(&bottom, columns)
    }

    fn say(&mut self, line: Option<String>) {
        if let Some(line) = line {
            self.show(|screen, pieces| screen.comment(&line, pieces));
        }
    }

    /// Takes keys. `true`: leave.
    fn typed(&mut self, bytes: &[u8]) -> bool {
        if self.answered(bytes) {
            return false;
        }
        for wish in self.editor.take(bytes) {
            match wish {
                Wish::Detach => return true,
                Wish::Interrupt if self.interrupt() => return true,
                Wish::Interrupt => {}
                Wish::Say(_) if self.read_only => self.say(Some("attached to watch only".to_owned())),
                Wish::Say(_) if self.asked.len() >= ASKED_MAX => {
                    self.say(Some("too many prompts wait for their receipt; not sent".to_owned()));
                }
                Wish::Say(text) => self.prompt(text),
            }
        }
        if !self.editor.is_empty() {
            self.is_leaving = false;
        }
        false
    }

    /// A key that answers the oldest question, where nothing else is being typed.
    fn answered(&mut self, key: &[u8]) -> bool {
        let Some(question) = self.questions.front().filter(|_| !self.read_only && self.editor.is_empty())
        else {
            return false;
        };
        match question.said(key) {
            Said::Answer(outcome) => {
                let params = question.answer(outcome);
                let session = self.session;
                self.asked.push(Box::pin(async move {
                    let answered = session.ask::<_, Empty>(Method::Answer, &params).await;
                    answered.err().map(|error| format!("error: {error}"))
                }));
                true
            }
            Said::ShowDiff => {
                let diff = question.diff();
                self.say(Some(diff));
                true
            }
            Said::Nothing => false,
        }
    }

    /// A call asks, or has been answered.
    fn note_approval(&mut self, child: Option<&str>, happening: &Happening) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "two of many matter here")]
        match happening {
            Happening::Asked(asked) => {
                let session = child.map_or_else(|| Ok(self.session.id().clone()), SessionId::new);
                let Ok(session) = session else { return };
                let question = Question { session, approval: (**asked).clone() };
                self.say(Some(question.text()));
                self.questions.push_back(question);
            }
            Happening::Decided(decided) => {
                let at = self.questions.iter().position(|question| question.approval.id == decided.id);
                if at.and_then(|at| self.questions.remove(at)).is_some() {
                    let by = decided.by.as_deref().map(|by| format!(" by {}", one_line(by, 40)));
                    self.say(Some(format!("{}{}", word(decided.outcome), by.unwrap_or_default())));
                }
            }
            _ => {}
        }
    }

    /// Ctrl-C: cancels what runs; else clears the line; else leaves when it is pressed again.
    fn interrupt(&mut self) -> bool {
        if self.status == SessionStatus::Running {
            self.say(Some("^C cancelling…".to_owned()));
            let session = self.session;
            let params = CancelParams { session_id: session.id().clone(), message_id: None };
            self.asked.push(Box::pin(async move {
                let cancelled = session.ask::<_, CancelResult>(Method::Cancel, &params).await;
                cancelled.err().map(|error| format!("error: {error}"))
            }));
            return false;
        }
        if !self.editor.is_empty() {
            self.editor.clear();
            return false;
        }
        std::mem::replace(&mut self.is_leaving, true)
    }

    fn prompt(&mut self, text: String) {
        self.is_leaving = false;
        if self.status == SessionStatus::Running {
            self.say(Some("queued behind the turn that runs".to_owned()));
        }
        let session = self.session;
        self.asked.push(Box::pin(async move {
            let asked = session.prompt::<Receipt>(vec![ContentBlock::Text { text }]).await;
            asked.err().map(|error| format!("error: {error}"))
        }));
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Told(told) if told.method == notification::SESSION_EVENT => {
                if let Ok(event) = serde_json::from_str::<Told<'_>>(told.params.get()) {
                    let whose =
                        (event.session_id != self.session.id().as_str()).then(|| event.session_id.clone());
                    self.take_event(whose.as_deref(), event.event);
                }
            }
            Update::Told(told) if told.method == notification::SESSION_STATUS => {
                let status = serde_json::from_str::<SessionStatusNotice>(told.params.get()).ok();
                if let Some(status) = status.filter(|status| status.session_id == *self.session.id()) {
                    self.status = status.status;
                    self.is_leaving = false;
                }
            }
            Update::Lost { why, retry_in } => {
                let pause = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
                self.lost = Some(format!("{why}; again in {}", human::elapsed(pause)));
            }
            Update::Back => self.lost = None,
            Update::Replaced => {
                self.lost = None;
                self.turn = Turn::watching();
                self.say(Some("the session has another history now; from its start:".to_owned()));
            }
            Update::Told(_) | Update::Ended(_) => {}
        }
    }

    /// Takes an event of the session, or of the subagent that is named.
    fn take_event(&mut self, child: Option<&str>, event: &RawValue) {
        let Ok(event) = serde_json::from_str::<Envelope<'_>>(event.get()) else { return };
        let happening = event.happening();
        self.note_approval(child, &happening);
        let mut shows = Vec::new();
        match (child, happening) {
            (Some(child), happening) => self.turn.take_child(child, happening, event.time_ms, &mut shows),
            (None, happening) => {
                if matches!(happening, Happening::TurnStart(_)) {
                    self.status = SessionStatus::Running;
                    self.screen.turn_started();
                } else if matches!(happening, Happening::TurnEnd(_)) {
                    self.status = SessionStatus::Idle;
                }
                self.turn.take(happening, event.time_ms, &mut shows);
            }
        }
        for show in shows {
            if let Show::Ended(reason) = &show {
                let mut pieces = Vec::new();
                let id = self.session.id().as_str();
                self.screen.show(show.clone(), &mut pieces);
                self.screen.turn_ended(&self.turn, reason, id, &mut pieces);
                self.write(pieces);
            } else {
                self.show(|screen, pieces| screen.show(show, pieces));
            }
        }
    }

    fn show(&mut self, show: impl FnOnce(&mut Screen, &mut Vec<Piece>)) {
        let mut pieces = Vec::new();
        show(&mut self.screen, &mut pieces);
        self.write(pieces);
    }

    fn write(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            let (Piece::Out(bytes) | Piece::Err(bytes)) = piece;
            self.canvas.write(&String::from_utf8_lossy(&bytes));
        }
    }
}
