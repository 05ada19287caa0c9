//! Golden streams of the three wires, cut at every byte and damaged at random: an adapter neither panics nor takes a cut
//! answer for a whole one, and ends every block that it began. Tests alone.

use proptest::prelude::*;

use super::anthropic::MessagesParser;
use super::blocks::Writer;
use super::chat::ChatParser;
use super::failure::Blame;
use super::model_server::{anthropic, chat, responses};
use super::responses::ResponsesParser;
use super::sse::{Decoder, Event, TooLong};
use super::stream::{Flow, Parser};
use super::test_sink::Recorder;
use super::{CallError, Completion};
use crate::event::Block;

const BLAME: Blame<'static> = Blame { provider: "p", secrets: &[] };

/// Why a stream is read no further.
enum Halt {
    Failed(CallError),
    Ended,
}

impl From<TooLong> for Halt {
    fn from(error: TooLong) -> Self {
        Self::Failed(BLAME.malformed(&error.to_string()))
    }
}

/// What becomes of a stream's bytes; `cut`: the sink has enough at the end.
fn play<P: Parser>(mut parser: P, bytes: &[u8], cut: bool) -> (Result<Completion, CallError>, Recorder) {
    let mut sink = Recorder::default();
    let mut out = Writer::new(&mut sink);
    let mut decoder = Decoder::default();
    let mut on_event = |event: Event<'_>| match parser.event(event, &mut out) {
        Ok(Flow::More) => Ok(()),
        Ok(Flow::Done) => Err(Halt::Ended),
        Err(error) => Err(Halt::Failed(error)),
    };
    let read = decoder.feed(bytes, &mut on_event);
    let done = match read {
        Err(Halt::Failed(error)) => Err(error),
        Ok(()) | Err(Halt::Ended) if cut => Ok(parser.cut(&mut out)),
        Ok(()) | Err(Halt::Ended) => parser.close(&mut out),
    };
    out.flush();
    (done, sink)
}

#[derive(Clone, Copy, Debug)]
enum On {
    Chat,
    ChatThink,
    Anthropic,
    Responses,
}

const ALL: [On; 4] = [On::Chat, On::ChatThink, On::Anthropic, On::Responses];

fn play_on(wire: On, bytes: &[u8], cut: bool) -> (Result<Completion, CallError>, Recorder) {
    match wire {
        On::Chat => play(ChatParser::new(BLAME, false, true), bytes, cut),
        On::ChatThink => play(ChatParser::new(BLAME, true, true), bytes, cut),
        On::Anthropic => play(MessagesParser::new(BLAME), bytes, cut),
        On::Responses => play(ResponsesParser::new(BLAME), bytes, cut),
    }
}

/// A stream with thoughts, text and two calls: what comes before the event that completes it, and that event.
fn golden(wire: On) -> (String, String) {
    let json = r#"{"n":"\u00e9\ud83d\ude42"}"#;
    match wire {
        On::Chat | On::ChatThink => {
            let thought = match wire {
                On::ChatThink => chat::text("<think>hé</think>"),
                On::Chat | On::Anthropic | On::Responses => chat::reasoning("hé🙂"),
            };
            let said = [chat::text("a那"), chat::call(0, "a", "x", json), chat::call(1, "b", "y", "{}")];
            (": hi\r\n\r\n".to_owned() + &thought + &said.concat(), chat::finish("tool_calls"))
        }
        On::Anthropic => {
            let thinking = r#"{"type":"thinking","thinking":"","signature":""}"#;
            let piece = format!(
                r#"{{"type":"input_json_delta","partial_json":{}}}"#,
                serde_json::to_string(json).unwrap()
            );
            let parts = [
                anthropic::start(),
                anthropic::block_start(0, thinking),
                anthropic::block_delta(0, r#"{"type":"thinking_delta","thinking":"hé🙂"}"#),
                anthropic::block_delta(0, r#"{"type":"signature_delta","signature":"s"}"#),
                anthropic::block_stop(0),
                anthropic::block_start(1, r#"{"type":"text","text":""}"#),
                anthropic::text(1, "a那"),
                anthropic::block_stop(1),
                anthropic::block_start(2, r#"{"type":"tool_use","id":"a","name":"x","input":{}}"#),
                anthropic::block_delta(2, &piece),
                anthropic::block_stop(2),
                anthropic::block_start(3, r#"{"type":"tool_use","id":"b","name":"y","input":{}}"#),
                anthropic::block_stop(3),
            ];
            let stop = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
            (parts.concat(), anthropic::event("message_delta", stop))
        }
        On::Responses => {
            let sealed = r#"{"id":"rs","type":"reasoning","encrypted_content":"x","summary":[]}"#;
            let parts = [
                responses::created(),
                responses::summary(0, 0, "hé🙂"),
                responses::done(0, sealed),
                responses::text(1, "a那"),
                responses::done(1, &responses::message(1, "a那")),
                responses::call(2, "a", "x", json),
                responses::call(3, "b", "y", "{}"),
            ];
            (parts.concat(), responses::completed())
        }
    }
}

fn whole(wire: On) -> Vec<Block> {
    let call = |id: &str, name: &str, arguments: &str| Block::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let thought = match wire {
        On::ChatThink => "hé",
        On::Chat | On::Anthropic | On::Responses => "hé🙂",
    };
    vec![
        Block::Reasoning { text: thought.to_owned() },
        Block::text("a那"),
        call("a", "x", r#"{"n":"\u00e9\ud83d\ude42"}"#),
        call("b", "y", "{}"),
    ]
}

#[test]
fn an_answer_is_whole_from_the_event_that_says_so_and_not_a_byte_before() {
    for wire in ALL {
        let (before, last) = golden(wire);
        let bytes = (before.clone() + &last).into_bytes();
        for end in 0..=bytes.len() {
            let (done, sink) = play_on(wire, &bytes[..end], false);
            if end < bytes.len() {
                assert!(done.is_err(), "{wire:?} is whole at byte {end} of {}", bytes.len());
            } else {
                done.unwrap();
                assert_eq!(sink.blocks(), whole(wire), "{wire:?}");
            }
            let (_, sink) = play_on(wire, &bytes[..end], true);
            // Asserts that each has ended.
            sink.blocks();
        }
    }
}

/// A change to a stream's bytes.
#[derive(Clone, Debug)]
enum Damage {
    Replace(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = 0usize..10_000;
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        (at.clone(), 1usize..200).prop_map(|(at, bytes)| Damage::Remove(at, bytes)),
        (at, 1usize..400).prop_map(|(at, bytes)| Damage::Repeat(at, bytes)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let (Damage::Replace(at, _) | Damage::Remove(at, _) | Damage::Repeat(at, _)) = damage;
        let at = at % bytes.len().max(1);
        match damage {
            Damage::Replace(_, byte) => {
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Damage::Remove(_, count) => {
                let end = (at + count).min(bytes.len());
                bytes.drain(at..end);
            }
            Damage::Repeat(_, count) => {
                let end = (at + count).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(end..end, copy);
            }
        }
    }
    bytes
}

proptest! {
    #[test]
    fn no_bytes_make_an_adapter_panic_or_leave_a_block_open(
        which in 0usize..ALL.len(),
        damages in prop::collection::vec(damage(), 1..6),
        cut in any::<bool>(),
    ) {
        let (before, last) = golden(ALL[which]);
        let bytes = damaged((before + &last).into_bytes(), &damages);
        let (done, sink) = play_on(ALL[which], &bytes, cut);
        if done.is_ok() {
            for block in sink.blocks() {
                if let Block::ToolCall { id, name, .. } = block {
                    prop_assert!(!id.is_empty() && !name.is_empty());
                }
            }
        }
    }
}
