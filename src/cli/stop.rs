//! `dshd stop`: stops the daemon, by request and never by pid.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::sleep;

use super::discover::{CONNECT_TIMEOUT, Origin, Target, is_held};
use super::reach::{self, ANSWER_TIMEOUT, Start};
use super::{Failure, Globals, exit, human, output, refusal, tell};
use crate::client::{Stream, Trust};
use crate::config::Loaded;
use crate::protocol::{DrainParams, Empty, Method};

/// Arguments of `dshd stop`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd stop
  dshd stop --now
  dshd stop --deadline 5m")]
pub struct StopArgs {
    /// Cancel running turns at once
    #[arg(long, conflicts_with = "deadline")]
    pub now: bool,
    /// Running turns may take so long to finish [config: shutdown.drain_timeout]
    #[arg(long, value_name = "DUR", value_parser = crate::config::duration::parse)]
    pub deadline: Option<Duration>,
}

/// What a stopping daemon needs beyond its deadline: cancelling, flushing, unlinking.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// How often to look whether it is gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    /// Whether one was running.
    stopped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

pub(super) async fn run(args: StopArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    // A daemon of any version can be stopped; that is the way out of a version that does not fit.
    let mut greeted = match reach::greet(globals, &loaded, Start::Never, &reach::as_viewer()).await {
        Ok(greeted) => greeted,
        Err(failure) if failure.kind == refusal::NO_DAEMON => return tell_end(globals, None),
        Err(failure) => return Err(failure),
    };
    greeted.notifications.close();
    let deadline = if args.now { Some(Duration::ZERO) } else { args.deadline };
    let params = DrainParams { deadline_ms: deadline.map(human::whole_ms) };
    let asked = greeted.client.call_within::<_, Empty>(ANSWER_TIMEOUT, Method::Drain, &params).await;
    asked.map_err(|error| refusal::call(&greeted.target, error))?;
    let patience = deadline.unwrap_or(loaded.config.shutdown.drain_timeout) + END_TIMEOUT;
    let patience = globals.args.timeout.unwrap_or(patience);
    tell::remark(globals, "waiting for running turns to end");
    let target = greeted.target.clone();
    let trust = reach::trust(globals, &loaded)?;
    let ending = async {
        greeted.client.ended().await;
        until_gone(&target, &trust, &loaded).await;
    };
    if tokio::time::timeout(patience, ending).await.is_err() {
        let message = format!("dshd at {} is still stopping after {patience:?}", target.address);
        return Err(Failure::new(exit::REFUSED, "still_stopping", message).with_help("dshd stop --now"));
    }
    tell_end(globals, Some(target.address.to_string()))
}

/// Waits until nobody answers there, and the data directory is free for the next one.
async fn until_gone(target: &Target, trust: &Trust, loaded: &Loaded) {
    while Stream::open(&target.address, trust, CONNECT_TIMEOUT).await.is_ok() {
        sleep(LOOK_EVERY).await;
    }
    while target.origin == Origin::DaemonFile && is_held(&loaded.paths.data_dir) {
        sleep(LOOK_EVERY).await;
    }
}

fn tell_end(globals: &Globals, address: Option<String>) -> Result<u8, Failure> {
    let said = match &address {
        Some(address) => format!("stopped dshd at {address}\n"),
        None => "no dshd is running\n".to_owned(),
    };
    if globals.args.json {
        let document = Document { schema: "dshd.stop/1", stopped: address.is_some(), address };
        output::print_json(&document)?;
    } else if !globals.args.quiet {
        output::print(&said)?;
    }
    Ok(exit::OK)
}
