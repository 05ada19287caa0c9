//! `read`: shows a window of a text file as numbered lines.

mod picture;
mod window;

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::window::{Ask, End, Window};
use super::observed::Note;
use super::paths::Place;
use super::{Effect, Failed, Guard, Tool, ToolContext, ToolOutput, arguments, clip};
use crate::config::{ByteSize, Config};
use crate::event::ToolSpec;
use crate::policy::Need;

const NAME: &str = "read";
/// The most lines that one call shows; the schema says it, too.
const LINES_MAX: u64 = 2000;
/// Room for the frame around the lines, besides the path.
const FRAME_BYTES: usize = 256;

/// Shows files.
pub(super) struct Read {
    spec: ToolSpec,
    result_bytes_max: usize,
    image_bytes_max: ByteSize,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// Path of the file, absolute or relative to the working directory.
    file_path: PathBuf,
    /// The first line to read, counted from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// How many lines to read at most.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2000))]
    limit: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    path: String,
    offset: u64,
    lines: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    #[serde(flatten)]
    note: Note,
}

impl Read {
    pub(super) fn new(config: &Config) -> Self {
        let description = format!(
            "Reads a text file and returns its lines as \"number: text\". Shows at most {LINES_MAX} lines and {} a call, \
             and {} characters of a line; offset and limit choose which lines. Images are shown as such where you can see them.",
            config.turn.tool_result_bytes,
            window::LINE_CHARS_MAX
        );
        Self {
            spec: ToolSpec {
                name: NAME.to_owned(),
                description,
                parameters: arguments::schema::<Arguments>(),
            },
            result_bytes_max: config.turn.tool_result_bytes.bytes(),
            image_bytes_max: config.limits.image_bytes,
        }
    }

    async fn run(&self, raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: Arguments = arguments::parse(NAME, raw)?;
        let offset = arguments.offset.unwrap_or(1);
        let limit = arguments.limit.unwrap_or(LINES_MAX);
        if offset == 0 || limit == 0 {
            let field = if offset == 0 { "offset" } else { "limit" };
            return Err(arguments::invalid(NAME, &format!("`{field}`: expected 1 or more, got 0")));
        }
        let path = context.cwd.join(&arguments.file_path);
        let shown_path_bytes = path.as_os_str().len();
        let ask = Ask {
            path: path.clone(),
            offset,
            limit: limit.min(LINES_MAX),
            bytes_max: self.result_bytes_max.saturating_sub(FRAME_BYTES + shown_path_bytes),
            guard: context.guard.clone(),
            cancel: context.cancel.clone(),
        };
        let aborted = || ToolOutput::failed(Failed::Aborted, "the call was cancelled");
        let reading = tokio::task::spawn_blocking(move || window::read(&ask));
        let window = tokio::select! {
            biased;
            // A read that hangs in the kernel is left to it; the thread looks at the token, too.
            () = context.cancel.cancelled() => return Err(aborted()),
            done = reading => done.map_err(|error| {
                tracing::error!(%error, "reading a file failed inside");
                ToolOutput::failed_without_code("reading failed inside; this is a bug")
            })?,
        };
        let window = match window {
            Err(window::ReadError::NotText(kind)) if context.takes_images => {
                return picture::show(&path, kind, self.image_bytes_max, context).await;
            }
            window => window.map_err(|error| failure(&path, &error))?,
        };
        if window.first_missing(offset) {
            let text = format!("offset {offset} is out of range for this file ({} lines)", window.seen);
            return Err(ToolOutput::failed(Failed::InvalidArguments, &text));
        }
        let total_lines = window.total();
        let place = Place { shown: path.clone(), real: window.real.clone() };
        let meta = Meta {
            path: path.display().to_string(),
            offset,
            lines: window.lines,
            total_lines,
            note: Note::of(&place, &window.stamp),
        };
        context.state.observed.note(place.real, window.stamp);
        Ok(ToolOutput::ok(framed(&path, offset, &window)).with_meta(&meta))
    }
}

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Reads
    }

    fn needs<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, Option<Need>> {
        Box::pin(async move {
            let arguments: Arguments = arguments::parse(NAME, arguments).ok()?;
            context.guard.need(context.cwd.join(arguments.file_path)).await
        })
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.run(arguments, context).await.unwrap_or_else(|failure| failure) })
    }
}

fn framed(path: &Path, offset: u64, window: &Window) -> String {
    let last = (offset + window.lines).saturating_sub(1);
    let next = last + 1;
    let note = match window.end {
        End::Shown => format!("(End of file - total {} lines)", window.seen),
        End::Lines => {
            format!("(Showing lines {offset}-{last} of {}. Use offset={next} to continue.)", total(window))
        }
        End::Bytes => {
            format!(
                "(Output capped. Showing lines {offset}-{last} of {}. Use offset={next} to continue.)",
                total(window)
            )
        }
    };
    let lossy =
        if window.lossy { "(Some bytes are not valid UTF-8 and are shown as \u{FFFD})\n" } else { "" };
    framed_as("file", path, &format!("{}\n{lossy}{note}", window.text))
}

/// The frame around what is shown of a file.
fn framed_as(kind: &str, path: &Path, content: &str) -> String {
    format!("<path>{}</path>\n<type>{kind}</type>\n<content>\n{content}\n</content>", path.display())
}

fn total(window: &Window) -> String {
    window.total().map_or_else(|| format!("more than {}", window.seen), |total| total.to_string())
}

fn failure(path: &Path, error: &window::ReadError) -> ToolOutput {
    use window::ReadError;
    let shown = clip::line(&path.display().to_string());
    match error {
        ReadError::NotFound => ToolOutput::failed(Failed::NotFound, &format!("file not found: {shown}")),
        ReadError::NotRegularFile(kind) => {
            ToolOutput::failed(Failed::NotRegularFile, &format!("{shown} is {kind}, not a regular file"))
        }
        ReadError::NotText(kind) => {
            ToolOutput::failed(Failed::NotText, &format!("cannot read {shown}: it is not text but {kind}"))
        }
        ReadError::Hidden => Guard::denial(path),
        ReadError::Cancelled => ToolOutput::failed(Failed::Aborted, "the call was cancelled"),
        ReadError::Io(error) => ToolOutput::failed_without_code(&format!("cannot read {shown}: {error}")),
    }
}

#[cfg(test)]
mod tests;
