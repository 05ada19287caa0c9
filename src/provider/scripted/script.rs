//! A script file: one JSON object a line, each an answer with the conditions under which it is played.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::{FailureCode, Usage};
use crate::provider::json::unescape;
use crate::provider::{BlockKind, Finish};

/// Bytes of text that one part may give.
const PART_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a call is in its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Prompts so far.
    pub(super) turn: u32,
    /// Model calls of this turn, with this one.
    pub(super) step: u32,
    /// Which time this very call is made.
    pub(super) attempt: u32,
    /// The turn's prompt.
    pub(super) prompt: String,
}

/// What is played.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) parts: Vec<Part>,
    pub(super) finish: Finish,
    pub(super) usage: Option<Usage>,
}

/// One thing that a scripted model does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Writes a block of text or reasoning in deltas.
    Say { kind: BlockKind, deltas: Vec<String>, repeat: u32, pause: Option<Duration> },
    /// Calls a tool; the arguments may be no JSON.
    Call { id: Option<String>, name: String, arguments: String },
    /// Waits.
    Wait(Duration),
    /// Falls silent until it is cancelled.
    Stall,
    /// Fails.
    Fail { code: FailureCode, message: String, status: Option<u16>, after: Option<Duration> },
    /// Ends as if the connection had broken.
    Cut,
}

/// Why a script can't be played.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScriptError {
    /// A line is not what docs/scripted.md describes.
    #[error("line {line}: {reason}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// No answer is for this call.
    #[error("has no answer for turn {turn}, step {step}, attempt {attempt}; add a line without conditions")]
    NoAnswer {
        /// The turn.
        turn: u32,
        /// The step.
        step: u32,
        /// The attempt.
        attempt: u32,
    },
}

/// A script.
#[derive(Clone, Debug)]
pub(super) struct Script {
    lines: Vec<(Condition, Answer)>,
}

#[derive(Clone, Debug)]
struct Condition {
    turn: Option<u32>,
    step: Option<u32>,
    attempt: Option<u32>,
    prompt: Option<String>,
}

impl Condition {
    fn holds(&self, place: &Place) -> bool {
        self.turn.is_none_or(|turn| turn == place.turn)
            && self.step.is_none_or(|step| step == place.step)
            && self.attempt.is_none_or(|attempt| attempt == place.attempt)
            && self.prompt.as_ref().is_none_or(|text| place.prompt.contains(text))
    }
}

impl Script {
    /// Reads a script. Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// [`ScriptError::Line`].
    pub(super) fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut lines = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let told = |reason| ScriptError::Line { line: at + 1, reason };
            let raw: RawLine = serde_json::from_str(line).map_err(|error| told(error.to_string()))?;
            lines.push(raw.read().map_err(told)?);
        }
        Ok(Self { lines })
    }

    /// The first answer whose conditions all hold.
    ///
    /// # Errors
    /// [`ScriptError::NoAnswer`].
    pub(super) fn choose(self, place: &Place) -> Result<Answer, ScriptError> {
        let found = self.lines.into_iter().find(|(condition, _)| condition.holds(place));
        let Place { turn, step, attempt, .. } = *place;
        found.map(|(_, answer)| answer).ok_or(ScriptError::NoAnswer { turn, step, attempt })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLine {
    turn: Option<u32>,
    step: Option<u32>,
    attempt: Option<u32>,
    prompt: Option<String>,
    #[serde(default)]
    parts: Vec<RawPart>,
    finish: Option<RawFinish>,
    usage: Option<RawUsage>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawFinish {
    Stop,
    Length,
    ContentFilter,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
#[derive(Default)]
#[expect(clippy::struct_field_names, reason = "the names of `usage` everywhere")]
struct RawUsage {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
}

/// A part as it is written: exactly one of the first seven, then what refines it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawPart {
    text: Option<Strings>,
    reasoning: Option<Strings>,
    tool: Option<String>,
    wait_ms: Option<u64>,
    stall: Option<bool>,
    fail: Option<String>,
    cut: Option<bool>,
    delay_ms: Option<u64>,
    repeat: Option<u32>,
    id: Option<String>,
    arguments: Option<Box<RawValue>>,
    message: Option<String>,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
}

/// A text, or a list of deltas.
struct Strings(Vec<String>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let mut text = String::new();
        if unescape(raw.get(), &mut text) {
            return Ok(Self(vec![text]));
        }
        serde_json::from_str(raw.get())
            .map(Self)
            .map_err(|_| D::Error::custom("expected a text or a list of texts"))
    }
}

impl RawLine {
    fn read(self) -> Result<(Condition, Answer), String> {
        let finish = match self.finish {
            None | Some(RawFinish::Stop) => Finish::Stop,
            Some(RawFinish::Length) => Finish::Length,
            Some(RawFinish::ContentFilter) => Finish::ContentFilter,
        };
        let parts = self.parts.into_iter().map(RawPart::read).collect::<Result<_, _>>()?;
        let usage = self.usage.map(|usage| Usage {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            total_tokens: usage.input_tokens
                + usage.output_tokens
                + usage.cache_read_tokens
                + usage.cache_write_tokens,
        });
        let condition =
            Condition { turn: self.turn, step: self.step, attempt: self.attempt, prompt: self.prompt };
        Ok((condition, Answer { parts, finish, usage }))
    }
}

impl RawPart {
    fn read(self) -> Result<Part, String> {
        let kinds = [
            self.text.is_some(),
            self.reasoning.is_some(),
            self.tool.is_some(),
            self.wait_ms.is_some(),
            self.stall == Some(true),
            self.fail.is_some(),
            self.cut == Some(true),
        ];
        if kinds.iter().filter(|is| **is).count() != 1 {
            return Err(
                "a part has exactly one of text, reasoning, tool, waitMs, stall, fail, cut".to_owned()
            );
        }
        if let Some(millis) = self.wait_ms {
            return Ok(Part::Wait(Duration::from_millis(millis)));
        }
        if let Some(name) = self.tool {
            let raw = self.arguments.as_ref().map_or("{}", |raw| raw.get());
            let mut arguments = String::new();
            if !unescape(raw, &mut arguments) {
                arguments.push_str(raw);
            }
            return Ok(Part::Call { id: self.id, name, arguments });
        }
        if let Some(code) = self.fail {
            let known = FailureCode::from_text(&code);
            if known.as_text() != code.as_str() {
                return Err(format!("unknown failure code {code}"));
            }
            let message = self.message.unwrap_or_else(|| "the script says so".to_owned());
            let after = self.retry_after_ms.map(Duration::from_millis);
            return Ok(Part::Fail { code: known, message, status: self.status, after });
        }
        let (kind, deltas) = match (self.text, self.reasoning) {
            (Some(text), _) => (BlockKind::Text, text.0),
            (None, Some(reasoning)) => (BlockKind::Reasoning, reasoning.0),
            (None, None) if self.cut == Some(true) => return Ok(Part::Cut),
            (None, None) => return Ok(Part::Stall),
        };
        let repeat = self.repeat.unwrap_or(1);
        let bytes = deltas.iter().map(String::len).sum::<usize>();
        if bytes.saturating_mul(repeat as usize) > PART_BYTES_MAX {
            return Err("a part gives more than 64 MiB".to_owned());
        }
        Ok(Part::Say { kind, deltas, repeat, pause: self.delay_ms.map(Duration::from_millis) })
    }
}
