//! `todo_write`: the model's list of tasks, for people who watch.

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Effect, Tool, ToolContext, ToolOutput, arguments};
use crate::event::{EventBody, Todo, TodoStatus, TodoWrite, ToolSpec};

const NAME: &str = "todo_write";
/// Tasks of a list; the schema says it, too.
const TODOS_MAX: usize = 100;
/// Bytes of one task.
const CONTENT_BYTES_MAX: usize = 1000;

/// Keeps the list of tasks.
pub(super) struct TodoList {
    spec: ToolSpec,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The whole list, in order.
    #[schemars(length(max = 100))]
    todos: Vec<Item>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Item {
    /// What is to be done.
    content: String,
    /// How far it is.
    status: Status,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

impl From<Status> for TodoStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::InProgress => Self::InProgress,
            Status::Completed => Self::Completed,
        }
    }
}

impl TodoList {
    pub(super) fn new() -> Self {
        let description =
            "Keeps the list of tasks that the user sees. Give the whole list each time; use it for work \
                           of several steps, and keep one task in progress."
                .to_owned();
        Self {
            spec: ToolSpec {
                name: NAME.to_owned(),
                description,
                parameters: arguments::schema::<Arguments>(),
            },
        }
    }
}

impl Tool for TodoList {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// It changes nothing outside the conversation, but two lists must not overtake each other.
    fn effect(&self) -> Effect {
        Effect::Acts
    }

    fn call<'a>(&'a self, arguments: &'a str, _context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { run(arguments).unwrap_or_else(|failure| failure) })
    }
}

fn run(raw: &str) -> Result<ToolOutput, ToolOutput> {
    let Arguments { todos } = arguments::parse(NAME, raw)?;
    if todos.len() > TODOS_MAX {
        let what = format!("`todos`: expected at most {TODOS_MAX} tasks, got {}", todos.len());
        return Err(arguments::invalid(NAME, &what));
    }
    for (at, item) in todos.iter().enumerate() {
        let expected = if item.content.trim().is_empty() {
            "some text"
        } else if item.content.len() > CONTENT_BYTES_MAX {
            "at most 1000 bytes"
        } else {
            continue;
        };
        let got = item.content.len();
        let what = format!("`todos[{at}].content`: expected {expected}, got {got} bytes");
        return Err(arguments::invalid(NAME, &what));
    }
    let todos: Vec<Todo> =
        todos.into_iter().map(|item| Todo { content: item.content, status: item.status.into() }).collect();
    let count = |status| todos.iter().filter(|todo| todo.status == status).count();
    let text = format!(
        "Updated todo list: {} pending, {} in progress, {} completed.",
        count(TodoStatus::Pending),
        count(TodoStatus::InProgress),
        count(TodoStatus::Completed)
    );
    let mut output = ToolOutput::ok(text);
    output.events.push(EventBody::TodoWrite(TodoWrite { todos }));
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: usize, content: &str) -> String {
        serde_json::json!({ "todos": vec![serde_json::json!({ "content": content, "status": "pending" }); count] })
            .to_string()
    }

    #[test]
    fn the_list_is_an_event_and_the_text_counts_it() {
        let output =
            run(r#"{"todos":[{"content":"a","status":"in_progress"},{"content":"b","status":"completed"},
            {"content":"c","status":"completed"}]}"#)
            .unwrap();
        assert_eq!(output.text, "Updated todo list: 0 pending, 1 in progress, 2 completed.");
        let [EventBody::TodoWrite(written)] = &output.events[..] else { panic!("{:?}", output.events) };
        assert_eq!(
            serde_json::to_string(written).unwrap(),
            r#"{"todos":[{"content":"a","status":"in_progress"},{"content":"b","status":"completed"},{"content":"c","status":"completed"}]}"#
        );
        let output = run(r#"{"todos":[]}"#).unwrap();
        assert_eq!(output.text, "Updated todo list: 0 pending, 0 in progress, 0 completed.");
    }

    #[test]
    fn a_wrong_list_is_told_with_path_and_expectation() {
        let check = |raw: &str, expected: &str| {
            let text = run(raw).unwrap_err().text;
            assert_eq!(text, format!("Error: invalid arguments for todo_write: {expected}"));
        };
        check(
            r#"{"todos":[{"content":"a","status":"done"}]}"#,
            "`todos[0].status`: unknown variant `done`, expected one of `pending`, `in_progress`, `completed`",
        );
        check(r#"{"todos":[{"status":"pending"}]}"#, "`todos[0]`: missing field `content`");
        check(&list(1, " "), "`todos[0].content`: expected some text, got 1 bytes");
        check(&list(1, &"x".repeat(1001)), "`todos[0].content`: expected at most 1000 bytes, got 1001 bytes");
        check(&list(101, "x"), "`todos`: expected at most 100 tasks, got 101");
        assert!(run(&list(100, &"x".repeat(1000))).is_ok());
    }
}
