//! The loop that every streaming adapter shares: bytes to events to the adapter's parser to the sink.

use std::task::Poll;

use serde::Deserialize;

use super::blocks::Writer;
use super::failure::Blame;
use super::http::{Body, Progress};
use super::json::repaired;
use super::sse::{Decoder, Event, TooLong};
use super::{CallError, ChunkSink, Completion, Finish};

/// How often the connection's task gets a turn to bring more before what has come is pushed. It hands over one piece a
/// turn, so without this a fast stream would be as many pushes as it has pieces.
const TURNS_GIVEN_MAX: u32 = 16;

/// Reads one wire's events.
pub(super) trait Parser {
    /// Takes an event.
    ///
    /// # Errors
    /// Whatever ends the call.
    fn event(&mut self, event: Event<'_>, out: &mut Writer<'_>) -> Result<Flow, CallError>;

    /// Whether the model has said that it is finished.
    fn finished(&self) -> bool;

    /// Ends the blocks that are open and gives the completion.
    ///
    /// # Errors
    /// When the answer is not complete.
    fn close(self, out: &mut Writer<'_>) -> Result<Completion, CallError>;

    /// Ends the blocks that are open after a sink had enough.
    fn cut(self, out: &mut Writer<'_>) -> Completion;
}

/// What the events of a wire hold.
pub(super) trait Wire {
    /// The data of one, read from its text.
    type Event<'e>: Deserialize<'e>;

    /// What one is called.
    const NAME: &'static str;
}

/// Reads an event's data and hands it on with its text: as it came, or, when that is no JSON, with what JSON can't hold
/// replaced.
///
/// # Errors
/// What `take` says; data that can't be read even so, and then the error that an event of errors is.
pub(super) fn read_event<W: Wire, R>(
    event: &Event<'_>,
    blame: Blame<'_>,
    take: impl FnOnce(W::Event<'_>, &str) -> Result<R, CallError>,
) -> Result<R, CallError> {
    let parsed = std::str::from_utf8(event.data).ok().and_then(|data| {
        let parsed = serde_json::from_str::<W::Event<'_>>(data).ok()?;
        Some((parsed, data))
    });
    if let Some((parsed, data)) = parsed {
        return take(parsed, data);
    }
    let data = repaired(event.data);
    if event.is_error {
        return Err(blame.in_stream(&data));
    }
    let parsed = serde_json::from_str(&data)
        .map_err(|error| blame.malformed(&format!("{} of the answer can't be read: {error}", W::NAME)))?;
    take(parsed, &data)
}

/// Whether a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It does.
    More,
    /// Nothing that follows matters.
    Done,
}

/// Why reading ends before the stream does.
enum Halt {
    Failed(CallError),
    TooLong(TooLong),
    Done,
}

impl From<TooLong> for Halt {
    fn from(error: TooLong) -> Self {
        Self::TooLong(error)
    }
}

/// Reads a whole answer.
///
/// # Errors
/// Whatever keeps the answer from being complete. What arrived before is in the sink.
pub(super) async fn read_answer<P: Parser>(
    mut body: Body<'_>,
    sink: &mut dyn ChunkSink,
    mut parser: P,
) -> Result<Completion, CallError> {
    let blame = body.blame();
    let mut out = Writer::new(sink);
    let mut decoder = Decoder::default();
    let mut turns_given = 0;
    loop {
        let mut arrived = body.arrived();
        if arrived.is_none() && out.waits() && turns_given < TURNS_GIVEN_MAX {
            turns_given += 1;
            give_turn().await;
            arrived = body.arrived();
        }
        let read = if let Some(read) = arrived {
            read
        } else {
            turns_given = 0;
            out.flush();
            if out.enough() {
                break;
            }
            let progress = match (parser.finished(), out.began()) {
                (true, _) => Progress::Finished,
                (false, true) => Progress::Speaking,
                (false, false) => Progress::Waiting,
            };
            body.read(progress).await
        };
        let bytes = match read {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                last_event(&mut decoder, &mut parser, &mut out)?;
                break;
            }
            Err(_) if parser.finished() => break,
            Err(error) => {
                out.flush();
                return Err(error);
            }
        };
        let mut on_event = |event: Event<'_>| match parser.event(event, &mut out) {
            Ok(Flow::More) => Ok(()),
            Ok(Flow::Done) => Err(Halt::Done),
            Err(error) => Err(Halt::Failed(error)),
        };
        match decoder.feed(&bytes, &mut on_event) {
            Ok(()) if !out.enough() => {}
            Ok(()) => break,
            Err(Halt::Done) => {
                body.end().await;
                break;
            }
            Err(halt) => {
                out.flush();
                return Err(halted(halt, blame));
            }
        }
    }
    out.flush();
    if out.enough() { Ok(parser.cut(&mut out)) } else { parser.close(&mut out) }
}

/// Lets the tasks that are ready run once, without waiting for anything.
async fn give_turn() {
    let mut given = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn halted(halt: Halt, blame: Blame<'_>) -> CallError {
    match halt {
        Halt::Failed(error) => error,
        Halt::TooLong(error) => blame.malformed(&error.to_string()),
        Halt::Done => blame.truncated(),
    }
}

/// Takes an event that lacks only its empty line. One that was cut can't be read: then the answer is not complete, and
/// the parser says so when it is closed.
fn last_event<P: Parser>(
    decoder: &mut Decoder,
    parser: &mut P,
    out: &mut Writer<'_>,
) -> Result<(), CallError> {
    let mut failed = None;
    let mut on_event = |event: Event<'_>| {
        if let Err(error) = parser.event(event, out)
            && error.failure.code != crate::event::FailureCode::MalformedResponse
        {
            failed = Some(error);
        }
        Ok::<(), TooLong>(())
    };
    if decoder.finish(&mut on_event).is_err() {
        return Ok(());
    }
    out.flush();
    failed.map_or(Ok(()), Err)
}

/// A completion of an answer that the sink cut.
pub(super) fn cut_short() -> Completion {
    Completion { finish: Finish::Length, usage: None, replay_state: None }
}
