//! The script that plays when no key is set: it lists the directory with a real tool, tells what is there, and says
//! plainly that no model was called.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::script::{Answer, Part};
use crate::event::{Message, Role, SourceKind};
use crate::provider::{BlockKind, Finish, ModelRequest};

/// Entries that the answer names.
const ENTRIES_MAX: usize = 200;

/// The lines that say how to get a model (UX: first run without a key).
const NO_KEY: &str = "no model was called: no key is set. help: dshd login deepseek | export DEEPSEEK_API_KEY=… | \
     a local model: dshd config init --provider openai-compatible --base-url http://127.0.0.1:11434/v1";
const CHOSEN: &str = "no model was called: the provider is `scripted`. \
     help: dshd models lists the others; dshd prompt -m PROVIDER/MODEL picks one";

/// The tool that lists: it runs in the daemon itself, so it works where commands can't be confined.
const TOOL: &str = "glob";

#[derive(Serialize)]
struct GlobArguments {
    pattern: &'static str,
}

/// The answer to a request.
pub(super) fn answer(request: &ModelRequest, keyless: bool) -> Answer {
    let prompt = request.messages.iter().rposition(|message| message.source.kind == SourceKind::User);
    let since = &request.messages[prompt.map_or(0, |at| at + 1)..];
    let result = since.iter().rfind(|message| message.role == Role::Tool);
    let asked = since.iter().any(|message| message.role == Role::Assistant);
    let offered = request.tools.iter().any(|tool| tool.name == TOOL);
    let last = if keyless { NO_KEY } else { CHOSEN };
    let parts = match result {
        Some(result) => say(&format!("{}\n\n{last}\n", listing(result))),
        None if offered && !asked => call(),
        None => say(&format!("This is dshd's built-in script; no tool could be used.\n\n{last}\n")),
    };
    Answer { parts, finish: Finish::Stop, usage: None }
}

fn call() -> Vec<Part> {
    // A constant text is always JSON.
    let arguments = serde_json::to_string(&GlobArguments { pattern: "*" }).unwrap_or_default();
    vec![Part::Call { id: None, name: TOOL.to_owned(), arguments }]
}

fn say(text: &str) -> Vec<Part> {
    let deltas = text.split_inclusive('\n').map(str::to_owned).collect();
    vec![Part::Say { kind: BlockKind::Text, deltas, repeat: 1, pause: None }]
}

fn listing(result: &Message) -> String {
    let text = result.text();
    if result.is_error == Some(true) {
        return format!("The directory could not be listed. The tool said:\n\n{}", text.trim_end());
    }
    // Below a blank line stands what the tool says of its own work.
    let (paths, note) = text.split_once("\n\n").unwrap_or((&text, ""));
    let paths = paths.lines().filter(|line| !line.is_empty() && *line != "No files found");
    let entries: BTreeSet<&str> = paths.map(top).collect();
    if entries.is_empty() {
        return "The working directory has no files but hidden or ignored ones.".to_owned();
    }
    let mut listing = String::from("The working directory holds:\n");
    for entry in entries.iter().take(ENTRIES_MAX) {
        listing.push_str("\n- ");
        listing.push_str(entry);
    }
    if entries.len() > ENTRIES_MAX {
        // Writing to a text can't fail.
        let _ = write!(listing, "\n- and {} more", entries.len() - ENTRIES_MAX);
    }
    if !note.is_empty() {
        listing.push_str("\n\n(Seen from the newest of its files; there are more of them.)");
    }
    listing
}

/// What stands in the directory itself: a file, or the directory that a path begins with.
fn top(path: &str) -> &str {
    path.find('/').map_or(path, |slash| &path[..=slash])
}
