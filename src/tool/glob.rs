//! `glob`: lists files whose paths match a pattern, newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use ignore::DirEntry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::search::pattern::{self, Pattern};
use super::search::walk::{Files, Walk};
use super::search::{self, Found, META_BYTES_MAX, Root, Searches, Stop};
use super::{Effect, Failed, Guard, Tool, ToolContext, ToolOutput, arguments, clip};
use crate::config::Config;
use crate::event::ToolSpec;
use crate::policy::Need;

const NAME: &str = "glob";

/// Lists files.
pub(super) struct Glob {
    spec: ToolSpec,
    searches: Searches,
    paths_max: usize,
    result_bytes_max: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The glob, such as *.rs (at any depth), src/**/*.ts or **/test_*.{py,pyi}.
    pattern: String,
    /// Directory to search instead of the working directory.
    #[serde(default)]
    path: Option<PathBuf>,
}

#[derive(Serialize)]
struct Meta<'a> {
    shape: &'static str,
    paths: &'a [String],
    truncated: bool,
    total: u64,
}

/// A file that matches. The greatest is the one to drop first: the oldest, and of those the last by path.
type Hit = (Reverse<SystemTime>, PathBuf);

/// The newest files, and how many there are.
#[derive(Debug, Default)]
struct Newest {
    hits: BinaryHeap<Hit>,
    total: u64,
    unreadable: u64,
}

impl Newest {
    /// Keeps a file if it is among the `max` newest.
    fn push(&mut self, changed: SystemTime, path: &Path, max: usize) {
        if self.hits.len() >= max {
            let worse = |(Reverse(time), other): &Hit| (*time, path) < (changed, other.as_path());
            if !self.hits.peek().is_some_and(worse) {
                return;
            }
            self.hits.pop();
        }
        self.hits.push((Reverse(changed), path.to_owned()));
    }
}

impl Glob {
    pub(super) fn new(config: &Config) -> Self {
        let paths_max = config.tools.glob_paths;
        let description = format!(
            "Lists the files whose paths match a glob pattern, newest first, at most {paths_max}. A pattern without a slash \
             matches names at any depth. What .gitignore names is left out, and hidden files, unless the pattern names them \
             (.github/**). Directories are not listed."
        );
        Self {
            spec: ToolSpec {
                name: NAME.to_owned(),
                description,
                parameters: arguments::schema::<Arguments>(),
            },
            searches: Searches::new(config),
            paths_max,
            result_bytes_max: config.turn.tool_result_bytes.bytes(),
        }
    }

    async fn run(&self, raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: Arguments = arguments::parse(NAME, raw)?;
        let ask = Ask {
            arguments,
            cwd: context.cwd.clone(),
            max: self.paths_max,
            threads: self.searches.threads,
            guard: context.guard.clone(),
        };
        let cwd = context.cwd.clone();
        let found = self.searches.run(context, move |stop| ask.list(stop)).await?;
        Ok(self.result(found, &cwd))
    }

    fn result(&self, found: Found<Newest>, cwd: &Path) -> ToolOutput {
        let Found { found: Newest { hits, total, unreadable }, cut_after } = found;
        let hits = hits.into_sorted_vec();
        let notes = search::incomplete(cut_after, unreadable);
        let mut paths = Vec::with_capacity(hits.len());
        let mut room = self.result_bytes_max.saturating_sub(notes.len() + FRAME_BYTES);
        let mut meta_room = META_BYTES_MAX.saturating_sub(FRAME_BYTES);
        for (_, path) in &hits {
            let shown = search::shown(path, cwd);
            let (text, json) = (shown.len() + 1, shown.len() * 2 + 3);
            if text > room || json > meta_room {
                break;
            }
            (room, meta_room) = (room - text, meta_room - json);
            paths.push(shown.into_owned());
        }
        let cut = total > paths.len() as u64;
        let mut text = if paths.is_empty() { "No files found".to_owned() } else { paths.join("\n") };
        if cut {
            let shown = paths.len();
            let _ = write!(
                text,
                "\n\n(Showing {shown} of {total} paths, newest first. Narrow pattern or path to see more.)"
            );
        }
        text.push_str(&notes);
        let truncated = cut || cut_after.is_some();
        ToolOutput::ok(text).with_meta(&Meta { shape: "paths", paths: &paths, truncated, total })
    }
}

/// Room for our own words around the paths.
const FRAME_BYTES: usize = 256;

impl Tool for Glob {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Reads
    }

    fn needs<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, Option<Need>> {
        Box::pin(async move {
            let arguments: Arguments = arguments::parse(NAME, arguments).ok()?;
            context.guard.need(context.cwd.join(arguments.path.unwrap_or_default())).await
        })
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.run(arguments, context).await.unwrap_or_else(|failure| failure) })
    }
}

/// One call, on its thread.
struct Ask {
    arguments: Arguments,
    cwd: PathBuf,
    max: usize,
    threads: usize,
    guard: Guard,
}

impl Ask {
    fn list(&self, stop: &Stop) -> Result<Newest, ToolOutput> {
        let text = &self.arguments.pattern;
        let refused = |reason: String| invalid(text, &reason);
        let (path, text) = match pattern::split_base(text).map_err(refused)? {
            Some((base, rest)) => {
                (Some(self.arguments.path.as_deref().unwrap_or(Path::new("")).join(base)), rest)
            }
            None => (self.arguments.path.clone(), text.clone()),
        };
        let pattern = Pattern::new(&text).map_err(refused)?;
        let root = match search::root(&self.cwd, path.as_deref())? {
            Root::Directory(root) => root,
            Root::File(file) => {
                let shown = clip::line(&file.display().to_string());
                let what = format!("`path`: expected a directory, and {shown} is a file");
                return Err(arguments::invalid(NAME, &what));
            }
        };
        let newest = Mutex::new(Newest::default());
        let walk = Walk {
            root: &root,
            cwd: &self.cwd,
            hidden: pattern.hidden,
            threads: self.threads,
            guard: &self.guard,
            stop,
        };
        let unreadable = walk.each(|| Lister {
            pattern: &pattern,
            root: &root,
            cwd: &self.cwd,
            max: self.max,
            own: Newest::default(),
            all: &newest,
        });
        let newest = newest.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(Newest { unreadable, ..newest })
    }
}

fn invalid(pattern: &str, reason: &str) -> ToolOutput {
    let text = format!("invalid glob \"{}\": {}", clip::line(pattern), clip::line(reason));
    ToolOutput::failed(Failed::InvalidPattern, &text)
}

/// What one thread finds. It is added to the whole when the thread is done.
struct Lister<'a> {
    pattern: &'a Pattern,
    root: &'a Path,
    cwd: &'a Path,
    max: usize,
    own: Newest,
    all: &'a Mutex<Newest>,
}

impl Files for Lister<'_> {
    fn file(&mut self, entry: &DirEntry) -> io::Result<()> {
        let path = entry.path();
        if !self.pattern.matches_below(path, self.root, self.cwd) {
            return Ok(());
        }
        let metadata = entry.metadata().map_err(|error| {
            error.into_io_error().unwrap_or_else(|| io::Error::from(io::ErrorKind::Other))
        })?;
        let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        self.own.total += 1;
        self.own.push(changed, path, self.max);
        Ok(())
    }
}

impl Drop for Lister<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.total += self.own.total;
        for (Reverse(changed), path) in self.own.hits.drain() {
            all.push(changed, &path, self.max);
        }
    }
}

#[cfg(test)]
mod tests;
