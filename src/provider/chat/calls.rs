//! Tool calls as they arrive in pieces. Servers differ in whether pieces carry an index, an id, a name; the first word
//! that is not empty counts.

use super::wire::CallDelta;
use crate::provider::BlockKind;
use crate::provider::blocks::Writer;
use crate::provider::json::{SurrogateFilter, Text, unescape};

/// Calls of one answer.
const CALLS_MAX: usize = 128;

/// The pieces so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    scratch: String,
}

#[derive(Debug)]
struct Call {
    block: u32,
    index: Option<u32>,
    id: String,
    name: String,
    filter: SurrogateFilter,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// Why it can't be understood.
    pub(super) fn push(&mut self, delta: &CallDelta<'_>, out: &mut Writer<'_>) -> Result<(), &'static str> {
        let id = delta.id.as_ref().map_or("", Text::as_str);
        let name =
            delta.function.as_ref().and_then(|function| function.name.as_ref()).map_or("", Text::as_str);
        let at = match self.find(delta.index, id, name)? {
            Some(at) => at,
            None if self.calls.len() >= CALLS_MAX => return Err("the answer holds more than 128 tool calls"),
            None => {
                let block = out.start(BlockKind::ToolCall);
                let (id, name) = (String::new(), String::new());
                let filter = SurrogateFilter::default();
                self.calls.push(Call { block, index: delta.index, id, name, filter });
                self.calls.len() - 1
            }
        };
        self.name(at, id, name, out);
        let arguments = delta.function.as_ref().and_then(|function| function.arguments);
        let Some(arguments) = arguments else { return Ok(()) };
        let (call, scratch) = (&mut self.calls[at], &mut self.scratch);
        scratch.clear();
        if !unescape(arguments.get(), scratch) {
            scratch.push_str(arguments.get());
        }
        out.append(call.block, |text| call.filter.push(scratch, text));
        Ok(())
    }

    /// Which call a piece belongs to; none: it begins one.
    fn find(&self, index: Option<u32>, id: &str, name: &str) -> Result<Option<usize>, &'static str> {
        let is_another = |known: &str, told: &str| !known.is_empty() && !told.is_empty() && known != told;
        if let Some(index) = index {
            let found = self.calls.iter().rposition(|call| call.index == Some(index));
            return Ok(found.filter(|at| {
                let call = &self.calls[*at];
                // Several calls under one index differ in id; without ids, in name.
                let is_new = is_another(&call.id, id) || (id.is_empty() && is_another(&call.name, name));
                !is_new
            }));
        }
        if !id.is_empty() {
            return Ok(self.calls.iter().rposition(|call| call.id == id));
        }
        match self.calls.len() {
            0 => Ok(None),
            _ if !name.is_empty() => Ok(None),
            1 => Ok(Some(0)),
            _ => Err("a piece of a tool call does not say which of several it belongs to"),
        }
    }

    fn name(&mut self, at: usize, id: &str, name: &str, out: &mut Writer<'_>) {
        // The same id for two calls names neither: the second gets one of ours at the end.
        let is_taken = self.calls.iter().enumerate().any(|(other, call)| other != at && call.id == id);
        let call = &mut self.calls[at];
        let mut news = false;
        for (known, told) in [(&mut call.id, if is_taken { "" } else { id }), (&mut call.name, name)] {
            if known.is_empty() && !told.is_empty() {
                told.clone_into(known);
                news = true;
            }
        }
        if news && !call.id.is_empty() && !call.name.is_empty() {
            out.name(call.block, &call.id, &call.name);
        }
    }

    /// Ends all calls: each has an id.
    ///
    /// # Errors
    /// When one has no name.
    pub(super) fn finish(&mut self, out: &mut Writer<'_>) -> Result<(), &'static str> {
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err("a tool call came without a name");
        }
        self.end(out);
        Ok(())
    }

    /// Ends all calls as they are; none stays without id and name, which no server would take back.
    pub(super) fn end(&mut self, out: &mut Writer<'_>) {
        for call in &mut self.calls {
            out.append(call.block, |text| call.filter.finish(text));
            if call.id.is_empty() || call.name.is_empty() {
                if call.id.is_empty() {
                    call.id = format!("call_{}", uuid::Uuid::new_v4().simple());
                }
                let name = if call.name.is_empty() { "unknown" } else { &call.name };
                out.name(call.block, &call.id, name);
            }
            out.end(call.block);
        }
    }
}
