//! Background jobs through their tools, with real processes.

use std::sync::{Arc, Mutex};

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::event::{EventBody, JobRegistered, JobStatus};
use crate::tool::{Notify, ToolState, Tools};

const SOON: Duration = Duration::from_secs(20);

/// What the session was told.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<(Vec<EventBody>, Option<String>)>>);

impl Notify for Told {
    fn tell(&self, events: Vec<EventBody>, text: Option<String>) {
        self.0.lock().unwrap().push((events, text));
    }
}

struct Bench {
    tools: Tools,
    context: ToolContext,
    told: Arc<Told>,
    _directory: tempfile::TempDir,
}

fn bench(change: impl FnOnce(&mut Config)) -> Bench {
    crate::process::adopt_orphans().unwrap();
    let mut config = Config::default();
    change(&mut config);
    let directory = tempfile::tempdir().unwrap();
    let told = Arc::new(Told::default());
    let mut context = ToolContext::of_test(directory.path().to_owned());
    context.state = Arc::new(ToolState::new(told.clone()));
    Bench { tools: Tools::new(&config), context, told, _directory: directory }
}

impl Bench {
    async fn call(&self, tool: &str, arguments: serde_json::Value) -> ToolOutput {
        let tool = self.tools.get(tool).unwrap();
        let call = async { tool.call(&arguments.to_string(), &self.context).await };
        tokio::time::timeout(SOON, call).await.unwrap()
    }

    async fn start(&self, command: &str) -> JobRegistered {
        let mut output = self.call("bash", json!({ "command": command, "run_in_background": true })).await;
        let Some(EventBody::JobRegistered(job)) = output.events.pop() else { panic!("{}", output.text) };
        assert_eq!(
            output.text,
            format!(
                "Started background job {}. You are told when it ends; job_output gives what it has written.",
                job.job_id
            )
        );
        assert!(output.meta.unwrap().get().contains(&format!("\"jobId\":\"{}\"", job.job_id)));
        self.context.state.jobs().logged(&self.context.call_id);
        job
    }

    async fn output(&self, job: &JobRegistered, wait: bool) -> String {
        let output = self.call(OUTPUT, json!({ "job_id": job.job_id, "wait": wait })).await;
        assert!(!output.is_error, "{}", output.text);
        output.text
    }

    /// What the session was told, once it was told of so many ends.
    async fn told(&self, count: usize) -> Vec<(crate::event::JobSettled, Option<String>)> {
        let enough = async {
            while self.told.0.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, enough).await.unwrap();
        let told = self.told.0.lock().unwrap().clone();
        let settled = |(mut events, text): (Vec<EventBody>, _)| match events.pop() {
            Some(EventBody::JobSettled(settled)) if events.is_empty() => (settled, text),
            other => panic!("{other:?}"),
        };
        told.into_iter().map(settled).collect()
    }
}

#[tokio::test]
async fn a_job_is_registered_runs_and_its_end_is_told_with_a_notice() {
    let bench = bench(|_| {});
    let job = bench.start("echo out; echo err >&2; exit 3").await;
    assert!(job.job_id.starts_with("bash-") && job.job_id.len() == 5 + 16, "{}", job.job_id);
    assert_eq!((job.kind.as_str(), job.owner.as_str()), ("bash", "s1"));
    assert_eq!(job.label, "echo out; echo err >&2; exit 3");
    let (settled, notice) = bench.told(1).await.pop().unwrap();
    assert_eq!((settled.job_id.as_str(), settled.status), (job.job_id.as_str(), JobStatus::Completed));
    assert_eq!(settled.detail.as_deref(), Some("exit code: 3"));
    assert_eq!((settled.started_at, settled.tool_call), (job.started_at, job.tool_call.clone()));
    assert!(settled.finished_at >= settled.started_at);
    let expected = format!(
        "Background job {} has ended: completed, exit code: 3.\nCommand: echo out; echo err >&2; exit 3\n\
         job_output gives what it has written.",
        job.job_id
    );
    assert_eq!(notice.unwrap(), expected);
    let text = format!("out\n[stderr]\nerr\n[job {}: completed, exit code: 3]", job.job_id);
    assert_eq!(bench.output(&job, false).await, text);
    assert_eq!(bench.context.state.jobs().running(), 0);
}

#[tokio::test]
async fn who_waits_for_a_job_hears_of_its_end_once() {
    let bench = bench(|_| {});
    let job = bench.start("sleep 0.2; echo done").await;
    let text = format!("done\n[job {}: completed, exit code: 0]", job.job_id);
    assert_eq!(bench.output(&job, true).await, text);
    let (settled, notice) = bench.told(1).await.pop().unwrap();
    assert_eq!((settled.status, notice), (JobStatus::Completed, None));
}

#[tokio::test]
async fn a_job_that_runs_shows_what_it_has_written_so_far() {
    let bench = bench(|_| {});
    let job = bench.start("echo early; sleep 600").await;
    let seen = format!("early\n[job {}: running]", job.job_id);
    let shown = async {
        while bench.output(&job, false).await != seen {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, shown).await.unwrap();
    let waited = bench.call(OUTPUT, json!({ "job_id": job.job_id, "wait": true, "timeout_ms": 20 })).await;
    assert_eq!(waited.text, seen);
    let listed = bench.call(LIST, json!({})).await.text;
    let line = format!("{} [running for ", job.job_id);
    assert!(listed.starts_with(&line) && listed.ends_with(" s] echo early; sleep 600\n"), "{listed}");
}

#[tokio::test]
async fn a_job_that_is_killed_is_gone_when_the_call_returns_and_wakes_nobody() {
    let bench = bench(|_| {});
    let job = bench.start("trap '' TERM; setsid sleep 600 & while :; do sleep 1; done").await;
    let killed = bench.call(KILL, json!({ "job_id": job.job_id })).await;
    assert_eq!(killed.text, format!("Killed background job {}.", job.job_id));
    assert!(bench.context.state.is_at_rest().await);
    let (settled, notice) = bench.told(1).await.pop().unwrap();
    assert_eq!((settled.status, settled.detail.as_deref()), (JobStatus::Killed, Some("killed by job_kill")));
    assert_eq!(notice, None);
    let again = bench.call(KILL, json!({ "job_id": job.job_id })).await;
    let expected = format!("Background job {} had ended already: killed, killed by job_kill.", job.job_id);
    assert_eq!(again.text, expected);
    let listed = bench.call(LIST, json!({})).await.text;
    assert!(listed.contains(" [killed, killed by job_kill] "), "{listed}");
}

#[tokio::test]
async fn a_job_may_have_a_limit_of_its_own() {
    let bench = bench(|_| {});
    let command = json!({ "command": "sleep 600", "run_in_background": true, "timeoutMs": 50 });
    let output = bench.call("bash", command).await;
    assert!(!output.is_error);
    bench.context.state.jobs().logged(&bench.context.call_id);
    let (settled, notice) = bench.told(1).await.pop().unwrap();
    assert_eq!((settled.status, settled.detail.as_deref()), (JobStatus::Killed, Some("timed out")));
    assert!(notice.is_some());
}

#[tokio::test]
async fn an_end_is_told_only_after_its_beginning_is_in_the_log() {
    let bench = bench(|_| {});
    let output = bench.call("bash", json!({ "command": "true", "run_in_background": true })).await;
    assert!(!output.is_error);
    let jobs = bench.context.state.jobs();
    let ended = async {
        while jobs.running() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, ended).await.unwrap();
    tokio::task::yield_now().await;
    assert!(bench.told.0.lock().unwrap().is_empty());
    jobs.logged(&bench.context.call_id);
    bench.told(1).await;
}

#[tokio::test]
async fn jobs_are_bounded_and_count_as_children() {
    let bench = bench(|config| {
        config.limits.jobs = 2;
        config.limits.children = 3;
    });
    let first = bench.start("sleep 600").await;
    bench.start("sleep 600").await;
    let third = bench.call("bash", json!({ "command": "sleep 600", "run_in_background": true })).await;
    assert!(third.is_error && third.text.contains("(limits.jobs)"), "{}", third.text);
    let places = &bench.tools.children.free;
    assert_eq!(places.available_permits(), 1);
    bench.call(KILL, json!({ "job_id": first.job_id })).await;
    assert_eq!(places.available_permits(), 2);
    bench.start("sleep 600").await;
}

#[tokio::test]
async fn the_end_of_the_session_ends_its_jobs() {
    let bench = bench(|_| {});
    let job = bench.start("echo early; sleep 600").await;
    let state = &bench.context.state;
    tokio::time::timeout(SOON, state.end("the session was closed", SOON)).await.unwrap();
    let settled = state.jobs().settled(&job.job_id).unwrap();
    assert_eq!(settled.status, JobStatus::Killed);
    assert_eq!(settled.detail.as_deref(), Some("the session was closed"));
    assert!(state.is_at_rest().await);
}

#[tokio::test]
async fn a_wait_for_a_job_ends_with_its_turn() {
    let bench = bench(|_| {});
    let job = bench.start("sleep 600").await;
    let (output, ()) =
        tokio::join!(bench.call(OUTPUT, json!({ "job_id": job.job_id, "wait": true })), async {
            bench.context.cancel.cancel();
        });
    assert_eq!(output.error.unwrap().code, "ABORTED");
    assert_eq!(bench.context.state.jobs().running(), 1);
}

#[tokio::test]
async fn wrong_arguments_are_told() {
    let bench = bench(|_| {});
    for tool in [OUTPUT, KILL] {
        let output = bench.call(tool, json!({ "job_id": "bash-0" })).await;
        assert_eq!(
            output.text,
            "Error: there is no background job \"bash-0\"; job_list shows those that there are"
        );
        assert_eq!(output.error.unwrap().code, "INVALID_ARGS");
    }
    let output = bench.call(OUTPUT, json!({ "job_id": "bash-0", "timeout_ms": 0 })).await;
    assert!(
        output.text.contains("`timeout_ms`: expected 1 to 600000 milliseconds, got 0"),
        "{}",
        output.text
    );
    assert_eq!(bench.call(LIST, json!({})).await.text, "No background jobs.");
}
