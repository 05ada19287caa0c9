//! Text in flight over several connections. A new connection gives the text so far from its beginning, as one long delta;
//! what was given already is taken off it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::{Epoch, SessionId};

/// The texts that are being written, by session.
#[derive(Debug, Default)]
pub(super) struct Texts(HashMap<SessionId, Text>);

/// What one model call has written.
#[derive(Debug)]
struct Text {
    attempt: (u32, u32, u32),
    blocks: HashMap<u32, Block>,
}

#[derive(Debug, Default)]
struct Block {
    /// Given in all, in bytes; and come on this connection.
    given: usize,
    come: usize,
    is_started: bool,
    is_named: bool,
    is_ended: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Notice {
    session_id: SessionId,
    epoch: Epoch,
    event: Event,
}

#[derive(Deserialize, Serialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    transient: bool,
    time: u64,
    data: Data,
}

#[derive(Deserialize, Serialize)]
struct Data {
    turn: u32,
    step: u32,
    attempt: u32,
    chunk: Chunk,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    #[serde(rename = "type")]
    kind: String,
    index: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    block_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
}

impl Texts {
    /// A new connection gives texts from their beginning.
    pub(super) fn begin_again(&mut self) {
        for block in self.0.values_mut().flat_map(|text| text.blocks.values_mut()) {
            block.come = 0;
        }
    }

    /// A message is whole, or its call failed: no text of it comes any more.
    pub(super) fn end(&mut self, session: &SessionId) {
        self.0.remove(session);
    }

    /// Takes a chunk as it came, and gives back what of it is new; `None`: nothing. What can't be read is passed on.
    pub(super) fn take(&mut self, params: Box<RawValue>) -> Option<Box<RawValue>> {
        let Ok(mut notice) = serde_json::from_str::<Notice>(params.get()) else { return Some(params) };
        let data = &mut notice.event.data;
        let attempt = (data.turn, data.step, data.attempt);
        let text = self
            .0
            .entry(notice.session_id.clone())
            .and_modify(|text| {
                if text.attempt != attempt {
                    *text = Text { attempt, blocks: HashMap::new() };
                }
            })
            .or_insert_with(|| Text { attempt, blocks: HashMap::new() });
        match text.blocks.entry(data.chunk.index).or_default().take(&mut data.chunk) {
            New::All => Some(params),
            New::Nothing => None,
            New::Rest => serde_json::value::to_raw_value(&notice).ok(),
        }
    }
}

/// How much of a chunk is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum New {
    All,
    Nothing,
    /// What the chunk holds now.
    Rest,
}

impl Block {
    fn take(&mut self, chunk: &mut Chunk) -> New {
        let first = |flag: &mut bool| if std::mem::replace(flag, true) { New::Nothing } else { New::All };
        match chunk.kind.as_str() {
            "block-start" => return first(&mut self.is_started),
            "block-end" => return first(&mut self.is_ended),
            _ => {}
        }
        let named = chunk.id.is_some() || chunk.name.is_some();
        let is_new_name = named && !std::mem::replace(&mut self.is_named, true);
        let Some(piece) = chunk.text.as_mut().or(chunk.arguments.as_mut()) else { return New::All };
        let known = self.given.saturating_sub(self.come).min(piece.len());
        self.come += piece.len();
        self.given = self.given.max(self.come);
        match known {
            0 => New::All,
            known if known == piece.len() && !is_new_name => New::Nothing,
            known => {
                // Both texts are the same up to here, so this is between two characters.
                piece.drain(..piece.floor_char_boundary(known));
                if !is_new_name {
                    (chunk.id, chunk.name) = (None, None);
                }
                New::Rest
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(attempt: u32, body: &str) -> Box<RawValue> {
        let json = format!(
            r#"{{"sessionId":"s","epoch":7,"event":{{"type":"assistant/chunk","transient":true,"time":1,"data":{{"turn":1,"step":1,"attempt":{attempt},"chunk":{body}}}}}}}"#
        );
        RawValue::from_string(json).unwrap()
    }

    fn text(piece: &str) -> String {
        format!(r#"{{"type":"text-delta","index":0,"text":"{piece}"}}"#)
    }

    const START: &str = r#"{"type":"block-start","index":0,"blockType":"text"}"#;

    #[test]
    fn what_was_given_is_not_given_again_by_the_next_connection() {
        let mut texts = Texts::default();
        let mut take = |body: &str| texts.take(chunk(1, body)).map(|new| new.get().to_owned());
        assert!(take(START).is_some());
        assert_eq!(take(&text("é1 ")).unwrap(), chunk(1, &text("é1 ")).get());
        texts.begin_again();
        let mut take = |body: &str| texts.take(chunk(1, body)).map(|new| new.get().to_owned());
        assert_eq!(take(START), None);
        assert_eq!(take(&text("é1 é2 ")).unwrap(), chunk(1, &text("é2 ")).get());
        assert_eq!(take(&text("é3")).unwrap(), chunk(1, &text("é3")).get());
        texts.begin_again();
        let mut take = |body: &str| texts.take(chunk(1, body)).map(|new| new.get().to_owned());
        assert_eq!(take(&text("é1 ")), None);
        assert_eq!(take(&text("é2 é3")), None);
        assert_eq!(take(&text("4")).unwrap(), chunk(1, &text("4")).get());
    }

    #[test]
    fn another_attempt_is_another_text() {
        let mut texts = Texts::default();
        assert!(texts.take(chunk(1, &text("one"))).is_some());
        texts.begin_again();
        assert_eq!(texts.take(chunk(2, &text("one"))).unwrap().get(), chunk(2, &text("one")).get());
    }

    #[test]
    fn arguments_of_calls_are_text_too_and_names_come_once() {
        let call = |rest: &str| format!(r#"{{"type":"tool-call-delta","index":1,{rest}}}"#);
        let mut texts = Texts::default();
        let named = call(r#""id":"c","name":"bash","arguments":"{\"a\"""#);
        assert!(texts.take(chunk(1, &named)).is_some());
        texts.begin_again();
        let all = call(r#""id":"c","name":"bash","arguments":"{\"a\":1}""#);
        let rest = call(r#""arguments":":1}""#);
        assert_eq!(texts.take(chunk(1, &all)).unwrap().get(), chunk(1, &rest).get());
    }
}
