//! `authenticate` and `initialize`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroize as _;

use super::{Amount, Mode, PositiveInt};

/// What `initialize` says the server is; official clients compare it.
pub const SERVER_NAME: &str = "deepseek-harness-sdk-runtime";

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// Parameters of `authenticate`.
#[derive(Clone, Serialize, Deserialize)]
pub struct AuthenticateParams {
    /// The secret.
    pub token: String,
}

impl Drop for AuthenticateParams {
    fn drop(&mut self) {
        self.token.zeroize();
    }
}

impl std::fmt::Debug for AuthenticateParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthenticateParams { token: … }")
    }
}

/// When a prompt is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Completion {
    /// When its turn has ended.
    Settled,
    /// When it is on stable storage.
    Receipt,
}

/// What becomes of a prompt while a turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenBusy {
    /// Refused.
    Reject,
    /// Its own turn, later.
    Queue,
    /// Into the running turn.
    Steer,
}

/// Whose events a connection hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionScope {
    /// Of the sessions that it touched.
    Own,
    /// Of every session.
    All,
}

/// What becomes of a connection's turns when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// They go on.
    Keep,
    /// They are cancelled.
    Abort,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Parameters of `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// Directory of the sessions that it makes, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Provider of the sessions that it makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model of the sessions that it makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Output limit in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<PositiveInt>,
    /// How hard to think.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// When prompts are answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
    /// What becomes of prompts while a turn runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_busy: Option<WhenBusy>,
    /// Whose events it hears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionScope>,
    /// Whether it wants text while it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deltas: Option<bool>,
    /// Whether it can answer approvals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<bool>,
    /// What its agents may touch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<Mode>,
    /// Tokens that each session that it makes may use; 0: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_tokens: Option<u64>,
    /// What each may cost, in the provider's currency; 0: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_cost: Option<Amount>,
    /// What becomes of its turns when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// Who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
}

/// What answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// [`SERVER_NAME`].
    pub name: String,
    /// Ours.
    pub version: String,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteInfo {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
}

/// Result of `initialize`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// What answers.
    pub server_info: ServerInfo,
    /// [`VERSION`].
    #[serde(default)]
    pub protocol_version: u32,
    /// What this server can do beyond the protocol it is compatible with.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// `[limits]` that a client may want to know, by name.
    pub limits: Box<RawValue>,
    /// Names this connection in `server/status` and in logs.
    pub connection_id: String,
    /// Where the sessions that it makes go.
    pub route: RouteInfo,
}
