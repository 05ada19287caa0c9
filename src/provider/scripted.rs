//! Models that are no models: a script file played word for word, or the built-in script that lists the directory and
//! says that no model was called. docs/scripted.md is the format's page.

mod builtin;
mod play;
mod script;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;

use self::script::{Place, Script, ScriptError};
use super::{CallError, ChunkSink, Completion, ModelRequest, Provider, Retry};
use crate::config::ProviderConfig;
use crate::event::{Failure, FailureCode, Message, MessageId, Role, SourceKind};

/// Steps whose attempts are counted.
const COUNTED_MAX: usize = 64;

/// Plays scripts.
pub(super) struct Scripted {
    path: Option<PathBuf>,
    /// Whether any provider has a key: decides what the built-in script says.
    keyless: bool,
    attempts: Mutex<Vec<(Option<MessageId>, u32, u32)>>,
}

impl Scripted {
    pub(super) fn new(config: &ProviderConfig, keyless: bool) -> Self {
        Self { path: config.script.clone(), keyless, attempts: Mutex::new(Vec::new()) }
    }

    async fn answer(
        &self,
        request: &ModelRequest,
        sink: &mut dyn ChunkSink,
    ) -> Result<Completion, CallError> {
        let answer = match &self.path {
            None => builtin::answer(request, self.keyless),
            Some(path) => {
                let text = tokio::fs::read_to_string(path).await.map_err(|error| {
                    refused(format!("the script {} can't be read: {error}", path.display()))
                })?;
                let told = |error: ScriptError| refused(format!("the script {}, {error}", path.display()));
                let script = Script::parse(&text).map_err(told)?;
                script.choose(&self.place(request)).map_err(told)?
            }
        };
        play::play(&answer, sink).await
    }

    /// Where in its session a call is, and for which time it is made.
    fn place(&self, request: &ModelRequest) -> Place {
        let messages = request.messages.as_slice();
        let prompt = messages.iter().rposition(|message| message.source.kind == SourceKind::User);
        let is_prompt = |message: &&std::sync::Arc<Message>| message.source.kind == SourceKind::User;
        let turn = messages.iter().filter(is_prompt).count();
        let since = &messages[prompt.map_or(0, |at| at + 1)..];
        let answers = since.iter().filter(|message| message.role == Role::Assistant).count();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        // A conversation that was shortened does not tell how long it has been.
        let counted = (count(turn), count(answers).saturating_add(1));
        let (turn, step) = request.place.as_ref().map_or(counted, |place| (place.turn, place.step));
        let id = prompt.map(|at| messages[at].id.clone());
        let attempt = self.count(id, step);
        let prompt = prompt.map_or_else(String::new, |at| messages[at].text());
        Place { turn, step, attempt, prompt }
    }

    fn count(&self, prompt: Option<MessageId>, step: u32) -> u32 {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, count)) = attempts.iter_mut().find(|(id, at, _)| *id == prompt && *at == step) {
            *count = count.saturating_add(1);
            return *count;
        }
        if attempts.len() == COUNTED_MAX {
            attempts.remove(0);
        }
        attempts.push((prompt, step, 1));
        1
    }
}

impl Provider for Scripted {
    fn call<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a mut dyn ChunkSink,
    ) -> BoxFuture<'a, Result<Completion, CallError>> {
        Box::pin(self.answer(request, sink))
    }
}

fn refused(what: String) -> CallError {
    CallError { failure: Failure::new(FailureCode::InvalidRequest, what), retry: Retry::Never }
}

#[cfg(test)]
mod tests;
