//! `grep`: searches the text of files for a regular expression and gives back the matching lines, grouped by file.

mod found;
mod scan;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use self::found::Matches;
use self::scan::{Scan, Scanner};
use super::search::pattern::Pattern;
use super::search::walk::Walk;
use super::search::{self, Root, Searches, Stop};
use super::{Effect, Failed, Guard, Tool, ToolContext, ToolOutput, arguments, clip};
use crate::config::Config;
use crate::event::ToolSpec;
use crate::policy::Need;

const NAME: &str = "grep";
/// The longest regular expression, in bytes; compiling one can't be stopped.
const PATTERN_BYTES_MAX: usize = 4 * 1024;

/// The largest compiled expression, and what each thread may keep of its states.
const COMPILED_BYTES_MAX: usize = 10 << 20;
const CACHE_BYTES_MAX: usize = 32 << 20;

/// Searches text.
pub(super) struct Grep {
    spec: ToolSpec,
    searches: Searches,
    matches_max: usize,
    result_bytes_max: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The regular expression, in ripgrep's syntax; it matches within one line.
    pattern: String,
    /// File or directory to search instead of the working directory.
    #[serde(default)]
    path: Option<PathBuf>,
    /// A glob that the files must match, such as *.rs or *.{ts,tsx}.
    #[serde(default)]
    include: Option<String>,
}

impl Grep {
    pub(super) fn new(config: &Config) -> Self {
        let matches_max = config.tools.grep_matches;
        let description = format!(
            "Searches the text of files for a regular expression and returns the matching lines with their numbers, grouped \
             by file in the order of their paths, at most {matches_max}. What .gitignore names, hidden files and binary \
             files are left out."
        );
        Self {
            spec: ToolSpec {
                name: NAME.to_owned(),
                description,
                parameters: arguments::schema::<Arguments>(),
            },
            searches: Searches::new(config),
            matches_max,
            result_bytes_max: config.turn.tool_result_bytes.bytes(),
        }
    }

    async fn run(&self, raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: Arguments = arguments::parse(NAME, raw)?;
        let include = arguments.include.as_deref().map(include).transpose()?;
        let ask = Ask {
            arguments,
            include,
            cwd: context.cwd.clone(),
            max: self.matches_max,
            threads: self.searches.threads,
            guard: context.guard.clone(),
        };
        let found = self.searches.run(context, move |stop| ask.search(stop)).await?;
        let notes = search::incomplete(found.cut_after, found.found.unreadable);
        let bytes_max = self.result_bytes_max.saturating_sub(notes.len());
        let page = found.found.page(&context.cwd, self.matches_max, bytes_max);
        let meta = page.meta(found.cut_after.is_some());
        Ok(ToolOutput::ok(page.text() + &notes).with_meta(&meta))
    }
}

impl Tool for Grep {
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
    include: Option<Pattern>,
    cwd: PathBuf,
    max: usize,
    threads: usize,
    guard: Guard,
}

impl Ask {
    fn search(&self, stop: &Stop) -> Result<Matches, ToolOutput> {
        let matcher = matcher(&self.arguments.pattern)?;
        let root = search::root(&self.cwd, self.arguments.path.as_deref())?;
        let all = Mutex::new(Matches::default());
        let scan = Scan { matcher: &matcher, max: self.max, guard: &self.guard, stop, all: &all };
        let unreadable = match &root {
            // Who names a file means it, whatever its name is and whoever ignores it.
            Root::File(file) => {
                let mut scanner = Scanner::new(&scan, Path::new(""), &self.cwd, None);
                scanner.search(file).map_err(|error| {
                    let shown = clip::line(&file.display().to_string());
                    ToolOutput::failed_without_code(&format!("cannot search {shown}: {error}"))
                })?;
                0
            }
            Root::Directory(root) => {
                let hidden = self.include.as_ref().is_some_and(|include| include.hidden);
                let walk =
                    Walk { root, cwd: &self.cwd, hidden, threads: self.threads, guard: &self.guard, stop };
                walk.each(|| Scanner::new(&scan, root, &self.cwd, self.include.as_ref()))
            }
        };
        let mut matches = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        matches.unreadable = unreadable;
        Ok(matches)
    }
}

/// Compiles the pattern as ripgrep does.
fn matcher(pattern: &str) -> Result<RegexMatcher, ToolOutput> {
    if pattern.is_empty() {
        return Err(invalid(pattern, "it is empty"));
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid(pattern, &format!("it has more than {PATTERN_BYTES_MAX} bytes")));
    }
    RegexMatcherBuilder::new()
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(CACHE_BYTES_MAX)
        .build(pattern)
        .map_err(|error| invalid(pattern, &reason(&error)))
}

fn reason(error: &grep_regex::Error) -> String {
    let text = error.to_string();
    // The parser draws the pattern and a caret on lines of their own; what is wrong stands in the last one.
    text.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or(&text).to_owned()
}

fn invalid(pattern: &str, reason: &str) -> ToolOutput {
    let text = format!("invalid regular expression \"{}\": {}", clip::line(pattern), clip::line(reason));
    ToolOutput::failed(Failed::InvalidPattern, &text)
}

/// Reads the filter: one glob, not a list.
fn include(text: &str) -> Result<Pattern, ToolOutput> {
    if list(text) {
        let what = "`include`: expected one glob, not a list; alternatives are written *.{ts,tsx}";
        return Err(arguments::invalid(NAME, what));
    }
    Pattern::new(text).map_err(|reason| {
        let text = format!("invalid glob \"{}\" in `include`: {}", clip::line(text), clip::line(&reason));
        ToolOutput::failed(Failed::InvalidPattern, &text)
    })
}

/// Whether a comma stands outside of all braces and brackets.
fn list(text: &str) -> bool {
    let mut depth = 0_usize;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
