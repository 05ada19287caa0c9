//! From events to blocks: a message, a thought and a call are an item each, and a block each. Only the last event says
//! that the answer is complete.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::items::{ItemKind, Items, Wrong};
use super::wire::{self, OutputItem, Part, Response, StreamEvent};
use crate::event::{FailureCode, Usage};
use crate::provider::blocks::Writer;
use crate::provider::failure::Blame;
use crate::provider::json::{Few, Text};
use crate::provider::sse::Event;
use crate::provider::stream::{Flow, Parser, cut_short, read_event};
use crate::provider::{CallError, Completion, Finish, Retry};

/// Reads one answer.
pub(in crate::provider) struct ResponsesParser<'e> {
    blame: Blame<'e>,
    items: Items,
    finish: Option<Finish>,
    usage: Option<Usage>,
    scratch: String,
}

/// Where in the answer an event belongs.
struct Place<'a> {
    index: Option<u32>,
    id: &'a str,
    part: u32,
}

impl<'e> ResponsesParser<'e> {
    pub(in crate::provider) fn new(blame: Blame<'e>) -> Self {
        Self { blame, items: Items::default(), finish: None, usage: None, scratch: String::new() }
    }

    fn take(&mut self, event: &StreamEvent<'_>, data: &str, out: &mut Writer<'_>) -> Result<Flow, CallError> {
        let kind = event.kind.as_ref().map_or("", Text::as_str);
        let place = Place {
            index: event.output_index,
            id: event.item_id.as_ref().map_or("", Text::as_str),
            part: event.summary_index.or(event.content_index).unwrap_or_default(),
        };
        let taken = match kind {
            "response.output_text.delta" => self.text(&place, ItemKind::Message, event.delta, out),
            "response.output_text.done" => self.whole(&place, ItemKind::Message, event.text, out).map(drop),
            "response.refusal.delta" => self.refusal(&place, event.delta, out),
            "response.refusal.done" => {
                self.whole(&place, ItemKind::Message, event.refusal, out).map(|at| self.items.refuse(at))
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.text(&place, ItemKind::Reasoning, event.delta, out)
            }
            "response.reasoning_summary_text.done" | "response.reasoning_text.done" => {
                self.whole(&place, ItemKind::Reasoning, event.text, out).map(drop)
            }
            "response.function_call_arguments.delta" => self.arguments(&place, event.delta, false, out),
            "response.function_call_arguments.done" => self.arguments(&place, event.arguments, true, out),
            "response.output_item.added" => self.item(event.output_index, event.item, false, out),
            "response.output_item.done" => self.item(event.output_index, event.item, true, out),
            "response.completed" | "response.done" => return self.completed(event.response, out),
            "response.incomplete" => {
                self.incomplete(event.response);
                return Ok(Flow::Done);
            }
            "response.failed" => return Err(self.failed(event.response, data)),
            "response.cancelled" => return Err(self.blame.truncated()),
            "error" => return Err(self.blame.in_stream(event.error.map_or(data, RawValue::get))),
            _other => match event.error {
                Some(error) if error.get() != "null" => return Err(self.blame.in_stream(error.get())),
                Some(_) | None => Ok(()),
            },
        };
        taken.map_err(|what| self.blame.malformed(what)).map(|()| Flow::More)
    }

    /// The item of a piece; one that was not announced begins here.
    fn at(&mut self, place: &Place<'_>, kind: ItemKind, out: &mut Writer<'_>) -> Result<usize, Wrong> {
        if let Some(at) = self.items.find(place.index, place.id, kind)? {
            return Ok(at);
        }
        let id = Text(Cow::Borrowed(place.id));
        let told = OutputItem { id: Some(id), ..OutputItem::default() };
        self.items.open(place.index, kind, &told, out)
    }

    fn text(
        &mut self,
        place: &Place<'_>,
        kind: ItemKind,
        delta: Option<&RawValue>,
        out: &mut Writer<'_>,
    ) -> Result<(), Wrong> {
        let Some(delta) = delta else { return Ok(()) };
        let at = self.at(place, kind, out)?;
        self.items.turn_to(at, place.part);
        self.items.write(at, delta, out)
    }

    fn refusal(
        &mut self,
        place: &Place<'_>,
        delta: Option<&RawValue>,
        out: &mut Writer<'_>,
    ) -> Result<(), Wrong> {
        let at = self.at(place, ItemKind::Message, out)?;
        self.items.refuse(at);
        self.text(place, ItemKind::Message, delta, out)
    }

    /// The whole of a part, for servers that sent no deltas of it.
    fn whole(
        &mut self,
        place: &Place<'_>,
        kind: ItemKind,
        text: Option<&RawValue>,
        out: &mut Writer<'_>,
    ) -> Result<usize, Wrong> {
        let at = self.at(place, kind, out)?;
        if let Some(text) = text.filter(|_| !self.items.turn_to(at, place.part)) {
            self.items.write(at, text, out)?;
        }
        Ok(at)
    }

    fn arguments(
        &mut self,
        place: &Place<'_>,
        raw: Option<&RawValue>,
        is_whole: bool,
        out: &mut Writer<'_>,
    ) -> Result<(), Wrong> {
        let Some(raw) = raw else { return Ok(()) };
        let at = self.at(place, ItemKind::Call, out)?;
        if !(is_whole && self.items.wrote(at)) {
            self.items.write_arguments(at, raw, &mut self.scratch, out);
        }
        Ok(())
    }

    /// An item begins, or is told as a whole.
    fn item(
        &mut self,
        index: Option<u32>,
        raw: Option<&RawValue>,
        is_done: bool,
        out: &mut Writer<'_>,
    ) -> Result<(), Wrong> {
        let Some(raw) = raw else { return Ok(()) };
        let told: OutputItem<'_> = serde_json::from_str(raw.get()).map_err(|_| "an item can't be read")?;
        let kind = match told.kind.as_ref().map_or("", Text::as_str) {
            "message" => ItemKind::Message,
            "reasoning" => ItemKind::Reasoning,
            "function_call" => ItemKind::Call,
            other => {
                tracing::info!(provider = self.blame.provider, kind = other, "unknown item, passed over");
                ItemKind::Other
            }
        };
        if !is_done {
            return self.items.open(index, kind, &told, out).map(drop);
        }
        let id = told.id.as_ref().map_or("", Text::as_str);
        let at = match self.items.find(index, id, kind)? {
            Some(at) => at,
            None => self.items.open(index, kind, &told, out)?,
        };
        self.items.learn(at, &told, out);
        self.complete(at, &told, raw, out)
    }

    /// Takes of a whole item what no delta brought.
    fn complete(
        &mut self,
        at: usize,
        told: &OutputItem<'_>,
        raw: &RawValue,
        out: &mut Writer<'_>,
    ) -> Result<(), Wrong> {
        let kind = self.items.kind(at);
        if let (ItemKind::Call, Some(arguments), false) = (kind, told.arguments, self.items.wrote(at)) {
            self.items.write_arguments(at, arguments, &mut self.scratch, out);
        }
        if !self.items.wrote(at) {
            let parts = |parts: &Option<Few<Part<'_>>>| -> Vec<(Option<Box<RawValue>>, bool)> {
                let Some(parts) = parts else { return Vec::new() };
                let all = parts.first.iter().chain(&parts.rest);
                all.map(|part| (part.text.or(part.refusal).map(RawValue::to_owned), part.text.is_none()))
                    .collect()
            };
            let told_parts = match kind {
                ItemKind::Message => parts(&told.content),
                ItemKind::Reasoning => [parts(&told.summary), parts(&told.content)].concat(),
                ItemKind::Call | ItemKind::Other => Vec::new(),
            };
            for (part, (text, is_refusal)) in (0..).zip(told_parts) {
                let Some(text) = text else { continue };
                self.items.turn_to(at, part);
                self.items.write(at, &text, out)?;
                if is_refusal {
                    self.items.refuse(at);
                }
            }
        }
        if kind == ItemKind::Reasoning {
            self.items.keep(at, told, raw);
        }
        self.items.end_whole(at, out)
    }

    fn completed(&mut self, raw: Option<&RawValue>, out: &mut Writer<'_>) -> Result<Flow, CallError> {
        let response = self.response(raw);
        if self.items.is_empty() {
            // Some gateways stream nothing and tell all at the end.
            for (index, item) in (0..).zip(response.output.into_iter().flatten()) {
                self.item(Some(index), Some(item), true, out).map_err(|what| self.blame.malformed(what))?;
            }
        }
        self.finish = Some(Finish::Stop);
        Ok(Flow::Done)
    }

    fn incomplete(&mut self, raw: Option<&RawValue>) {
        let response = self.response(raw);
        let reason = response.incomplete_details.and_then(|details| details.reason);
        self.finish = Some(match reason.as_ref().map_or("", Text::as_str) {
            "content_filter" => Finish::ContentFilter,
            "max_output_tokens" | "max_tokens" => Finish::Length,
            other => {
                tracing::info!(
                    provider = self.blame.provider,
                    reason = other,
                    "unknown reason of an incomplete answer, taken as its length"
                );
                Finish::Length
            }
        });
    }

    fn failed(&self, raw: Option<&RawValue>, data: &str) -> CallError {
        let response: Response<'_> =
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        self.blame.in_stream(response.error.map_or(data, RawValue::get))
    }

    /// Reads the response that an event carries, and its usage.
    fn response<'a>(&mut self, raw: Option<&'a RawValue>) -> Response<'a> {
        let response: Response<'a> = match raw.map(|raw| serde_json::from_str(raw.get())) {
            Some(Ok(response)) => response,
            Some(Err(error)) => {
                tracing::info!(provider = self.blame.provider, %error, "a response that can't be read");
                Response::default()
            }
            None => Response::default(),
        };
        self.usage = response.usage.and_then(|usage| wire::usage(usage.get())).or(self.usage);
        response
    }
}

impl Parser for ResponsesParser<'_> {
    fn event(&mut self, event: Event<'_>, out: &mut Writer<'_>) -> Result<Flow, CallError> {
        if event.data == b"[DONE]" {
            return Ok(Flow::Done);
        }
        let blame = self.blame;
        read_event::<StreamEvent<'_>, _>(&event, blame, |parsed, data| {
            if event.is_error {
                return Err(blame.in_stream(parsed.error.map_or(data, RawValue::get)));
            }
            self.take(&parsed, data, out)
        })
    }

    fn finished(&self) -> bool {
        self.finish.is_some()
    }

    fn close(mut self, out: &mut Writer<'_>) -> Result<Completion, CallError> {
        let Some(finish) = self.finish else { return Err(self.blame.truncated()) };
        self.items.finish(out).map_err(|what| self.blame.malformed(what))?;
        if finish == Finish::Stop && !out.began() {
            let what = "the model ended its answer without saying anything";
            return Err(self.blame.fail(FailureCode::EmptyResponse, Retry::Backoff, what));
        }
        let refused = finish == Finish::Stop && self.items.refused();
        let finish = if refused { Finish::ContentFilter } else { finish };
        Ok(Completion { finish, usage: self.usage, replay_state: self.items.replay_state() })
    }

    fn cut(mut self, out: &mut Writer<'_>) -> Completion {
        self.items.end_all(out);
        cut_short()
    }
}
