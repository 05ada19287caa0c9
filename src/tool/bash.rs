//! `bash`: runs a command line and gives back what it wrote and how it ended, or runs it in the background as a job.

pub(super) mod text;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use self::text::{Composer, facts};
use super::job::{NewJob, Started};
use super::{Children, Effect, Failed, Tool, ToolContext, ToolOutput, arguments, clip};
use crate::config::Config;
use crate::event::{EventBody, ToolSpec};
use crate::process::{self, Caps, Finished, Launch, Running, Sandbox, Spool, StartError, Stopped, Terms};

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
    jobs_max: usize,
    composer: Composer,
    sandbox: Sandbox,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The command line, run by bash -c.
    command: String,
    /// What the command is for, in 5 to 10 words.
    #[serde(default, rename = "description")]
    _description: Option<String>,
    /// Longest run in milliseconds.
    #[serde(default, rename = "timeoutMs")]
    #[schemars(range(min = 1, max = 3_600_000))]
    timeout_ms: Option<u64>,
    /// Directory to run in instead of the working directory.
    #[serde(default)]
    workdir: Option<PathBuf>,
    /// Return at once and let the command run as a background job.
    #[serde(default)]
    run_in_background: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    cwd: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<String>,
}

impl Bash {
    pub(super) fn new(config: &Config, children: Children, spool: Option<Spool>, sandbox: Sandbox) -> Self {
        let timeout = config.tools.bash_timeout;
        let description = format!(
            "Runs a command line in bash and returns its standard output, its standard error and its exit code. \
             Standard input is empty. A command that runs longer than timeoutMs (default {}) is ended with all that it \
             started. Long output is cut in the middle, and the file that has all of it is named. The call ends with \
             the command itself; processes that it leaves in the background live on. With run_in_background the call \
             returns at once with the id of a job, which runs until it ends or job_kill ends it; you are told of its \
             end, and job_output gives its output.",
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
            jobs_max: config.limits.jobs,
            composer: Composer { bytes_max: config.turn.tool_result_bytes.bytes(), spool },
            sandbox,
        }
    }

    async fn run(&self, raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: Arguments = arguments::parse(NAME, raw)?;
        let directory = match &arguments.workdir {
            Some(workdir) => context.cwd.join(workdir),
            None => context.cwd.clone(),
        };
        require_directory(&directory).await?;
        let timeout = timeout_of(&arguments)?;
        if context.cancel.is_cancelled() {
            return Err(ToolOutput::failed(Failed::Aborted, CANCELLED));
        }
        let Ok(place) = self.children.free.clone().try_acquire_owned() else {
            return Err(ToolOutput::failed_without_code(&format!(
                "{} commands run already, which is the limit (limits.children); try again when one has ended",
                self.children.max
            )));
        };
        if let Some(spool) = &self.composer.spool {
            spool.claim().await;
        }
        let is_job = arguments.run_in_background == Some(true);
        let launch = self.launch(&arguments.command, directory, is_job, context);
        if is_job {
            self.start_job(&launch, &arguments.command, timeout, place, context).await
        } else {
            self.wait_for(&launch, timeout.unwrap_or(self.timeout), context).await
        }
    }

    fn launch(&self, command: &str, directory: PathBuf, is_job: bool, context: &ToolContext) -> Launch {
        let mut environment = self.environment.clone();
        environment.push((SESSION_VARIABLE.into(), context.session.as_str().into()));
        Launch {
            program: NAME.into(),
            arguments: vec!["-c".into(), "--".into(), command.into()],
            environment,
            caps: self.caps,
            spool: self.composer.spool.clone().map(|spool| (spool, context.session.clone())),
            confinement: self.sandbox.confine(context.mode, &context.cwd).unconfined(context.unconfined),
            directory,
            is_job,
        }
    }

    async fn wait_for(
        &self,
        launch: &Launch,
        timeout: Duration,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolOutput> {
        let running =
            Running::start(launch, context.state.family()).await.map_err(|error| not_started(&error))?;
        let terms = Terms { timeout: Some(timeout), grace: self.grace, cancel: &context.cancel };
        let finished = running.finish(terms).await.map_err(|error| failure(&error))?;
        let meta = Meta { cwd: launch.directory.display().to_string(), job_id: None };
        Ok(self.result(finished, timeout, context).await.with_meta(&meta))
    }

    async fn result(&self, finished: Finished, timeout: Duration, context: &ToolContext) -> ToolOutput {
        let start = match finished.stopped {
            Some(Stopped::Cancelled) => format!("Error: {CANCELLED}\n"),
            Some(Stopped::TimedOut) | None => String::new(),
        };
        let facts = facts(finished.end, finished.stopped, timeout.as_millis());
        let streams = (finished.stdout, finished.stderr);
        let text = self.composer.compose(&context.session, start, streams, facts).await;
        match finished.stopped {
            Some(Stopped::Cancelled) => {
                ToolOutput { is_error: true, error: Some(Failed::Aborted.info()), ..ToolOutput::ok(text) }
            }
            Some(Stopped::TimedOut) => ToolOutput { is_error: true, ..ToolOutput::ok(text) },
            None => ToolOutput::ok(text),
        }
    }

    async fn start_job(
        &self,
        launch: &Launch,
        command: &str,
        timeout: Option<Duration>,
        place: OwnedSemaphorePermit,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolOutput> {
        let jobs = context.state.jobs();
        if jobs.running() >= self.jobs_max {
            return Err(ToolOutput::failed_without_code(&format!(
                "{} background jobs of this session run already, which is the limit (limits.jobs); end one with \
                 job_kill, or wait for its end",
                self.jobs_max
            )));
        }
        let running =
            Running::start(launch, context.state.family()).await.map_err(|error| not_started(&error))?;
        let started = Started { running, place, timeout, grace: self.grace };
        let new = NewJob {
            kind: NAME,
            label: clip::line(command),
            session: context.session.clone(),
            call_id: context.call_id.clone(),
            kept_max: self.jobs_max,
            composer: self.composer.clone(),
            notify: context.state.notify().cloned(),
        };
        let registered = jobs.add(new, started);
        let text = format!(
            "Started background job {}. You are told when it ends; job_output gives what it has written.",
            registered.job_id
        );
        let meta =
            Meta { cwd: launch.directory.display().to_string(), job_id: Some(registered.job_id.clone()) };
        let events = vec![EventBody::JobRegistered(registered)];
        Ok(ToolOutput { events, ..ToolOutput::ok(text) }.with_meta(&meta))
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

fn timeout_of(arguments: &Arguments) -> Result<Option<Duration>, ToolOutput> {
    match arguments.timeout_ms {
        None => Ok(None),
        Some(millis @ 1..=TIMEOUT_MS_MAX) => Ok(Some(Duration::from_millis(millis))),
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
    match error {
        StartError::Unconfinable(_) | StartError::Sandbox { .. } => {
            ToolOutput::failed(Failed::SandboxUnavailable, &error.to_string())
        }
        StartError::Program { .. } => failure(error),
    }
}

fn failure(error: &dyn std::error::Error) -> ToolOutput {
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    ToolOutput::failed_without_code(&format!("{error}{source}"))
}

#[cfg(test)]
mod tests;
