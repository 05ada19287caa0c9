//! `job_list`, `job_output`, `job_kill`.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::book::Job;
use super::ended::status_line;
use crate::clock::now_ms;
use crate::event::ToolSpec;
use crate::process::View;
use crate::tool::bash::text::Composer;
use crate::tool::{Effect, Failed, Tool, ToolContext, ToolOutput, arguments, clip};

const LIST: &str = "job_list";
const OUTPUT: &str = "job_output";
const KILL: &str = "job_kill";
/// How long `job_output` waits when it is not told, and at most; the schema says it, too.
const WAIT_MS_DEFAULT: u64 = 30_000;
const WAIT_MS_MAX: u64 = 600_000;
const KILLED: &str = "killed by job_kill";
const RUNNING: &str = "running";

/// Lists the session's background jobs.
pub(in crate::tool) struct JobList(ToolSpec);

/// Gives what a job has written, now or when it has ended.
pub(in crate::tool) struct JobOutput(ToolSpec);

/// Ends a job.
pub(in crate::tool) struct JobKill(ToolSpec);

#[derive(Debug, Deserialize, JsonSchema)]
struct ListArguments {}

#[derive(Debug, Deserialize, JsonSchema)]
struct OutputArguments {
    /// The job's id.
    job_id: String,
    /// Wait until the job has ended.
    #[serde(default)]
    wait: Option<bool>,
    /// Longest wait in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 1, max = 600_000))]
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct KillArguments {
    /// The job's id.
    job_id: String,
}

impl JobList {
    pub(in crate::tool) fn new() -> Self {
        let description =
            "Lists the background jobs of this session: those that run and the last that ended.";
        Self(spec::<ListArguments>(LIST, description.to_owned()))
    }
}

impl JobOutput {
    pub(in crate::tool) fn new() -> Self {
        let description = format!(
            "Returns what a background job has written so far, and its status. With wait it waits for the job's end, at \
             most timeout_ms (default {WAIT_MS_DEFAULT})."
        );
        Self(spec::<OutputArguments>(OUTPUT, description))
    }

    async fn run(raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: OutputArguments = arguments::parse(OUTPUT, raw)?;
        let wait = wait_of(&arguments)?;
        let job = find(&arguments.job_id, context)?;
        let jobs = context.state.jobs();
        if let Some(wait) = wait {
            let _waiting = jobs.wait_for(&arguments.job_id);
            tokio::select! {
                biased;
                _ = job.ended() => jobs.heard(&arguments.job_id),
                () = context.cancel.cancelled() => {
                    return Err(ToolOutput::failed(Failed::Aborted, "the call was cancelled"));
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
        let ended = job.ended.borrow().clone();
        if let Some(ended) = ended {
            jobs.heard(&arguments.job_id);
            return Ok(ToolOutput::ok(ended.text.clone()));
        }
        let line = status_line(&job.about.job_id, RUNNING);
        // Its output has a file of its own once it is too long for memory; each look would make another.
        let composer = Composer { spool: None, ..job.composer.clone() };
        let text = composer
            .compose(
                &context.session,
                String::new(),
                job.view.as_ref().map(View::now).unwrap_or_default(),
                vec![line],
            )
            .await;
        Ok(ToolOutput::ok(text))
    }
}

impl JobKill {
    pub(in crate::tool) fn new() -> Self {
        let description = "Ends a background job with all that it started, and waits until it is gone.";
        Self(spec::<KillArguments>(KILL, description.to_owned()))
    }

    async fn run(raw: &str, context: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let arguments: KillArguments = arguments::parse(KILL, raw)?;
        let job = find(&arguments.job_id, context)?;
        let jobs = context.state.jobs();
        let _waiting = jobs.wait_for(&arguments.job_id);
        let had_ended = job.ended.borrow().is_some();
        job.kill(KILLED);
        let ended = job.ended().await;
        jobs.heard(&arguments.job_id);
        let id = &job.about.job_id;
        Ok(ToolOutput::ok(if had_ended {
            format!("Background job {id} had ended already: {}.", ended.summary())
        } else {
            format!("Killed background job {id}.")
        }))
    }
}

impl Tool for JobList {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self) -> Effect {
        Effect::Reads
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match arguments::parse::<ListArguments>(LIST, arguments) {
                Ok(ListArguments {}) => ToolOutput::ok(list(&context.state.jobs().all())),
                Err(failure) => failure,
            }
        })
    }
}

impl Tool for JobOutput {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self) -> Effect {
        Effect::Reads
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { Self::run(arguments, context).await.unwrap_or_else(|failure| failure) })
    }
}

impl Tool for JobKill {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self) -> Effect {
        Effect::Acts
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { Self::run(arguments, context).await.unwrap_or_else(|failure| failure) })
    }
}

fn spec<T: JsonSchema>(name: &str, description: String) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description, parameters: arguments::schema::<T>() }
}

fn find(job_id: &str, context: &ToolContext) -> Result<Job, ToolOutput> {
    context.state.jobs().get(job_id).ok_or_else(|| {
        let text = format!(
            "there is no background job \"{}\"; job_list shows those that there are",
            clip::line(job_id)
        );
        ToolOutput::failed(Failed::InvalidArguments, &text)
    })
}

fn wait_of(arguments: &OutputArguments) -> Result<Option<Duration>, ToolOutput> {
    let millis = arguments.timeout_ms.unwrap_or(WAIT_MS_DEFAULT);
    if !(1..=WAIT_MS_MAX).contains(&millis) {
        let what = format!("`timeout_ms`: expected 1 to {WAIT_MS_MAX} milliseconds, got {millis}");
        return Err(arguments::invalid(OUTPUT, &what));
    }
    Ok((arguments.wait == Some(true)).then(|| Duration::from_millis(millis)))
}

fn list(jobs: &[Job]) -> String {
    let mut text = String::new();
    for job in jobs {
        let seconds = now_ms().saturating_sub(job.about.started_at) / 1000;
        let status = match &*job.ended.borrow() {
            Some(ended) => ended.summary(),
            None => format!("{RUNNING} for {seconds} s"),
        };
        // Writing to a string never fails.
        let _ = writeln!(text, "{} [{status}] {}", job.about.job_id, job.about.label);
    }
    if text.is_empty() { "No background jobs.".to_owned() } else { text }
}

#[cfg(test)]
mod tests;
