//! `dshd models --check`: asks each model for a word. No session is made, and the daemon takes no part.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::super::{Globals, human};
use super::{ANY, rows};
use crate::config::{Loaded, ProviderKind};
use crate::event::{Block, FailureCode, Message, Role, Source, SourceKind};
use crate::protocol::ModelsResult;
use crate::provider::registry::Providers;
use crate::provider::{BlockKind, ChunkSink, Enough, Images, ModelRequest};

/// The longest wait for one model, unless `--timeout` says another.
const PATIENCE: Duration = Duration::from_mins(1);

/// Room for a word, and for the thoughts before it.
const TOKENS_MAX: u64 = 2048;

/// How a model answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Check {
    provider: String,
    model: String,
    /// It said something.
    pub(super) ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    duration_ms: u64,
}

/// Asks every model that has a key, all at once.
pub(super) async fn all(models: &ModelsResult, globals: &Globals, loaded: &Loaded) -> Vec<Check> {
    let providers = Providers::of(loaded);
    let patience = globals.args.timeout.unwrap_or(PATIENCE);
    let is_scripted = |name: &str| {
        loaded.config.providers.get(name).is_some_and(|provider| provider.kind == ProviderKind::Scripted)
    };
    let ready = models.routes.iter().filter(|route| route.ready && !is_scripted(&route.provider));
    let asked = ready.flat_map(|route| {
        let named = rows(models, route).into_iter().map(|(name, _)| name).filter(|name| *name != ANY);
        named.map(|name| ask(&providers, &route.provider, name, patience))
    });
    join_all(asked).await
}

/// What a table says of a model.
pub(super) fn text(checks: &[Check], provider: &str, model: &str) -> String {
    let check = checks.iter().find(|check| check.provider == provider && check.model == model);
    match check {
        Some(check) if check.ok => format!("ok  {}", human::elapsed(check.duration_ms)),
        Some(check) => format!("failed: {}", check.message.as_deref().unwrap_or("for no known reason")),
        None => "not asked".to_owned(),
    }
}

/// Asks one model for a word. Says why it gave none.
///
/// # Errors
/// A sentence.
pub(in crate::cli) async fn one(
    providers: &Providers,
    provider: &str,
    model: &str,
    globals: &Globals,
) -> Result<(), String> {
    let asked = ask(providers, provider, model, globals.args.timeout.unwrap_or(PATIENCE)).await;
    asked.message.map_or(Ok(()), Err)
}

async fn ask(providers: &Providers, provider: &str, model: &str, patience: Duration) -> Check {
    let started = Instant::now();
    let outcome = match timeout(patience, call(providers, provider, model)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {patience:?}")),
    };
    Check {
        provider: provider.to_owned(),
        model: model.to_owned(),
        ok: outcome.is_ok(),
        message: outcome.err(),
        duration_ms: human::whole_ms(started.elapsed()),
    }
}

async fn call(providers: &Providers, provider: &str, model: &str) -> Result<(), String> {
    let adapter = providers.get(provider).map_err(|error| error.to_string())?;
    let content = vec![Block::text("Answer with the single word: ok")];
    let question = Message::new(Role::User, Source::of(SourceKind::User), content);
    let request = ModelRequest {
        images: Images::default(),
        model: model.to_owned(),
        abilities: providers.abilities(provider, model),
        messages: vec![Arc::new(question)],
        tools: Arc::from([]),
        max_tokens: Some(TOKENS_MAX),
        reasoning_effort: None,
        place: None,
    };
    let mut sink = Counted::default();
    adapter.call(&request, &mut sink).await.map_err(|error| {
        let failure = error.failure;
        match (failure.code, failure.status) {
            (FailureCode::Auth, Some(status)) => format!("the key was refused ({status})"),
            (_, Some(status)) => format!("{} ({status})", failure.message),
            (_, None) => failure.message,
        }
    })?;
    if sink.bytes == 0 { Err("it said nothing".to_owned()) } else { Ok(()) }
}

/// Counts what a model says.
#[derive(Debug, Default)]
struct Counted {
    blocks: u32,
    bytes: usize,
}

impl ChunkSink for Counted {
    fn start(&mut self, _kind: BlockKind) -> u32 {
        self.blocks += 1;
        self.blocks - 1
    }

    fn push(&mut self, _index: u32, text: &str) -> ControlFlow<Enough> {
        self.bytes += text.len();
        ControlFlow::Continue(())
    }

    fn name(&mut self, _index: u32, _id: &str, _name: &str) {}

    fn end(&mut self, _index: u32) {}
}
