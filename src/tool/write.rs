//! `write`: makes a file, or replaces all of one that the session has read. Also what `edit` shares with it.

mod commit;
mod diff;
mod failure;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

pub(super) use self::diff::{Meta, unified};
pub(super) use self::failure::FileError;

pub(super) use self::target::Old;
use self::target::Target;
use super::edit::{Ends, split_mark};
use super::observed::{Seen, Stamp};
use super::paths::{self, PathError, Place};
use super::{Effect, Guard, Tool, ToolContext, ToolOutput, ToolState, arguments};
use crate::config::{ByteSize, Config};
use crate::event::{PermissionMode, ToolSpec};
use crate::policy::Need;

const NAME: &str = "write";

/// Writes files.
pub(super) struct Write {
    spec: ToolSpec,
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// Path of the file, absolute or relative to the working directory.
    file_path: PathBuf,
    /// The whole new content.
    content: String,
}

impl Write {
    pub(super) fn new(config: &Config) -> Self {
        let description =
            "Writes a whole text file and makes the directories that it needs. A file that is there must \
                           have been read first; to change a part of it, use edit."
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
        if arguments.file_path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(arguments::invalid(NAME, "`file_path`: expected a file's path, got a directory's"));
        }
        let path = context.cwd.join(&arguments.file_path);
        let written = Job::new(&self.files, context).run(move |job| write(job, &arguments)).await?;
        written.map_err(|error| error.output(&path))
    }
}

impl Tool for Write {
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

/// The content that a call writes. Blocks.
fn content(job: &Job, old: Option<&Old>, given: &str) -> Result<String, FileError> {
    let content = match old {
        Some(old) => as_before(&old.text, given),
        None => given.to_owned(),
    };
    let size = content.len() as u64;
    if size > job.bytes_max().0 {
        return Err(FileError::Large { size, max: job.bytes_max() });
    }
    Ok(content)
}

/// What would change. Blocks.
fn preview(job: &Job, place: &Place, arguments: &Arguments) -> Result<String, FileError> {
    let opened = job.open(place)?;
    let old = opened.as_ref().map(|target| job.seen(place, target)).transpose()?.flatten();
    let content = content(job, old, &arguments.content)?;
    Ok(unified(place, old.map(|old| old.text.as_str()), &content))
}

/// Blocks.
fn write(job: &Job, arguments: &Arguments) -> Result<ToolOutput, FileError> {
    let place = job.place(&arguments.file_path)?;
    let opened = job.open(&place)?;
    let old = opened.as_ref().map(|target| job.seen(&place, target)).transpose()?.flatten();
    let content = content(job, old, &arguments.content)?;
    let stamp = match &opened {
        Some(target) => job.commit(&place, target, &content)?,
        None => job.commit(&place, &Target::make(&place.real)?, &content)?,
    };
    let done = if old.is_some() { "Updated file" } else { "Created file" };
    let mut text =
        format!("<path>{}</path>\n<type>file</type>\n<content>\n{done}\n</content>", place.shown.display());
    if let Some(old) = old {
        old.note_other_names(&mut text);
    }
    let before = old.map(|old| old.text.as_str());
    let meta = Meta::of(&place, before, &content, &stamp, job.event_bytes());
    Ok(ToolOutput::ok(text).with_meta(&meta))
}

/// A content with the line ends and the byte order mark of the one before.
fn as_before(old: &str, content: &str) -> String {
    let (mark, _) = split_mark(old);
    let (_, content) = split_mark(content);
    let ends = if old.contains('\n') { Ends::of(old) } else { Ends::Mixed };
    format!("{mark}{}", ends.apply(content))
}

/// Bounds of what `write` and `edit` take.
#[derive(Debug)]
pub(super) struct Files {
    bytes_max: ByteSize,
    event_bytes: usize,
}

impl Files {
    pub(super) fn new(config: &Config) -> Self {
        Self { bytes_max: config.tools.edit_bytes, event_bytes: config.limits.event_bytes.bytes() }
    }
}

/// One call that changes a file. All but [`Job::run`] blocks.
pub(super) struct Job {
    files: Arc<Files>,
    cwd: PathBuf,
    mode: PermissionMode,
    guard: Guard,
    state: Arc<ToolState>,
    cancel: CancellationToken,
}

impl Job {
    pub(super) fn new(files: &Arc<Files>, context: &ToolContext) -> Self {
        Self {
            files: Arc::clone(files),
            cwd: context.cwd.clone(),
            mode: context.mode,
            guard: context.guard.clone(),
            state: Arc::clone(&context.state),
            cancel: context.cancel.clone(),
        }
    }

    /// Does the work on a thread for blocking work, and waits for it even when it is cancelled: the call looks at its
    /// token before it changes anything, and afterwards its outcome has to be known.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ToolOutput> {
        tokio::task::spawn_blocking(move || work(&self)).await.map_err(|error| {
            tracing::error!(%error, "changing a file failed inside");
            ToolOutput::failed_without_code("changing the file failed inside; this is a bug")
        })
    }

    /// What a call needs to change a path, with what `preview` says would change; nothing when the mode allows it or the
    /// call can't succeed, which it tells itself.
    pub(super) async fn needs(
        self,
        path: PathBuf,
        preview: impl FnOnce(&Self, &Place) -> Option<String> + Send + 'static,
    ) -> Option<Need> {
        let shown = self.cwd.join(&path);
        let needed = self.run(move |job| {
            let denied = match paths::writable(&job.cwd, &path, job.mode, &job.guard) {
                Ok(_) | Err(PathError::Io(_)) => return None,
                Err(denied) => denied,
            };
            let all = PermissionMode::FullAccess;
            let place = paths::writable(&job.cwd, &path, all, &Guard::default()).ok()?;
            let diff = preview(job, &place)?;
            Some((denied.to_string(), place, diff))
        });
        let (why, place, diff) = needed.await.ok()??;
        let shown = super::clip::line(&shown.display().to_string());
        Some(Need {
            reason: format!("may not write {shown}: {}", super::clip::line(&why)),
            command: None,
            diff: Some(diff),
            denied: super::Failed::SandboxDenied.info(),
            rule: place.real.to_str().map(str::to_owned),
        })
    }

    pub(super) fn bytes_max(&self) -> ByteSize {
        self.files.bytes_max
    }

    pub(super) fn event_bytes(&self) -> usize {
        self.files.event_bytes
    }

    /// Where a path leads, if the session may change what is there.
    pub(super) fn place(&self, asked: &Path) -> Result<Place, FileError> {
        Ok(paths::writable(&self.cwd, asked, self.mode, &self.guard)?)
    }

    /// What is at a place; none when not even its directory is there.
    pub(super) fn open(&self, place: &Place) -> Result<Option<Target>, FileError> {
        Target::open(&place.real, self.files.bytes_max)
    }

    /// The file that is there, if the session has seen it as it is now.
    pub(super) fn seen<'a>(&self, place: &Place, target: &'a Target) -> Result<Option<&'a Old>, FileError> {
        let Some(old) = &target.old else { return Ok(None) };
        match self.state.observed.compare(&place.real, &old.stamp) {
            Seen::Unchanged => Ok(Some(old)),
            Seen::Changed => Err(FileError::Changed),
            Seen::Never => Err(FileError::NotObserved),
        }
    }

    /// Puts the content in place and notes that the session has seen it.
    pub(super) fn commit(&self, place: &Place, target: &Target, content: &str) -> Result<Stamp, FileError> {
        let stamp = commit::commit(target, content.as_bytes(), &self.cancel)?;
        self.state.observed.note(place.real.clone(), stamp);
        Ok(stamp)
    }
}

#[cfg(test)]
mod tests;
