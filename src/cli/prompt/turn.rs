//! Follows one prompt's turn by its events: what to show of it, and what came out. Pure; the session's other turns are
//! passed over.

use std::collections::HashMap;

use serde::Deserialize;

use super::super::happening::{Chunk, ChunkBody, Happening};
use crate::event::{
    ApprovalOutcome, AssistantMessage, Block, Failure, MessageId, SourceKind, ToolCallStarted, ToolResult,
    TurnEndReason, Usage,
};

/// Something to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Show {
    /// Text of the model, as it is written.
    Text(String),
    /// What the model thinks, as it is written.
    Reasoning(String),
    /// A message is whole; `true`: it calls tools, so it was not the answer.
    MessageEnd(bool),
    /// What was shown of this model call is void; it failed.
    Void,
    /// A tool has begun.
    ToolStart(String),
    /// A tool has ended.
    Tool(ToolLine),
    /// The model call failed and is made again.
    Retry(String),
    /// The conversation was shortened.
    Summarised(String),
    /// Somebody said this; told to who watches a session.
    Prompt(String),
    /// A turn has ended; told to who watches a session.
    Ended(TurnEndReason),
}

/// A tool call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ToolLine {
    /// The tool.
    pub(super) name: String,
    /// What it was asked, for a person.
    pub(super) what: String,
    /// How long it took.
    pub(super) elapsed_ms: u64,
    /// How a command ended, when not well.
    pub(super) exit: Option<String>,
    /// The call failed.
    pub(super) is_error: bool,
    /// A subagent made it.
    pub(super) of_child: bool,
}

/// One prompt's turn.
#[derive(Debug)]
pub(in super::super) struct Turn {
    /// The key that our prompt carries, by which we know it.
    key: String,
    /// Every turn is shown, one after the other.
    watches: bool,
    /// Our prompt's message, once it is in the log.
    message_id: Option<MessageId>,
    /// Whether the turn that runs is ours.
    is_ours: bool,
    /// Text shown of the model call that runs.
    shown: String,
    /// The last message's text; of a call that was cut short, what there was.
    text: String,
    provider: Option<String>,
    steps: u32,
    tools: u32,
    usage: Usage,
    open_calls: HashMap<String, OpenCall>,
    /// Calls of subagents, by session and id.
    child_calls: HashMap<(String, String), OpenCall>,
    reason: Option<TurnEndReason>,
    /// An approval was rejected, or nobody could answer it.
    is_denied: bool,
}

#[derive(Debug)]
struct OpenCall {
    name: String,
    what: String,
    started_ms: u64,
}

impl Turn {
    /// A turn that is known by the key of its prompt.
    pub(super) fn new(key: String) -> Self {
        Self {
            key,
            watches: false,
            message_id: None,
            is_ours: false,
            shown: String::new(),
            text: String::new(),
            provider: None,
            steps: 0,
            tools: 0,
            usage: Usage::default(),
            open_calls: HashMap::new(),
            child_calls: HashMap::new(),
            reason: None,
            is_denied: false,
        }
    }

    /// Every turn of a session, from wherever it is.
    pub(in super::super) fn watching() -> Self {
        Self { watches: true, is_ours: true, ..Self::new(String::new()) }
    }

    /// Our prompt's message, once it is in the log.
    pub(super) fn message_id(&self) -> Option<&MessageId> {
        self.message_id.as_ref()
    }

    /// Says which message is ours when no event could: the prompt repeated a key.
    pub(super) fn know_message(&mut self, id: &MessageId) {
        self.message_id = Some(id.clone());
    }

    /// The answer, or what there is of it.
    pub(super) fn text(&self) -> &str {
        if self.shown.is_empty() { &self.text } else { &self.shown }
    }

    /// Whether an approval was rejected, or nobody could answer it.
    pub(super) fn is_denied(&self) -> bool {
        self.is_denied
    }

    /// Who answered: the provider of the last model call.
    pub(super) fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// Model calls that gave a message.
    pub(super) fn steps(&self) -> u32 {
        self.steps
    }

    /// Tools that were run.
    pub(super) fn tools(&self) -> u32 {
        self.tools
    }

    /// Tokens of all model calls.
    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// How it ended, once it has.
    pub(super) fn reason(&self) -> Option<&TurnEndReason> {
        self.reason.as_ref()
    }

    /// Commands that run now.
    pub(super) fn running_commands(&self) -> usize {
        let calls = self.open_calls.values().chain(self.child_calls.values());
        calls.filter(|call| call.name == "bash").count()
    }

    /// Takes an event of a subagent: of those, the tools are shown that have ended.
    pub(in super::super) fn take_child(
        &mut self,
        child: &str,
        happening: Happening,
        time_ms: u64,
        show: &mut Vec<Show>,
    ) {
        if !self.is_ours {
            return;
        }
        if let Happening::ToolCall(call) = happening {
            let open = OpenCall::of(&call, time_ms);
            self.child_calls.insert((child.to_owned(), call.call_id), open);
        } else if let Happening::ToolResult(result) = happening {
            let id = result.message.tool_call_id.clone().unwrap_or_default();
            if let Some(call) = self.child_calls.remove(&(child.to_owned(), id)) {
                show.push(Show::Tool(call.ended(&result, time_ms, true)));
            }
        }
    }

    /// Takes the next event of the session.
    pub(in super::super) fn take(&mut self, happening: Happening, time_ms: u64, show: &mut Vec<Show>) {
        match happening {
            Happening::Inbox(splice) if splice.idempotency_key.as_deref() == Some(&self.key) => {
                self.message_id = splice.inserted.first().map(|message| message.id.clone());
            }
            Happening::TurnStart(_) if self.watches => *self = Self::watching(),
            Happening::TurnStart(_) => self.is_ours = false,
            Happening::User(message) if self.watches && message.source.kind == SourceKind::User => {
                show.push(Show::Prompt(message.text()));
            }
            Happening::User(message) if self.message_id.as_ref() == Some(&message.id) => self.is_ours = true,
            // Which model a session asks is said when it changes, perhaps before our turn.
            Happening::Context(context) => self.provider = Some(context.provider),
            // Room may be made for a prompt before the model hears of it.
            Happening::Compacted(summary) if self.message_id.is_some() && self.reason.is_none() => {
                show.push(Show::Summarised(format!(
                    "{} messages (about {} tokens) to make room; dshd log shows the summary",
                    summary.shadowed_seqs.len(),
                    super::super::human::count(summary.shadowed_token_count)
                )));
            }
            happening if self.is_ours => self.take_ours(happening, time_ms, show),
            Happening::Inbox(_)
            | Happening::TurnEnd(_)
            | Happening::User(_)
            | Happening::Chunk(_)
            | Happening::Assistant(_)
            | Happening::Attempt(_)
            | Happening::ToolCall(_)
            | Happening::ToolResult(_)
            | Happening::Retry(_)
            | Happening::Title(_)
            | Happening::ChildStarted(_)
            | Happening::ChildFinished(_)
            | Happening::Todo(_)
            | Happening::JobStarted(_)
            | Happening::JobEnded(_)
            | Happening::Compacted(_)
            | Happening::Asked(_)
            | Happening::Decided(_)
            | Happening::Other => {}
        }
    }

    fn take_ours(&mut self, happening: Happening, time_ms: u64, show: &mut Vec<Show>) {
        match happening {
            Happening::Chunk(Chunk { chunk: ChunkBody::TextDelta { text } }) => {
                self.shown.push_str(&text);
                show.push(Show::Text(text));
            }
            Happening::Chunk(Chunk { chunk: ChunkBody::ReasoningDelta { text } }) => {
                show.push(Show::Reasoning(text));
            }
            Happening::Assistant(message) => self.take_message(&message, show),
            Happening::Attempt(_) => {
                self.text = std::mem::take(&mut self.shown);
                show.push(Show::Void);
            }
            Happening::Retry(retry) => show.push(Show::Retry(format!(
                "{}; again in {} ({} of {})",
                retry.failure.message,
                super::super::human::elapsed(retry.delay_ms),
                retry.retry,
                retry.max_retries
            ))),
            Happening::ToolCall(call) => self.start_tool(&call, time_ms, show),
            Happening::ToolResult(result) => self.end_tool(&result, time_ms, show),
            Happening::Decided(decided) => {
                self.is_denied |=
                    matches!(decided.outcome, ApprovalOutcome::Rejected | ApprovalOutcome::Unavailable);
            }
            Happening::TurnEnd(end) => {
                if self.watches {
                    show.push(Show::Ended(end.reason.clone()));
                }
                self.reason = Some(end.reason);
                self.is_ours = self.watches;
            }
            Happening::Chunk(Chunk { chunk: ChunkBody::Other })
            | Happening::Inbox(_)
            | Happening::TurnStart(_)
            | Happening::User(_)
            | Happening::Context(_)
            | Happening::Title(_)
            | Happening::Asked(_)
            | Happening::ChildStarted(_)
            | Happening::ChildFinished(_)
            | Happening::Todo(_)
            | Happening::JobStarted(_)
            | Happening::JobEnded(_)
            | Happening::Compacted(_)
            | Happening::Other => {}
        }
    }

    fn take_message(&mut self, said: &AssistantMessage, show: &mut Vec<Show>) {
        let text = said.message.text();
        // A slow reader may have missed the end of the text in flight; the message has all of it.
        if let Some(rest) = text.strip_prefix(&self.shown).filter(|rest| !rest.is_empty()) {
            show.push(Show::Text(rest.to_owned()));
        }
        self.shown.clear();
        let calls_tools = said.message.content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        show.push(Show::MessageEnd(calls_tools));
        self.text = text;
        self.steps += 1;
        self.provider = said.message.source.provider.clone().or(self.provider.take());
        if let Some(usage) = said.usage {
            self.usage.input_tokens += usage.input_tokens;
            self.usage.output_tokens += usage.output_tokens;
            self.usage.cache_read_tokens += usage.cache_read_tokens;
            self.usage.cache_write_tokens += usage.cache_write_tokens;
            self.usage.total_tokens += usage.total_tokens;
        }
    }

    fn start_tool(&mut self, call: &ToolCallStarted, time_ms: u64, show: &mut Vec<Show>) {
        let open = OpenCall::of(call, time_ms);
        show.push(Show::ToolStart(format!("{} {}", open.name, open.what)));
        self.tools += 1;
        self.open_calls.insert(call.call_id.clone(), open);
    }

    fn end_tool(&mut self, result: &ToolResult, time_ms: u64, show: &mut Vec<Show>) {
        let id = result.message.tool_call_id.as_deref().unwrap_or_default();
        let Some(call) = self.open_calls.remove(id) else { return };
        show.push(Show::Tool(call.ended(result, time_ms, false)));
    }
}

impl OpenCall {
    fn of(call: &ToolCallStarted, time_ms: u64) -> Self {
        Self { name: call.name.clone(), what: summary(&call.arguments), started_ms: time_ms }
    }

    fn ended(self, result: &ToolResult, time_ms: u64, of_child: bool) -> ToolLine {
        ToolLine {
            exit: if self.name == "bash" { exit_of(&result.message.text()) } else { None },
            name: self.name,
            what: self.what,
            elapsed_ms: time_ms.saturating_sub(self.started_ms),
            is_error: result.message.is_error == Some(true),
            of_child,
        }
    }
}

/// What a call asks, for a person: its command, path or pattern; else the arguments as they are.
pub(in super::super) fn summary(arguments: &str) -> String {
    #[derive(Deserialize)]
    struct Known {
        command: Option<String>,
        path: Option<String>,
        file_path: Option<String>,
        pattern: Option<String>,
        url: Option<String>,
        job_id: Option<String>,
        description: Option<String>,
    }
    let known: Option<Known> = serde_json::from_str(arguments).ok();
    let asked = known.and_then(|known| {
        let path = known.file_path.or(known.pattern).or(known.path);
        known.command.or(path).or(known.url).or(known.job_id).or(known.description)
    });
    asked.unwrap_or_else(|| if arguments == "{}" { String::new() } else { arguments.to_owned() })
}

/// The last line of a command's result says how it ended, when not well.
fn exit_of(text: &str) -> Option<String> {
    let last = text.lines().next_back()?;
    let code = last.strip_prefix("[exit code: ").and_then(|rest| rest.strip_suffix(']'));
    let signal = last.strip_prefix("[killed by signal: ").and_then(|rest| rest.strip_suffix(']'));
    code.map(|code| format!("exit {code}")).or_else(|| signal.map(|signal| format!("killed by {signal}")))
}

/// The failure that ended a turn, when one did.
pub(in super::super) fn failure_of(reason: &TurnEndReason) -> Option<&Failure> {
    match reason {
        TurnEndReason::Error { error } => Some(error),
        TurnEndReason::Completed
        | TurnEndReason::MaxTokens
        | TurnEndReason::Aborted { .. }
        | TurnEndReason::Blocked
        | TurnEndReason::Interrupted => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::happening::Envelope;
    use super::*;

    fn play(turn: &mut Turn, events: &[&str]) -> Vec<Show> {
        let mut show = Vec::new();
        for (at, event) in events.iter().enumerate() {
            let (kind, data) = event.split_once(' ').unwrap();
            let json = format!(r#"{{"type":"{kind}","seq":{at},"time":{},"data":{data}}}"#, at * 10);
            let envelope: Envelope<'_> = serde_json::from_str(&json).unwrap();
            turn.take(envelope.happening(), envelope.time_ms, &mut show);
        }
        show
    }

    const INSERT: &str = r#"agent/inbox/spliced {"target":"next-turn","start":0,"idempotencyKey":"k","inserted":[
        {"content":[],"source":{"kind":"user"},"role":"user","id":"m1"}]}"#;
    const START: &str = r#"turn/start {"turn":1}"#;
    const OURS: &str = r#"user/message {"content":[],"source":{"kind":"user"},"role":"user","id":"m1"}"#;
    const THEIRS: &str = r#"user/message {"content":[],"source":{"kind":"user"},"role":"user","id":"m0"}"#;
    const DELTA: &str = r#"assistant/chunk {"turn":1,"step":1,"attempt":1,"chunk":{"type":"text-delta","index":0,"text":"he"}}"#;
    const SAID: &str = r#"assistant/message {"turn":1,"step":1,"message":{"content":[{"type":"text","text":"hello"}],
        "source":{"kind":"model","provider":"p","model":"m"},"role":"assistant","id":"a"},
        "usage":{"inputTokens":3,"outputTokens":2,"cacheReadTokens":1,"cacheWriteTokens":0,"totalTokens":6}}"#;
    const END: &str = r#"turn/end {"turn":1,"reason":{"kind":"completed"}}"#;

    #[test]
    fn the_rest_of_a_message_is_shown_after_its_deltas() {
        let mut turn = Turn::new("k".to_owned());
        let show = play(&mut turn, &[INSERT, START, OURS, DELTA, SAID, END]);
        assert_eq!(
            show,
            [Show::Text("he".to_owned()), Show::Text("llo".to_owned()), Show::MessageEnd(false)]
        );
        assert_eq!((turn.text(), turn.provider(), turn.steps()), ("hello", Some("p"), 1));
        assert_eq!(turn.usage().total_tokens, 6);
        assert_eq!(turn.reason(), Some(&TurnEndReason::Completed));
    }

    #[test]
    fn turns_of_others_on_the_session_are_passed_over() {
        let mut turn = Turn::new("k".to_owned());
        let show = play(&mut turn, &[START, THEIRS, INSERT, DELTA, SAID, END]);
        assert!(show.is_empty(), "{show:?}");
        assert_eq!(turn.reason(), None);
        let show = play(&mut turn, &[START, OURS, DELTA, START, THEIRS, DELTA]);
        assert_eq!(show, [Show::Text("he".to_owned())]);
    }

    #[test]
    fn what_a_failed_call_had_said_is_kept_as_the_text_of_the_turn() {
        let mut turn = Turn::new("k".to_owned());
        let attempt = r#"assistant/attempt {"turn":1,"step":1,"failure":{"message":"x","code":"TRANSPORT"},"text":"he"}"#;
        let show = play(&mut turn, &[INSERT, START, OURS, DELTA, attempt]);
        assert_eq!(show, [Show::Text("he".to_owned()), Show::Void]);
        assert_eq!(turn.text(), "he");
    }

    #[test]
    fn tools_of_a_subagent_are_shown_when_they_have_ended() {
        let mut turn = Turn::new("k".to_owned());
        play(&mut turn, &[INSERT, START, OURS]);
        let events = [
            r#"{"type":"tool/call","data":{"turn":1,"step":1,"callId":"c","name":"bash","arguments":"{\"command\":\"ls\"}"}}"#,
            r#"{"type":"tool/result","data":{"turn":1,"step":1,"message":{"role":"tool","source":{"kind":"tool","callId":"c"},
                "toolCallId":"c","content":[{"type":"text","text":"a"}],"isError":false,"id":"r"}}}"#,
        ];
        let mut show = Vec::new();
        for event in events {
            let envelope: Envelope<'_> = serde_json::from_str(event).unwrap();
            turn.take_child("child", envelope.happening(), 0, &mut show);
        }
        let [Show::Tool(line)] = show.as_slice() else { panic!("{show:?}") };
        assert_eq!((line.name.as_str(), line.what.as_str(), line.of_child), ("bash", "ls", true));
        assert_eq!(turn.tools(), 0, "the footer counts our own");
    }

    #[test]
    fn a_call_is_told_by_what_it_is_about() {
        let cases = [
            (r#"{"command":"ls","description":"Look"}"#, "ls"),
            (r#"{"file_path":"a.rs","content":"x"}"#, "a.rs"),
            (r#"{"pattern":"fn main","path":"src"}"#, "fn main"),
            (r#"{"description":"Find it","prompt":"…"}"#, "Find it"),
            ("{}", ""),
            (r#"{"query":1}"#, r#"{"query":1}"#),
        ];
        for (arguments, words) in cases {
            assert_eq!(summary(arguments), words);
        }
    }

    #[test]
    fn a_command_that_ends_badly_says_how() {
        let mut turn = Turn::new("k".to_owned());
        let call = r#"tool/call {"turn":1,"step":1,"callId":"c","name":"bash","arguments":"{\"command\":\"cargo test\"}"}"#;
        let result = r#"tool/result {"turn":1,"step":1,"message":{"role":"tool","source":{"kind":"tool","callId":"c"},
            "toolCallId":"c","content":[{"type":"text","text":"no\n[exit code: 101]"}],"isError":false,"id":"r"}}"#;
        let show = play(&mut turn, &[INSERT, START, OURS, call]);
        assert_eq!(show, [Show::ToolStart("bash cargo test".to_owned())]);
        assert_eq!(turn.running_commands(), 1);
        let show = play(&mut turn, &[START, OURS, result]);
        let [Show::Tool(line)] = show.as_slice() else { panic!("{show:?}") };
        assert_eq!((line.what.as_str(), line.exit.as_deref()), ("cargo test", Some("exit 101")));
        assert_eq!(turn.running_commands(), 0);
    }
}
