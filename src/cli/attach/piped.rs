//! Attached without a terminal: events as lines, or as the wire tells them with `--json`, until the session ends or we are
//! told to leave.

use serde_json::value::RawValue;

use super::super::happening::{Envelope, Told};
use super::super::log::line;
use super::super::{Failure, Globals, exit, output, tell};
use super::{Past, ended};
use crate::client::session::{Session, Update, Updates};
use crate::event::Epoch;
use crate::protocol::{SessionEventNotice, notification};
use crate::signal::SignalStream;

pub(super) async fn run(
    session: &Session,
    mut updates: Updates,
    past: Past,
    globals: &Globals,
) -> Result<u8, Failure> {
    let mut signals = SignalStream::install()
        .map_err(|error| Failure::bug(format!("cannot listen for signals: {error}")))?;
    for event in &past.events {
        print_stored(session, past.epoch, event, globals)?;
    }
    loop {
        tokio::select! {
            biased;
            _ = signals.next() => return Ok(signals.first_stop().map_or(exit::INTERRUPTED, exit::of_signal)),
            update = updates.next() => match update {
                Some(Update::Told(told)) if told.method == notification::SESSION_EVENT => {
                    print(&told.params, globals)?;
                }
                Some(Update::Told(_)) => {}
                Some(Update::Lost { why, .. }) => tell::note(globals, &format!("reconnecting: {why}")),
                Some(Update::Back) => tell::note(globals, "connected again"),
                Some(Update::Replaced) => tell::warn("the session's history is another one now; it comes from its start"),
                Some(Update::Ended(error)) => return Err(ended(&error, session.id())),
                None => return Ok(exit::OK),
            },
        }
    }
}

/// Text in flight has no line; the message has it.
fn print(params: &RawValue, globals: &Globals) -> Result<(), Failure> {
    let Ok(told) = serde_json::from_str::<Told<'_>>(params.get()) else { return Ok(()) };
    let Ok(event) = serde_json::from_str::<Envelope<'_>>(told.event.get()) else { return Ok(()) };
    if globals.args.json {
        return output::print_raw(&format!("{}\n", params.get()));
    }
    if event.seq.is_some() { output::print_raw(&format!("{}\n", line::line(&event))) } else { Ok(()) }
}

fn print_stored(session: &Session, epoch: Epoch, event: &RawValue, globals: &Globals) -> Result<(), Failure> {
    let notice = SessionEventNotice { session_id: session.id().clone(), epoch, event: event.to_owned() };
    let params = serde_json::value::to_raw_value(&notice)
        .map_err(|error| Failure::bug(format!("cannot write an event as JSON: {error}")))?;
    print(&params, globals)
}
