//! `bash`: runs a command line and gives back what it wrote and how it ended.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clip::{self, Text};
use super::{Children, Effect, Failed, Tool, ToolContext, ToolOutput, arguments};
use crate::config::Config;
use crate::event::ToolSpec;
use crate::process::{self, Caps, End, Finished, Job, StartError, Stopped};

const NAME: &str = "bash";
/// The longest run that a call may ask for; the schema says it, too.
const TIMEOUT_MS_MAX: u64 = 3_600_000;
const CANCELLED: &str = "the call was cancelled";
/// Tells the command which session it runs for.
const SESSION_VARIABLE: &str = "DSHD_SESSION";
/// What of `shutdown.cancel_grace` a cancelled command gets to end by itself; the rest is for killing it and for the turn.
const GRACE_SHARE: u32 = 2;

/// Runs command lines.
pub(super) struct Bash {
    spec: ToolSpec,
    children: Children,
    environment: Vec<(OsString, OsString)>,
    timeout: Duration,
    grace: Duration,
    caps: Caps,
    result_bytes_max: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// The command line, run by bash -c.
    command: String,
    /// What the command is for, in 5 to 10 words.
    #[serde(default, rename = "description")]
    _description: Option<String>,
    /// Longest run in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_600_000))]
    timeout_ms: Option<u64>,
    /// Directory to run in instead of the working directory.
    #[serde(default)]
    workdir: Option<PathBuf>,
}

#[derive(Serialize)]
struct Meta {
    cwd: String,
}

impl Bash {
    pub(super) fn new(config: &Config, children: Children) -> Self {
        let timeout = config.tools.bash_timeout;
        let description = format!(
            "Runs a command line in bash and returns its standard output, its standard error and its exit code. \
             Standard input is empty. A command that runs longer than timeoutMs (default {}) is ended. Long output is \
             cut in the middle. What the command leaves in the background is ended with it.",
            timeout.as_millis()
        );
        Self {
            spec: ToolSpec {
                name: NAME.to_owned(),
                description,
                parameters: arguments::schema::<Arguments>(),
            },
            children,
            environment: process::allowed(std::env::vars_os(), &config.tools.env),
            timeout,
            grace: config.shutdown.cancel_grace / GRACE_SHARE,
            caps: Caps {
                head: config.tools.output_head_bytes.bytes(),
                tail: config.tools.output_tail_bytes.bytes(),
            },
            result_bytes_max: config.turn.tool_result_bytes.bytes(),
        }
    }

    async fn run(&self, raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: Arguments = arguments::parse(NAME, raw)?;
        let directory = match &arguments.workdir {
            Some(workdir) => context.cwd.join(workdir),
            None => context.cwd.clone(),
        };
        require_directory(&directory).await?;
        let timeout = timeout_of(&arguments, self.timeout)?;
        if context.cancel.is_cancelled() {
            return Err(ToolOutput::failed(Failed::Aborted, CANCELLED));
        }
        let Ok(_place) = self.children.free.try_acquire() else {
            return Err(ToolOutput::failed_without_code(&format!(
                "{} commands run already, which is the limit (limits.children); try again when one has ended",
                self.children.max
            )));
        };
        let job = Job {
            program: NAME.into(),
            arguments: vec!["-c".into(), "--".into(), arguments.command.into()],
            environment: self.environment_for(context),
            timeout,
            grace: self.grace,
            caps: self.caps,
            directory,
        };
        let meta = Meta { cwd: job.directory.display().to_string() };
        let finished = process::run(job, &context.cancel).await.map_err(|error| not_started(&error))?;
        Ok(result(&finished, timeout, self.result_bytes_max).with_meta(&meta))
    }

    fn environment_for(&self, context: &ToolContext) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment.clone();
        environment.push((SESSION_VARIABLE.into(), context.session.as_str().into()));
        environment
    }
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Acts
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.run(arguments, context).await.unwrap_or_else(|failure| failure) })
    }
}

fn timeout_of(arguments: &Arguments, default: Duration) -> Result<Duration, ToolOutput> {
    match arguments.timeout_ms {
        None => Ok(default),
        Some(millis @ 1..=TIMEOUT_MS_MAX) => Ok(Duration::from_millis(millis)),
        Some(millis) => Err(arguments::invalid(
            NAME,
            &format!("`timeoutMs`: expected 1 to {TIMEOUT_MS_MAX} milliseconds, got {millis}"),
        )),
    }
}

/// Starting in a directory that is not there fails as if bash were missing, so this is told first.
async fn require_directory(directory: &Path) -> Result<(), ToolOutput> {
    let shown = clip::line(&directory.display().to_string());
    match tokio::fs::metadata(directory).await {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(ToolOutput::failed(Failed::NotFound, &format!("{shown} is no directory"))),
        Err(error) => Err(ToolOutput::failed(
            Failed::NotFound,
            &format!("cannot run in the directory {shown}: {error}"),
        )),
    }
}

fn not_started(error: &StartError) -> ToolOutput {
    ToolOutput::failed_without_code(&format!("{error}: {}", error.source))
}

/// The text for the model: standard output, standard error, then the facts of the end, one a line.
fn result(finished: &Finished, timeout: Duration, bytes_max: usize) -> ToolOutput {
    const STDERR: &str = "[stderr]\n";
    let (stdout, stderr) = (Text::of(&finished.stdout), Text::of(&finished.stderr));
    let facts = facts(finished, timeout, stdout.lossy || stderr.lossy);

    let start = match finished.stopped {
        Some(Stopped::Cancelled) => format!("Error: {CANCELLED}\n"),
        Some(Stopped::TimedOut) | None => String::new(),
    };
    let overhead = start.len() + STDERR.len() + 2 + facts.len();
    let (stdout_room, stderr_room) = share(bytes_max.saturating_sub(overhead), stdout.len(), stderr.len());

    let mut text = start;
    stdout.write(&mut text, stdout_room);
    if !stderr.is_empty() {
        end_line(&mut text);
        text.push_str(STDERR);
        stderr.write(&mut text, stderr_room);
    }
    if !facts.is_empty() {
        end_line(&mut text);
        text.push_str(&facts);
    }
    if text.is_empty() {
        text.push_str("(no output)");
    }
    match finished.stopped {
        Some(Stopped::Cancelled) => {
            ToolOutput { is_error: true, error: Some(Failed::Aborted.info()), ..ToolOutput::ok(text) }
        }
        Some(Stopped::TimedOut) => ToolOutput { is_error: true, ..ToolOutput::ok(text) },
        None => ToolOutput::ok(text),
    }
}

fn facts(finished: &Finished, timeout: Duration, lossy: bool) -> String {
    let mut facts = Vec::new();
    if lossy {
        facts.push("[some output was not valid UTF-8 and is shown as \u{FFFD}]".to_owned());
    }
    if finished.stopped == Some(Stopped::TimedOut) {
        facts.push(format!("[timed out after {} ms; the command was ended]", timeout.as_millis()));
    }
    match finished.end {
        End::Exited(0) => {}
        End::Exited(code) => facts.push(format!("[exit code: {code}]")),
        End::Signalled(signal) => facts.push(format!("[killed by signal: {}]", signal_name(signal))),
        End::Stuck => facts.push("[killed, but a process of it hangs in the kernel]".to_owned()),
    }
    facts.join("\n")
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned)
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Divides the room between two texts: whoever needs less than half leaves the rest to the other.
fn share(room: usize, first: usize, second: usize) -> (usize, usize) {
    let half = room / 2;
    if first + second <= room {
        (first, second)
    } else if second <= half {
        (room - second, second)
    } else if first <= half {
        (first, room - first)
    } else {
        (half, half)
    }
}

#[cfg(test)]
mod tests;
