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
        Method::Subscribe => with(params, |params| handler::subscribe::start(caller, params)),
        Method::Unsubscribe => with(params, |params| handler::subscribe::stop(caller, params)),
        Method::Read => with(params, |params| handler::read::start(caller, &params)),
        Method::List => with(params, |params| handler::list::start(caller, params)),
        Method::Queue => with(params, |params| handler::queue::start(caller, &params)),
        Method::Wait => with(params, |params| handler::wait::start(caller, &params)),
        Method::Close => with(params, |params| handler::close::start(caller, &params)),
        Method::GetDirectory => with(params, |params| handler::directory::get(caller, &params)),
        Method::SetDirectory => with(params, |params| handler::directory::set(caller, params)),
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
