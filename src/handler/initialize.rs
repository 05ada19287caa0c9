//! `initialize`: binds directory, route and manners to this connection alone.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::to_raw_value;

use super::caller::{Bound, Caller};
use super::{Outcome, Started, invalid};
use crate::auth::Scope;
use crate::config::Limits;
use crate::event::PermissionMode;
use crate::protocol::{
    Amount, InitializeParams, InitializeResult, RouteInfo, SERVER_NAME, ServerInfo, SessionScope, VERSION,
};
use crate::rpc::{ErrorKind, RpcError};
use crate::session::Budget;

/// What this server can do beyond the protocol that it is compatible with.
const CAPABILITIES: &[&str] = &[
    "session/cancel",
    "session/update",
    "steer",
    "budgets",
    "session/create",
    "session/resume",
    "session/subscribe",
    "session/read",
    "session/list",
    "session/queue",
    "session/blob",
    "images",
    "session/wait",
    "session/close",
    "subagents",
    "deltas",
    "idempotency-keys",
    "approvals",
];

/// `[limits]` that a client may want to know.
#[derive(Serialize)]
struct LimitsInfo {
    line_bytes: usize,
    in_flight: usize,
    outbound_bytes: usize,
    subscriptions: usize,
    event_bytes: usize,
    message_bytes: usize,
    image_bytes: usize,
}

/// Serves it at once: a request behind it sees an initialized connection.
///
/// # Errors
/// `invalid_params`, `provider_unavailable`, `permission_denied`, `already_initialized`.
pub fn start(caller: &Arc<Caller>, params: InitializeParams) -> Result<Started, RpcError> {
    if caller.bound().is_ok() {
        return Err(RpcError::new(ErrorKind::AlreadyInitialized, "this connection is initialized already"));
    }
    let defaults = caller.defaults;
    let sessions = params.sessions.unwrap_or(match caller.scope {
        Scope::Control => defaults.sessions,
        Scope::Observe => SessionScope::Own,
    });
    if sessions == SessionScope::All && !caller.scope.allows(Scope::Control) {
        let message = "sessions \"all\" needs the scope control";
        return Err(RpcError::new(ErrorKind::PermissionDenied, message).with("scope", &Scope::Control));
    }
    let cwd = params.cwd.as_deref().map(directory).transpose()?;
    let (provider, model) =
        caller.shared.runtime.route(params.provider.as_deref(), params.model.as_deref())?;
    let bound = Bound {
        cwd,
        provider,
        model,
        max_tokens: params.max_tokens.map(|tokens| tokens.0),
        reasoning_effort: params.reasoning_effort,
        permission_mode: caller.allowed_mode(params.permission_mode)?,
        budget: budget(params.budget_tokens, params.budget_cost),
        completion: params.completion.unwrap_or(defaults.completion),
        when_busy: params.when_busy.unwrap_or(defaults.when_busy),
        deltas: params.deltas.unwrap_or(defaults.deltas),
        on_disconnect: params.on_disconnect.unwrap_or(defaults.on_disconnect),
        client: params.client,
    };
    let limits = limits(caller, &caller.shared.config.borrow().limits)?;
    let result = InitializeResult {
        server_info: ServerInfo {
            name: SERVER_NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        protocol_version: VERSION,
        capabilities: CAPABILITIES.iter().map(|&name| name.to_owned()).collect(),
        limits,
        connection_id: super::connection_id(caller.connection),
        route: RouteInfo { provider: bound.provider.clone(), model: bound.model.clone() },
    };
    // Who could reject only is nobody to wait for.
    let may_allow = caller.scope.allows(Scope::Control) && caller.mode_max() == PermissionMode::FullAccess;
    if params.approvals == Some(true) && may_allow {
        caller.follows.answers();
    }
    let (deltas, outcome) = (bound.deltas, Outcome::of(&result)?);
    caller.bind(bound)?;
    if sessions == SessionScope::All {
        caller.follows.begin_all(deltas);
    }
    Ok(Started::Now(Ok(outcome)))
}

/// A budget that a client names.
pub(super) fn budget(tokens: Option<u64>, cost: Option<Amount>) -> Budget {
    Budget { tokens, cost: cost.map(|amount| amount.0) }
}

/// A directory that a client names: absolute and there.
///
/// # Errors
/// `invalid_params`.
pub(super) fn directory(text: &str) -> Result<PathBuf, RpcError> {
    let path = PathBuf::from(text);
    if !path.is_absolute() {
        return Err(invalid("cwd", &format!("expected an absolute path, got {text:?}")));
    }
    match path.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(invalid("cwd", &format!("{text} is not a directory"))),
        Err(error) => Err(invalid("cwd", &format!("{text} can't be used: {error}"))),
    }
}

fn limits(caller: &Caller, limits: &Limits) -> Result<Box<serde_json::value::RawValue>, RpcError> {
    let info = LimitsInfo {
        line_bytes: limits.line_bytes.bytes(),
        in_flight: limits.in_flight.max(caller.defaults.in_flight_min),
        outbound_bytes: limits.outbound_bytes.bytes(),
        subscriptions: limits.subscriptions,
        event_bytes: limits.event_bytes.bytes(),
        message_bytes: limits.message_bytes.bytes(),
        image_bytes: limits.image_bytes.bytes(),
    };
    to_raw_value(&info).map_err(|error| RpcError::new(ErrorKind::Internal, error.to_string()))
}
