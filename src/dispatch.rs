//! The one match on the method, and the guard that turns a panic into a reply.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::auth::Scope;
use crate::handler::caller::Caller;
use crate::handler::{self, Outcome, Started};
use crate::protocol::{Empty, Method};
use crate::rpc::{ErrorKind, RpcError, parse_params};

/// Takes a request up: checks whether it may be served, reads its parameters, starts it. Never panics.
pub fn start(caller: &Arc<Caller>, method: Method, params: Option<&RawValue>) -> Started {
    let started = catch_unwind(AssertUnwindSafe(|| {
        allowed(caller, method)?;
        serve(caller, method, params)
    }));
    match started {
        Ok(Ok(started)) => started,
        Ok(Err(error)) => Started::Now(Err(error)),
        Err(_) => Started::Now(Err(handler::incident())),
    }
}

/// Awaits what a request waits for. Never panics.
///
/// # Errors
/// What the request came to.
pub async fn guarded(future: BoxFuture<'static, Result<Outcome, RpcError>>) -> Result<Outcome, RpcError> {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => Err(handler::incident()),
    }
}

fn allowed(caller: &Caller, method: Method) -> Result<(), RpcError> {
    if !method.before_initialize() {
        caller.bound()?;
    }
    if method.needs_control() && !caller.scope.allows(Scope::Control) {
        let message = format!("{} needs the scope control; this token has {}", method.name(), caller.scope);
        return Err(RpcError::new(ErrorKind::PermissionDenied, message).with("scope", &Scope::Control));
    }
    Ok(())
}

fn serve(caller: &Arc<Caller>, method: Method, params: Option<&RawValue>) -> Result<Started, RpcError> {
    match method {
        Method::Authenticate | Method::Ping => with(params, |_: Empty| Ok(Started::now(&Empty {}))),
        Method::Initialize => with(params, |params| handler::initialize::start(caller, params)),
        Method::Prompt => with(params, |params| handler::prompt::start(caller, params)),
        Method::Cancel => with(params, |params| handler::cancel::start(caller, params)),
        Method::Create => with(params, |params| handler::create::start(caller, params)),
        Method::Resume => with(params, |params| handler::resume::start(caller, params)),
        Method::Update => with(params, |params| handler::update::start(caller, params)),
        Method::Subscribe => with(params, |params| handler::subscribe::start(caller, params)),
        Method::Unsubscribe => with(params, |params| handler::subscribe::stop(caller, params)),
        Method::Read => with(params, |params| handler::read::start(caller, &params)),
        Method::List => with(params, |params| handler::list::start(caller, params)),
        Method::Queue => with(params, |params| handler::queue::start(caller, &params)),
        Method::Blob => with(params, |params| handler::blob::start(caller, &params)),
        Method::Wait => with(params, |params| handler::wait::start(caller, &params)),
        Method::Close => with(params, |params| handler::close::start(caller, &params)),
        Method::Delete => with(params, |params| handler::delete::start(caller, &params)),
        Method::GetDirectory => with(params, |params| handler::directory::get(caller, &params)),
        Method::SetDirectory => with(params, |params| handler::directory::set(caller, params)),
        Method::Answer => with(params, |params| handler::approval::answer(caller, params)),
        Method::Rules => with(params, |params| handler::approval::rules(caller, params)),
        Method::Models => with(params, |_: Empty| Ok(handler::models::start(caller))),
        Method::Status => with(params, |_: Empty| handler::status::start(caller)),
        Method::Drain => with(params, |params| Ok(handler::drain::start(caller, params))),
        Method::Shutdown => with(params, |_: Empty| Ok(handler::shutdown::start(caller))),
    }
}

fn with<P: DeserializeOwned>(
    params: Option<&RawValue>,
    start: impl FnOnce(P) -> Result<Started, RpcError>,
) -> Result<Started, RpcError> {
    start(parse_params(params)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::event::{PermissionMode, SessionId};
    use crate::handler::caller::Defaults;
    use crate::handler::follow::{Begin, Follow, TooMany, Turn};
    use crate::handler::testing::House;
    use crate::session::feed::{Framing, SharedFeed};

    /// A connection that follows nothing, or that has a bug.
    struct Deaf {
        panics: bool,
    }

    impl Follow for Deaf {
        fn turn(&self, _session: &SessionId) -> Turn {
            assert!(!self.panics, "on purpose");
            Turn::after(None).0
        }

        fn follows(&self, _feed: &SharedFeed, _pin: bool) -> bool {
            false
        }

        fn has_place(&self, _session: &SessionId) -> Result<(), TooMany> {
            Ok(())
        }

        fn begin(&self, _begin: Begin) {}

        fn answers(&self) {}
        fn begin_all(&self, _deltas: bool) {}

        fn stop<'a>(&'a self, _session: &'a SessionId) -> BoxFuture<'a, bool> {
            Box::pin(async { false })
        }

        fn stop_all(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    fn caller(scope: Scope, panics: bool) -> Arc<Caller> {
        let framing = Framing { prefix: |_, _| Vec::new(), suffix: b"\n" };
        let house = House::new("", framing, |_| {});
        let caller = Caller::new(
            house.shared,
            Defaults::sockets(),
            1,
            (scope, PermissionMode::FullAccess),
            Arc::new(Deaf { panics }),
        );
        Arc::new(caller)
    }

    async fn kind(caller: &Arc<Caller>, method: Method, params: &str) -> Option<ErrorKind> {
        let params: Box<RawValue> = serde_json::from_str(params).unwrap();
        let outcome = match start(caller, method, Some(&params)) {
            Started::Now(outcome) => outcome,
            Started::Later(future) => {
                tokio::time::timeout(Duration::from_secs(10), guarded(future)).await.unwrap()
            }
        };
        outcome.err().map(|error| error.kind)
    }

    #[tokio::test]
    async fn nothing_but_the_first_requests_is_served_before_initialize() {
        let caller = caller(Scope::Control, false);
        for &method in Method::ALL.iter().filter(|method| !method.before_initialize()) {
            let kind = kind(&caller, method, "{}").await;
            assert_eq!(kind, Some(ErrorKind::NotInitialized), "{}", method.name());
        }
        assert_eq!(kind(&caller, Method::Ping, "{}").await, None);
    }

    #[tokio::test]
    async fn who_may_only_observe_changes_nothing() {
        let caller = caller(Scope::Observe, false);
        assert_eq!(
            kind(&caller, Method::Initialize, r#"{"sessions":"all"}"#).await,
            Some(ErrorKind::PermissionDenied)
        );
        assert_eq!(kind(&caller, Method::Initialize, "{}").await, None);
        for &method in Method::ALL.iter().filter(|method| method.needs_control()) {
            let kind = kind(&caller, method, "{}").await;
            assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{}", method.name());
        }
        assert_eq!(kind(&caller, Method::List, "{}").await, None);
    }

    #[tokio::test]
    async fn a_panic_is_answered() {
        let caller = caller(Scope::Control, true);
        assert_eq!(kind(&caller, Method::Initialize, "{}").await, None);
        let params = r#"{"sessionId":"s"}"#;
        assert_eq!(kind(&caller, Method::Unsubscribe, params).await, Some(ErrorKind::Internal));
        let late: BoxFuture<'static, _> = Box::pin(async { panic!("on purpose") });
        assert_eq!(guarded(late).await.err().map(|error| error.kind), Some(ErrorKind::Internal));
    }

    #[tokio::test]
    async fn wrong_parameters_are_named() {
        let caller = caller(Scope::Control, false);
        let wrong = [
            (Method::Initialize, r#"{"cwd":"relative"}"#),
            (Method::Initialize, r#"{"cwd":"/there/is/nothing/here"}"#),
            (Method::Initialize, r#"{"maxTokens":0}"#),
        ];
        for (method, params) in wrong {
            assert_eq!(kind(&caller, method, params).await, Some(ErrorKind::InvalidParams), "{params}");
        }
        assert_eq!(kind(&caller, Method::Initialize, "{}").await, None, "what was wrong bound nothing");
        assert_eq!(kind(&caller, Method::Initialize, "{}").await, Some(ErrorKind::AlreadyInitialized));
        let wrong = [
            (Method::Prompt, r#"{"sessionId":"s","contentBlocks":[]}"#),
            (Method::Prompt, r#"{"sessionId":"","contentBlocks":[{"type":"text","text":"x"}]}"#),
            (Method::Prompt, r#"{"sessionId":"s","contentBlocks":[{"type":"text","text":"x"}]}"#),
            (Method::Subscribe, r#"{"sessionId":"s","since":4}"#),
            (Method::Read, r#"{"sessionId":"s","limit":1001}"#),
            (Method::List, r#"{"cursor":"nonsense"}"#),
            (Method::SetDirectory, r#"{"sessionId":"s","path":""}"#),
        ];
        for (method, params) in wrong {
            assert_eq!(kind(&caller, method, params).await, Some(ErrorKind::InvalidParams), "{params}");
        }
    }
}
