//! `dshd log`: prints a session's log.

pub(super) mod line;
mod select;
mod stored;

use std::collections::{BTreeMap, VecDeque};

use clap::Args;
use serde_json::value::RawValue;

use self::select::Selection;
use super::happening::{Envelope, Told};
use super::reach::{self, Reached, Start};
use super::{Failure, Globals, exit, listing, output, refusal, tell};
use crate::event::{Epoch, Seq, SessionId, SessionOpened};
use crate::protocol::{
    LastSeq, Method, PositiveInt, ReadParams, ReadResult, SessionEventNotice, SubscribeParams,
    SubscribeResult, notification,
};

/// Arguments of `dshd log`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd log 3f9c -n 20
  dshd log 3f9c -f --json
  dshd log 3f9c --type turn/end")]
pub struct LogArgs {
    /// The session
    #[arg(value_name = "ID")]
    pub id: String,
    /// Go on with what comes
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last N events
    #[arg(short = 'n', value_name = "N")]
    pub count: Option<usize>,
    /// Only events after this seq or time
    #[arg(long, value_name = "SEQ|TIME")]
    pub since: Option<String>,
    /// Only events up to this seq or time
    #[arg(long, value_name = "SEQ|TIME")]
    pub until: Option<String>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// Lines as they are stored
    #[arg(long)]
    pub raw: bool,
}

/// Events asked for at once.
const PAGE_EVENTS: PositiveInt = PositiveInt(1000);

pub(super) async fn run(args: LogArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let selection = Selection::of(&args)?;
    let reached = match reach::daemon(globals, &loaded, Start::Never, &reach::as_viewer()).await {
        Ok(reached) => reached,
        Err(failure) if failure.kind == refusal::NO_DAEMON && !args.follow => {
            return stored::print(failure, &args, globals, &loaded, selection).await;
        }
        Err(failure) => return Err(failure),
    };
    let session = listing::find(&reached, &args.id).await?;
    let mut output = Output::new(&session, &args, globals, selection);
    let position = history(&reached, &session, &mut output).await?;
    output.flush_last()?;
    if args.follow && !output.is_done {
        follow(reached, &session, position, &mut output).await?;
    }
    Ok(exit::OK)
}

/// Reads what is there, and returns up to where.
async fn history(
    reached: &Reached,
    session: &SessionId,
    output: &mut Output<'_>,
) -> Result<Position, Failure> {
    // The life of the log that an event was written in is known only from before it.
    let start = if output.form == Form::Json { None } else { output.selection.start() };
    let mut since = start.map(|seq| LastSeq(Some(Seq(seq))));
    loop {
        let params = ReadParams { session_id: session.clone(), since, limit: Some(PAGE_EVENTS) };
        let page: ReadResult = reached.call(Method::Read, &params).await?;
        output.epoch.get_or_insert(page.epoch);
        for event in &page.events {
            output.take(event)?;
        }
        match page.next_since {
            Some(next) if !output.is_done => since = Some(LastSeq(Some(next))),
            Some(_) | None => {
                return Ok(Position { epoch: page.epoch, last: output.last.or(page.last_seq.0) });
            }
        }
    }
}

/// Goes on with what comes, until the session or the daemon ends.
async fn follow(
    mut reached: Reached,
    session: &SessionId,
    position: Position,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let params = SubscribeParams {
        session_id: session.clone(),
        since: Some(LastSeq(position.last)),
        epoch: Some(position.epoch),
        tree: Some(false),
        children: BTreeMap::new(),
    };
    let _: SubscribeResult = reached.call(Method::Subscribe, &params).await?;
    while let Some(told) = reached.notifications.next().await {
        if told.method == notification::SESSION_EVENT {
            let event: Told<'_> = serde_json::from_str(told.params.get())
                .map_err(|error| Failure::bug(format!("cannot read an event: {error}")))?;
            output.take(event.event)?;
        } else if told.method == notification::SESSION_CLOSED {
            tell::say(&format!("session {session} was closed"));
            return Ok(());
        }
        if output.is_done {
            return Ok(());
        }
    }
    Err(refusal::call(&reached.target, reached.client.ended().await))
}

/// Where a log is.
#[derive(Clone, Copy, Debug)]
struct Position {
    epoch: Epoch,
    last: Option<Seq>,
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A line for a person.
    Line,
    /// As they are stored.
    Raw,
    /// As the wire tells them.
    Json,
}

/// Writes the events that are wanted.
#[derive(Debug)]
struct Output<'a> {
    session: &'a SessionId,
    selection: Selection,
    form: Form,
    /// Only the last so many are written, once all have been seen.
    last_lines: Option<VecDeque<String>>,
    count: usize,
    /// The life of the log in which the next event was written.
    epoch: Option<Epoch>,
    /// The last event seen.
    last: Option<Seq>,
    /// Nothing that follows is wanted.
    is_done: bool,
}

impl<'a> Output<'a> {
    fn new(session: &'a SessionId, args: &LogArgs, globals: &Globals, selection: Selection) -> Self {
        let form = match (args.raw, globals.args.json) {
            (true, _) => Form::Raw,
            (false, true) => Form::Json,
            (false, false) => Form::Line,
        };
        Self {
            session,
            selection,
            form,
            last_lines: args.count.map(|_| VecDeque::new()),
            count: args.count.unwrap_or(0),
            epoch: None,
            last: None,
            is_done: false,
        }
    }

    /// Takes the next event.
    fn take(&mut self, raw: &RawValue) -> Result<(), Failure> {
        let event: Envelope<'_> = serde_json::from_str(raw.get())
            .map_err(|error| Failure::bug(format!("cannot read an event: {error}")))?;
        self.last = event.seq.map(Seq).or(self.last);
        if event.kind == "session/opened"
            && let Ok(opened) = serde_json::from_str::<SessionOpened>(event.data.get())
        {
            self.epoch = Some(opened.epoch);
        }
        self.is_done = self.is_done || self.selection.is_past(&event);
        if self.is_done || !self.selection.wants(&event) {
            return Ok(());
        }
        let text = match self.form {
            Form::Line => line::line(&event),
            Form::Raw => raw.get().to_owned(),
            Form::Json => self.told(raw)?,
        };
        match &mut self.last_lines {
            Some(_) if self.count == 0 => Ok(()),
            Some(lines) => {
                if lines.len() == self.count {
                    lines.pop_front();
                }
                lines.push_back(text);
                Ok(())
            }
            None => output::print_raw(&(text + "\n")),
        }
    }

    fn told(&self, raw: &RawValue) -> Result<String, Failure> {
        let epoch = self.epoch.unwrap_or(Epoch(0));
        let notice = SessionEventNotice { session_id: self.session.clone(), epoch, event: raw.to_owned() };
        serde_json::to_string(&notice)
            .map_err(|error| Failure::bug(format!("cannot write an event as JSON: {error}")))
    }

    /// Writes what was kept back; what comes later is written at once.
    fn flush_last(&mut self) -> Result<(), Failure> {
        for line in self.last_lines.take().into_iter().flatten() {
            output::print_raw(&(line + "\n"))?;
        }
        Ok(())
    }
}
