//! `edit`: replaces a text in a file that the session has read.

mod hint;
mod matching;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use self::matching::NoMatch;
use super::paths::Place;
use super::write::{FileError, Files, Job, Meta, Old, unified};
use super::{Effect, Failed, Tool, ToolContext, ToolOutput, arguments, clip};
use crate::config::Config;
use crate::event::ToolSpec;
use crate::policy::Need;

pub(super) use self::matching::Ends;

const NAME: &str = "edit";

/// Edits files.
pub(super) struct Edit {
    spec: ToolSpec,
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// Path of the file, absolute or relative to the working directory.
    file_path: PathBuf,
    /// The text to replace, exactly as it stands in the file, without line numbers.
    old_string: String,
    /// The text to put in its place.
    new_string: String,
    /// Replace every place where the text stands, not its only one.
    #[serde(default)]
    replace_all: Option<bool>,
}

/// Why a file was not edited.
enum NoEdit {
    File(FileError),
    NotFound { hint: String },
    Ambiguous { count: usize, lines: Vec<usize> },
}

impl<E: Into<FileError>> From<E> for NoEdit {
    fn from(error: E) -> Self {
        Self::File(error.into())
    }
}

impl Edit {
    pub(super) fn new(config: &Config) -> Self {
        let description = "Replaces a text in a file. Read the file first. old_string must stand in the file exactly \
                           as given, with its indentation, and only once; give enough of the lines around it, or set \
                           replace_all. Line ends are kept as they are in the file."
            .to_owned();
        Self {
            spec: ToolSpec {
                name: NAME.to_owned(),
                description,
                parameters: arguments::schema::<Arguments>(),
            },
            files: Arc::new(Files::new(config)),
        }
    }

    async fn run(&self, raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: Arguments = arguments::parse(NAME, raw)?;
        if arguments.old_string.is_empty() {
            return Err(arguments::invalid(
                NAME,
                "`old_string`: expected a text that stands in the file; to make a file, use write",
            ));
        }
        if matching::unify(&arguments.old_string) == matching::unify(&arguments.new_string) {
            return Err(arguments::invalid(
                NAME,
                "`new_string`: expected another text than `old_string` (line ends are kept as they are)",
            ));
        }
        let path = context.cwd.join(&arguments.file_path);
        let job = Job::new(&self.files, context);
        let edited = job.run(move |job| edit(job, &arguments)).await?;
        edited.map_err(|error| failure(&path, &error))
    }
}

impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Acts
    }

    fn needs<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, Option<Need>> {
        Box::pin(async move {
            let arguments: Arguments = arguments::parse(NAME, arguments).ok()?;
            let path = arguments.file_path.clone();
            let job = Job::new(&self.files, context);
            job.needs(path, move |job, place| preview(job, place, &arguments).ok()).await
        })
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.run(arguments, context).await.unwrap_or_else(|failure| failure) })
    }
}

/// Blocks.
fn edit(job: &Job, arguments: &Arguments) -> Result<ToolOutput, NoEdit> {
    let place = job.place(&arguments.file_path)?;
    let target = job.open(&place)?.filter(|target| target.old.is_some()).ok_or(FileError::NotFound)?;
    let old = job.seen(&place, &target)?.ok_or(FileError::NotFound)?;
    let content = edited(job, old, arguments)?;
    let stamp = job.commit(&place, &target, &content)?;
    let mut text = format!("The file {} has been updated successfully.", place.shown.display());
    old.note_other_names(&mut text);
    let meta = Meta::of(&place, Some(&old.text), &content, &stamp, job.event_bytes());
    Ok(ToolOutput::ok(text).with_meta(&meta))
}

/// What would change. Blocks.
fn preview(job: &Job, place: &Place, arguments: &Arguments) -> Result<String, NoEdit> {
    let target = job.open(place)?.filter(|target| target.old.is_some()).ok_or(FileError::NotFound)?;
    let old = job.seen(place, &target)?.ok_or(FileError::NotFound)?;
    Ok(unified(place, Some(&old.text), &edited(job, old, arguments)?))
}

/// The content after the edit.
fn edited(job: &Job, old: &Old, arguments: &Arguments) -> Result<String, NoEdit> {
    let (mark, text) = split_mark(&old.text);
    let strip = |given: &'_ str| split_mark(given).1.to_owned();
    let (wanted, new) = (strip(&arguments.old_string), strip(&arguments.new_string));
    let room = job.bytes_max().bytes().saturating_sub(mark.len());
    let edited = matching::replace(text, &wanted, &new, arguments.replace_all.unwrap_or(false), room);
    let edited = edited.map_err(|error| match error {
        NoMatch::NotFound => NoEdit::NotFound { hint: hint::hint(text, &wanted) },
        NoMatch::Ambiguous { count, lines } => NoEdit::Ambiguous { count, lines },
        NoMatch::Large { size } => NoEdit::File(FileError::Large { size, max: job.bytes_max() }),
    })?;
    Ok(if mark.is_empty() { edited } else { format!("{mark}{edited}") })
}

/// The byte order mark, if there is one, and the rest.
pub(super) fn split_mark(text: &str) -> (&str, &str) {
    const MARK: &str = "\u{FEFF}";
    text.split_at(if text.starts_with(MARK) { MARK.len() } else { 0 })
}

fn failure(path: &Path, error: &NoEdit) -> ToolOutput {
    let shown = clip::line(&path.display().to_string());
    match error {
        NoEdit::File(error) => error.output(path),
        NoEdit::NotFound { hint } => {
            ToolOutput::failed(Failed::EditNotFound, &format!("old_string was not found in {shown}. {hint}"))
        }
        NoEdit::Ambiguous { count, lines } => {
            let lines: Vec<_> = lines.iter().map(usize::to_string).collect();
            let more = if lines.len() < *count { " and more" } else { "" };
            let text = format!(
                "old_string was found {count} times in {shown}, at lines {}{more}; give more of the lines around the \
                 one that you mean, or set replace_all",
                lines.join(", ")
            );
            ToolOutput::failed(Failed::AmbiguousEdit, &text)
        }
    }
}

#[cfg(test)]
mod tests;
