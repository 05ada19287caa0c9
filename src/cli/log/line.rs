//! An event of a log as one line for a person.

use super::super::escape::one_line;
use super::super::happening::{Envelope, Happening};
use super::super::human;
use super::super::prompt::turn::summary;
use crate::cli::question::word;
use crate::event::{Block, Message, ShadowedRange, Todo, TurnEndReason};

/// The longest summary, in characters.
const WIDTH: usize = 160;

/// `12  2026-12-01 10:00:00.123  tool/call          bash cargo test`
pub(in super::super) fn line(event: &Envelope<'_>) -> String {
    let seq = event.seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
    let text = one_line(&what(event), WIDTH);
    let line = format!("{seq:>5}  {}  {:<22} {text}", human::local(event.time_ms), event.kind);
    line.trim_end().to_owned()
}

fn what(event: &Envelope<'_>) -> String {
    match event.happening() {
        Happening::Inbox(splice) => match splice.inserted.first() {
            Some(message) => format!("+ {}", words(message)),
            None if splice.outcome.is_some() => "- cancelled".to_owned(),
            None => "-".to_owned(),
        },
        Happening::TurnStart(start) => format!("turn {}", start.turn),
        Happening::TurnEnd(end) => format!("turn {}: {}", end.turn, reason(&end.reason)),
        Happening::User(message) => words(&message),
        Happening::Assistant(said) => {
            let cut = if said.interrupted { " (interrupted)" } else { "" };
            format!("{}{cut}", words(&said.message))
        }
        Happening::Attempt(attempt) => {
            format!("{}: {}", attempt.failure.code.as_text(), attempt.failure.message)
        }
        Happening::ToolCall(call) => format!("{} {}", call.name, summary(&call.arguments)),
        Happening::ToolResult(result) => {
            let failed = if result.message.is_error == Some(true) { "failed: " } else { "" };
            format!("{failed}{}", words(&result.message))
        }
        Happening::Retry(retry) => format!(
            "{} of {} in {}: {}",
            retry.retry,
            retry.max_retries,
            human::elapsed(retry.delay_ms),
            retry.failure.message
        ),
        Happening::Context(context) => format!("{}/{}", context.provider, context.model),
        Happening::Title(title) => title.title,
        Happening::ChildStarted(started) => started.child_session_id.to_string(),
        Happening::ChildFinished(finished) => {
            let said = finished.last_assistant_message.as_deref().map(blocks).unwrap_or_default();
            format!("{}: {} {said}", finished.child_session_id, in_a_word(&finished.stop_reason))
        }
        Happening::Todo(list) => {
            let entry = |todo: &Todo| format!("[{}] {}", in_a_word(&todo.status), todo.content);
            list.todos.iter().map(entry).collect::<Vec<_>>().join(" ")
        }
        Happening::JobStarted(job) => format!("{} {}", job.job_id, job.label),
        Happening::JobEnded(job) => {
            let detail = job.detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
            format!("{}: {}{detail}", job.job_id, in_a_word(&job.status))
        }
        Happening::Compacted(summary) => {
            let ShadowedRange { start, end } = summary.shadowed_range;
            format!("{start} to {end}: {}", blocks(&summary.summary))
        }
        Happening::Asked(asked) => {
            let command = asked.command.map(|command| format!(": {command}")).unwrap_or_default();
            format!("{}: {}{command}", asked.tool_name, asked.reason)
        }
        Happening::Decided(decided) => {
            let by = decided.by.map(|by| format!(" by {by}")).unwrap_or_default();
            format!("{}{by}", word(decided.outcome))
        }
        Happening::Chunk(_) | Happening::Other => event.data.get().to_owned(),
    }
}

/// What a message says, and what it calls.
fn words(message: &Message) -> String {
    blocks(&message.content)
}

/// A value of our own, as it stands in JSON, without its quotes.
fn in_a_word(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).map_or_else(|_| String::new(), |json| json.trim_matches('"').to_owned())
}

fn blocks(content: &[Block]) -> String {
    let part = |block: &Block| match block {
        Block::Text { text } => Some(text.clone()),
        Block::ToolCall { name, .. } => Some(format!("→ {name}")),
        Block::Reasoning { .. } => None,
        Block::Image { attachment } => {
            Some(format!("[{} {}×{}]", attachment.media_type, attachment.width, attachment.height))
        }
    };
    content.iter().filter_map(part).collect::<Vec<_>>().join(" ")
}

fn reason(reason: &TurnEndReason) -> String {
    match reason {
        TurnEndReason::Completed => "completed".to_owned(),
        TurnEndReason::MaxTokens => "max-tokens".to_owned(),
        TurnEndReason::Error { error } => format!("error {}: {}", error.code.as_text(), error.message),
        TurnEndReason::Aborted { .. } => "aborted".to_owned(),
        TurnEndReason::Blocked => "blocked".to_owned(),
        TurnEndReason::Interrupted => "interrupted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let event: Envelope<'_> = serde_json::from_str(json).unwrap();
        let line = line(&event);
        // The time is on the clock of whoever runs the test.
        let (seq, rest) = line.split_at(7);
        assert_eq!(format!("{seq}{}", &rest[25..]), expected);
    }

    #[test]
    fn a_line_says_what_happened() {
        check(
            r#"{"type":"tool/call","seq":7,"time":1,"data":{"turn":1,"step":1,"callId":"c","name":"bash",
                "arguments":"{\"command\":\"cargo\\ntest\"}"}}"#,
            "    7  tool/call              bash cargo test",
        );
        check(
            r#"{"type":"turn/end","seq":12,"time":1,"data":{"turn":2,"reason":{"kind":"error",
                "error":{"message":"no key","code":"AUTH"}}}}"#,
            "   12  turn/end               turn 2: error AUTH: no key",
        );
    }

    #[test]
    fn an_agents_own_work_is_told_in_words() {
        check(
            r#"{"type":"subagent/finished","seq":7,"time":1,"data":{"childSessionId":"c1","status":"error",
                "stopReason":"max-tokens","lastAssistantMessage":[{"type":"text","text":"so far"}]}}"#,
            "    7  subagent/finished      c1: max-tokens so far",
        );
        check(
            r#"{"type":"todo/write","seq":7,"time":1,"data":{"todos":[{"content":"look","status":"completed"},
                {"content":"mend","status":"in_progress"}]}}"#,
            "    7  todo/write             [completed] look [in_progress] mend",
        );
        check(
            r#"{"type":"job/settled","seq":7,"time":1,"data":{"jobId":"bash-1","owner":"s","kind":"bash","label":"make",
                "startedAt":1,"toolCall":{"callId":"c"},"finishedAt":2,"status":"failed","detail":"exit code: 2"}}"#,
            "    7  job/settled            bash-1: failed (exit code: 2)",
        );
    }

    #[test]
    fn an_event_without_words_shows_its_data() {
        check(r#"{"type":"x/y","seq":7,"time":1,"data":{"a":1}}"#, "    7  x/y                    {\"a\":1}");
        check(r#"{"type":"step/end","seq":7,"time":1,"data":{}}"#, "    7  step/end               {}");
    }
}
