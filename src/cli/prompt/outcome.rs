//! How a prompt ends for the user: the last line of `--json`, the file of `-o`, the exit code, the next step.

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::super::printer::Piece;
use super::super::reach::Reached;
use super::super::{Failure, Globals, exit, refusal, tell};
use super::drive::{Drive, Replied, ResultLine};
use super::screen::Stdout;
use super::turn::failure_of;
use super::{PromptArgs, save};
use crate::client::CallError;
use crate::config::{Loaded, ProviderKind};
use crate::event::{Failure as ModelFailure, FailureCode, SessionId, TurnEndReason};
use crate::protocol::{PromptParams, SettledStatus};
use crate::signal::SignalStream;

/// What is left to print when we leave, is given so long.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The turn has ended.
///
/// # Errors
/// When it did not end well, or the answer can't be written.
pub(super) async fn settled(
    drive: &mut Drive<'_>,
    replied: &Replied,
    prompt: &PromptParams,
    args: &PromptArgs,
    loaded: &Loaded,
) -> Result<u8, Failure> {
    let status = replied.status.unwrap_or(SettledStatus::Error);
    drive.finish(status == SettledStatus::Ok);
    if drive.screen.style().stdout == Stdout::Json {
        let line = ResultLine {
            kind: "result",
            session_id: prompt.session_id.as_str(),
            status: word(status),
            reason: replied.reason.as_deref(),
            text: drive.turn.text(),
            usage: drive.turn.usage(),
            duration_ms: drive.screen.elapsed_ms(),
            scripted: drive.turn.provider().is_some_and(|provider| is_scripted(provider, loaded)),
        };
        let line = json(&line)?;
        drive.show(|_, pieces| pieces.push(Piece::Out(line)));
    }
    drive.flush().await;
    if let Some(path) = &args.output {
        save_answer(path, drive.turn.text())?;
    }
    match (status, drive.signals.first_stop()) {
        (SettledStatus::Ok, _) => Ok(exit::OK),
        (SettledStatus::Aborted, Some(signal)) => Ok(exit::of_signal(signal)),
        (SettledStatus::Aborted | SettledStatus::Error, _) => Err(ended_badly(drive, prompt, loaded)),
    }
}

fn word(status: SettledStatus) -> &'static str {
    match status {
        SettledStatus::Ok => "ok",
        SettledStatus::Aborted => "aborted",
        SettledStatus::Error => "error",
    }
}

/// The turn goes on without us: detached, or the time is over.
///
/// # Errors
/// When the line can't be written.
pub(super) async fn goes_on(
    drive: &mut Drive<'_>,
    prompt: &PromptParams,
    args: &PromptArgs,
    globals: &Globals,
) -> Result<u8, Failure> {
    let session = &prompt.session_id;
    if drive.screen.style().stdout == Stdout::Json {
        let line = ResultLine {
            kind: "result",
            session_id: session.as_str(),
            status: "running",
            reason: None,
            text: drive.turn.text(),
            usage: drive.turn.usage(),
            duration_ms: drive.screen.elapsed_ms(),
            scripted: false,
        };
        let line = json(&line)?;
        drive.show(|_, pieces| pieces.push(Piece::Out(line)));
    } else if args.detach {
        let line = format!("{session}\n").into_bytes();
        drive.show(|_, pieces| pieces.push(Piece::Out(line)));
    }
    drive.show(super::screen::Screen::break_line);
    // A pager that does not read must not make a deadline longer.
    if timeout(LAST_WORDS, drive.flush()).await.is_err() {
        tell::warn("not all of the text could be written");
    }
    if !globals.args.quiet && !globals.args.json {
        tell::say(&format!("still running: dshd log -f {session}, or dshd cancel {session}"));
    }
    Ok(exit::STILL_RUNNING)
}

/// The daemon refused the prompt, or the connection was lost.
///
/// # Errors
/// Always.
pub(super) async fn refused(
    drive: &mut Drive<'_>,
    prompt: &PromptParams,
    error: CallError,
) -> Result<u8, Failure> {
    drive.finish(false);
    drive.flush().await;
    let was_accepted = drive.turn.message_id().is_some();
    let mut failure = refusal::call(&drive.reached.target, error);
    if was_accepted && failure.kind == "connection_lost" {
        failure.help = Some(format!("the prompt is in session {}: dshd log {0}", prompt.session_id));
    }
    Err(failure)
}

/// The user did not want to wait.
pub(super) fn left(signals: &SignalStream) -> u8 {
    signals.first_stop().map_or(exit::STILL_RUNNING, exit::of_signal)
}

fn json(line: &ResultLine<'_>) -> Result<Vec<u8>, Failure> {
    let mut bytes = serde_json::to_vec(line)
        .map_err(|error| Failure::bug(format!("cannot write the result as JSON: {error}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn save_answer(path: &Path, text: &str) -> Result<(), Failure> {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    save::save(path, &format!("{text}{end}"))
}

/// Whether a provider calls no model, as far as the configuration here says.
fn is_scripted(provider: &str, loaded: &Loaded) -> bool {
    let kind = loaded.config.providers.get(provider).map(|provider| provider.kind);
    provider == "scripted" || kind == Some(ProviderKind::Scripted)
}

fn ended_badly(drive: &Drive<'_>, prompt: &PromptParams, loaded: &Loaded) -> Failure {
    let session = &prompt.session_id;
    let kept = format!("session {session} is kept: dshd prompt -s {session} …");
    let refused = |kind: &'static str, message: &str| Failure::new(exit::REFUSED, kind, message);
    let failure = ended(drive, &kept, session, loaded, refused);
    Failure { code: if drive.turn.is_denied() { exit::APPROVAL } else { failure.code }, ..failure }
}

fn ended(
    drive: &Drive<'_>,
    kept: &str,
    session: &SessionId,
    loaded: &Loaded,
    refused: impl Fn(&'static str, &str) -> Failure,
) -> Failure {
    match drive.turn.reason() {
        Some(reason @ TurnEndReason::Error { .. }) => match failure_of(reason) {
            Some(failure) => model_failed(failure, drive.turn.provider(), kept, loaded),
            None => refused("error", "the turn failed").with_help(kept),
        },
        Some(TurnEndReason::MaxTokens) => {
            refused("max_tokens", "the answer was cut at the model's output limit").with_help(kept)
        }
        Some(TurnEndReason::Blocked) => {
            refused("blocked", "the provider's filter stopped the answer").with_help(kept)
        }
        Some(TurnEndReason::Aborted { .. }) => {
            refused("aborted", "the turn was cancelled, not from here").with_help(kept)
        }
        Some(TurnEndReason::Interrupted) => {
            refused("interrupted", "the daemon ended in the middle of the turn").with_help(kept)
        }
        Some(TurnEndReason::Completed) | None => {
            refused("error", "the turn did not end well").with_help(format!("dshd log {session}; {kept}"))
        }
    }
}

/// `the model refused the key (401, provider deepseek)`.
fn model_failed(failure: &ModelFailure, provider: Option<&str>, kept: &str, loaded: &Loaded) -> Failure {
    let provider = provider.unwrap_or("unknown");
    let facts = match failure.status {
        Some(status) => format!("{status}, provider {provider}"),
        None => format!("provider {provider}"),
    };
    let variable = loaded.config.providers.get(provider).and_then(|provider| provider.api_key_env.as_deref());
    let login = match variable {
        Some(variable) => format!("dshd login {provider}, or set {variable}; {kept}"),
        None => format!("dshd login {provider}; {kept}"),
    };
    let (what, help) = match failure.code {
        FailureCode::Auth => ("the model refused the key".to_owned(), login),
        FailureCode::MissingCredential => ("no key is set".to_owned(), login),
        FailureCode::Quota => {
            ("the balance is empty".to_owned(), format!("top it up with {provider}, then: {kept}"))
        }
        FailureCode::RateLimit => {
            ("the provider has too many requests".to_owned(), format!("try again in a while; {kept}"))
        }
        FailureCode::ContextWindowExceeded
        | FailureCode::InvalidRequest
        | FailureCode::Server
        | FailureCode::Timeout
        | FailureCode::Transport
        | FailureCode::EmptyResponse
        | FailureCode::MalformedResponse
        | FailureCode::UnsupportedContent
        | FailureCode::Aborted
        | FailureCode::MaxSteps
        | FailureCode::RepeatedCall
        | FailureCode::Budget
        | FailureCode::StorageFull
        | FailureCode::Unknown
        | FailureCode::Http(_) => (refusal::sentence(&failure.message), kept.to_owned()),
    };
    let kind = failure.code.as_text().into_owned();
    Failure::new(exit::REFUSED, kind, format!("{what} ({facts})")).with_help(help)
}

/// A key that is set here, and in no daemon that was started before: the provider and its variable.
fn key_here<'a>(globals: &Globals, loaded: &'a Loaded) -> Option<(&'a str, &'a str)> {
    loaded.config.providers.iter().find_map(|(name, provider)| {
        let variable = provider.api_key_env.as_deref()?;
        globals.environment.get(variable).map(|_| (name.as_str(), variable))
    })
}

/// Whether the daemon has no key although this shell has one: the provider and its variable.
pub(super) fn key_trap<'a>(
    reached: &Reached,
    args: &PromptArgs,
    globals: &Globals,
    loaded: &'a Loaded,
) -> Option<(&'a str, &'a str)> {
    let was_asked_for = args.model.is_some() || loaded.config.default_provider.as_deref() == Some("scripted");
    if was_asked_for || reached.hello.route.provider != "scripted" {
        return None;
    }
    key_here(globals, loaded)
}

/// Says so, since nobody expects it.
pub(super) fn tell_key_trap(reached: &Reached, args: &PromptArgs, globals: &Globals, loaded: &Loaded) {
    if let Some((provider, variable)) = key_trap(reached, args, globals, loaded) {
        tell::warn(&format!("{variable} is set here, but the daemon, which was started before, has no key"));
        tell::help(&login_by_stdin(provider, variable));
    }
}

/// Adds to a refused route what the shell has and the daemon has not.
pub(super) fn with_key_hint(
    failure: Failure,
    args: &PromptArgs,
    globals: &Globals,
    loaded: &Loaded,
) -> Failure {
    let named = args.model.as_deref().and_then(|model| model.split_once('/')).map(|(provider, _)| provider);
    let variable = named
        .and_then(|name| loaded.config.providers.get(name))
        .and_then(|provider| provider.api_key_env.as_deref())
        .filter(|variable| globals.environment.get(variable).is_some());
    match (failure.kind.as_ref(), named, variable) {
        ("provider_unavailable", Some(provider), Some(variable)) => {
            failure.with_help(login_by_stdin(provider, variable))
        }
        (_, _, _) => failure,
    }
}

fn login_by_stdin(provider: &str, variable: &str) -> String {
    format!("dshd login {provider} --key-stdin <<<\"${variable}\"")
}
