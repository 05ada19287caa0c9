//! What the events of a session mean to somebody who watches it. Reads leniently: an event of a newer daemon that this
//! version does not know is passed over, not refused.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::{
    ApprovalAsked, ApprovalDecided, AssistantAttempt, AssistantMessage, CompactionSummary, InboxSpliced,
    JobRegistered, JobSettled, LlmRetry, Message, RequestContext, SessionTitle, SubagentFinished,
    SubagentStarted, TodoWrite, ToolCallStarted, ToolResult, TurnEnd, TurnStart,
};

/// The `params` of a `session.event`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told<'a> {
    /// Whose event it is.
    #[serde(borrow)]
    pub(super) session_id: Cow<'a, str>,
    /// The event.
    #[serde(borrow)]
    pub(super) event: &'a RawValue,
}

/// What stands around an event's data.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope<'a> {
    /// Its type.
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    /// Its position; text in flight has none.
    pub(super) seq: Option<u64>,
    /// When, in epoch milliseconds; text in flight has none.
    #[serde(rename = "time", default)]
    pub(super) time_ms: u64,
    /// The rest, by type.
    #[serde(borrow)]
    pub(super) data: &'a RawValue,
}

/// An event, as far as it says something to a person.
#[derive(Debug)]
pub(super) enum Happening {
    /// Prompts came or went.
    Inbox(InboxSpliced),
    /// A turn starts.
    TurnStart(TurnStart),
    /// A turn ended.
    TurnEnd(TurnEnd),
    /// Somebody's message, or context in a user's place.
    User(Message),
    /// Text while it is written.
    Chunk(Chunk),
    /// What the model said.
    Assistant(Box<AssistantMessage>),
    /// A failed model call.
    Attempt(AssistantAttempt),
    /// A tool starts.
    ToolCall(ToolCallStarted),
    /// A tool has ended.
    ToolResult(Box<ToolResult>),
    /// A model call will be made again.
    Retry(LlmRetry),
    /// The model that is asked.
    Context(RequestContext),
    /// The session's title.
    Title(SessionTitle),
    /// Another agent works for this one.
    ChildStarted(SubagentStarted),
    /// It has ended.
    ChildFinished(Box<SubagentFinished>),
    /// The list of tasks.
    Todo(TodoWrite),
    /// A background job runs.
    JobStarted(JobRegistered),
    /// It has ended.
    JobEnded(JobSettled),
    /// A call waits for an approval.
    Asked(Box<ApprovalAsked>),
    /// What became of it.
    Decided(ApprovalDecided),
    /// The conversation was shortened.
    Compacted(Box<CompactionSummary>),
    /// Nothing to tell.
    Other,
}

/// `assistant/chunk`.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk {
    pub(super) chunk: ChunkBody,
}

/// A piece of text while it is written.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum ChunkBody {
    /// Of a text block.
    TextDelta {
        /// What was added.
        text: String,
    },
    /// Of a reasoning block.
    ReasoningDelta {
        /// What was added.
        text: String,
    },
    /// Anything else.
    #[serde(other)]
    Other,
}

impl Envelope<'_> {
    /// What it means. An event whose data this version can't read means nothing to it.
    pub(super) fn happening(&self) -> Happening {
        fn read<'a, T: Deserialize<'a>>(data: &'a RawValue, make: fn(T) -> Happening) -> Happening {
            match serde_json::from_str(data.get()) {
                Ok(data) => make(data),
                Err(error) => {
                    tracing::debug!(%error, "passed over an event that this version cannot read");
                    Happening::Other
                }
            }
        }
        let data = self.data;
        match &*self.kind {
            "agent/inbox/spliced" => read(data, Happening::Inbox),
            "turn/start" => read(data, Happening::TurnStart),
            "turn/end" => read(data, Happening::TurnEnd),
            "user/message" => read(data, Happening::User),
            "assistant/chunk" => read(data, Happening::Chunk),
            "assistant/message" => read(data, |message| Happening::Assistant(Box::new(message))),
            "assistant/attempt" => read(data, Happening::Attempt),
            "tool/call" => read(data, Happening::ToolCall),
            "tool/result" => read(data, |result| Happening::ToolResult(Box::new(result))),
            "llm/retry" => read(data, Happening::Retry),
            "request/context" => read(data, Happening::Context),
            "session/title" => read(data, Happening::Title),
            "subagent/started" => read(data, Happening::ChildStarted),
            "subagent/finished" => read(data, |finished| Happening::ChildFinished(Box::new(finished))),
            "todo/write" => read(data, Happening::Todo),
            "job/registered" => read(data, Happening::JobStarted),
            "job/settled" => read(data, Happening::JobEnded),
            "approval/asked" => read(data, |asked| Happening::Asked(Box::new(asked))),
            "approval/decided" => read(data, Happening::Decided),
            "compaction/summary" => read(data, |summary| Happening::Compacted(Box::new(summary))),
            _ => Happening::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(json: &str) -> Happening {
        serde_json::from_str::<Envelope<'_>>(json).unwrap().happening()
    }

    #[test]
    fn a_delta_is_known_without_a_seq() {
        let json = r#"{"type":"assistant/chunk","transient":true,"data":{"turn":1,"step":1,"attempt":1,
            "chunk":{"type":"text-delta","index":0,"text":"hi"}}}"#;
        let Happening::Chunk(Chunk { chunk: ChunkBody::TextDelta { text } }) = happening(json) else {
            panic!("no delta")
        };
        assert_eq!(text, "hi");
    }

    #[test]
    fn events_and_chunks_of_a_newer_daemon_are_passed_over() {
        let chunk = r#"{"type":"assistant/chunk","data":{"chunk":{"type":"video-delta","frame":7}}}"#;
        assert!(matches!(happening(chunk), Happening::Chunk(Chunk { chunk: ChunkBody::Other })));
        assert!(matches!(happening(r#"{"type":"new/thing","seq":1,"time":2,"data":7}"#), Happening::Other));
        assert!(matches!(happening(r#"{"type":"turn/end","seq":1,"time":2,"data":{}}"#), Happening::Other));
    }
}
