//! From a command to a daemon that has said hello: found or started, authenticated, of a version that we understand.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::discover::{self, CONNECT_TIMEOUT, Origin, Search, Target};
use super::{Failure, Globals, autostart, exit, refusal, tell};
use crate::auth::certificate::PinError;
use crate::client::{CallError, Client, Notifications, Stream, Trust};
use crate::config::Loaded;
use crate::protocol::{ClientInfo, InitializeParams, InitializeResult, Method, ServerInfo, VERSION};

/// A daemon that takes connections answers a short request within this, or is stuck.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A file with a token is small, in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Whether a daemon is started when none is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Never.
    Never,
    /// When the address was not named, and nothing forbids it.
    WhenNeeded,
}

impl Start {
    /// As the flag, the environment and the configuration of a command that needs a session allow.
    pub(super) fn allowed(no_autostart: bool, globals: &Globals, loaded: &Loaded) -> Self {
        let is_off = no_autostart
            || globals
                .environment
                .get("DSHD_AUTOSTART")
                .is_some_and(|value| value == "0" || value == "false")
            || !loaded.config.client.autostart;
        if is_off { Self::Never } else { Self::WhenNeeded }
    }
}

/// A daemon that has said hello.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) client: Client,
    pub(super) notifications: Notifications,
    pub(super) target: Target,
    pub(super) hello: InitializeResult,
    /// `--timeout`, when it was given.
    timeout: Option<Duration>,
}

impl Reached {
    /// Calls a method that is answered soon.
    ///
    /// # Errors
    /// For the user.
    pub(super) async fn call<P, R>(&self, method: Method, params: &P) -> Result<R, Failure>
    where
        P: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let patience = self.timeout.unwrap_or(ANSWER_TIMEOUT);
        let called = self.client.call_within(patience, method, params).await;
        called.map_err(|error| refusal::call(&self.target, error))
    }

    /// Calls a method that may take as long as it takes, unless `--timeout` says how long.
    ///
    /// # Errors
    /// For the user.
    pub(super) async fn call_patiently<P, R>(&self, method: Method, params: &P) -> Result<R, Failure>
    where
        P: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let called = match self.timeout {
            Some(timeout) => self.client.call_within(timeout, method, params).await,
            None => self.client.call(method, params).await,
        };
        called.map_err(|error| refusal::call(&self.target, error))
    }

    /// Whether the daemon was found on this machine, and not named.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.target.origin, Origin::DaemonFile | Origin::UserSocket | Origin::SystemSocket)
    }
}

/// What a command that creates no session says in `initialize`.
pub(super) fn as_viewer() -> InitializeParams {
    InitializeParams { deltas: Some(false), client: Some(ourselves()), ..InitializeParams::default() }
}

/// Who we are.
pub(super) fn ourselves() -> ClientInfo {
    ClientInfo { name: "dshd".to_owned(), version: Some(env!("CARGO_PKG_VERSION").to_owned()) }
}

/// Opens a stream to the daemon, on which nothing was said yet.
///
/// # Errors
/// For the user; `kind` is [`refusal::NO_DAEMON`] when there is none.
pub(super) async fn stream(
    globals: &Globals,
    loaded: &Loaded,
    start: Start,
) -> Result<(Target, Stream), Failure> {
    if let Some(target) = discover::named(globals, loaded)? {
        return match Stream::open(&target.address, &trust(globals, loaded)?, CONNECT_TIMEOUT).await {
            Ok(stream) => Ok((target, stream)),
            Err(error) => Err(refusal::connect(&target, error, loaded)),
        };
    }
    match discover::search(globals, loaded).await {
        Ok(Search::Found(found)) => Ok(*found),
        Ok(Search::None(missing, seen)) => {
            for text in &seen {
                tell::note(globals, text);
            }
            match start {
                Start::WhenNeeded => autostart::start(globals, loaded).await,
                Start::Never => Err(refusal::missing(&missing, loaded)),
            }
        }
        Err((target, error)) => Err(refusal::connect(&target, error, loaded)),
    }
}

/// Reaches the daemon and says hello.
///
/// # Errors
/// For the user.
pub(super) async fn daemon(
    globals: &Globals,
    loaded: &Loaded,
    start: Start,
    initialize: &InitializeParams,
) -> Result<Reached, Failure> {
    let greeted = greet(globals, loaded, start, initialize).await?;
    check_protocol(&greeted)?;
    let Greeted { client, notifications, target, hello } = greeted;
    let hello: InitializeResult =
        serde_json::from_str(hello.get()).map_err(|error| cannot_read(&target, &error))?;
    let ours = env!("CARGO_PKG_VERSION");
    if hello.server_info.version != ours {
        tell::note(globals, &format!("dshd there is {}, this one is {ours}", hello.server_info.version));
    }
    Ok(Reached { client, notifications, target, hello, timeout: globals.args.timeout })
}

/// Reaches a running daemon for a command that only asks: it starts none and hears of no session.
///
/// # Errors
/// For the user.
pub(super) async fn viewer(globals: &Globals, loaded: &Loaded) -> Result<Reached, Failure> {
    let mut reached = daemon(globals, loaded, Start::Never, &as_viewer()).await?;
    reached.notifications.close();
    Ok(reached)
}

/// A daemon that has answered, of whatever version.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) client: Client,
    pub(super) notifications: Notifications,
    pub(super) target: Target,
    hello: Box<RawValue>,
}

/// Reaches a daemon, authenticates, and says hello, whatever protocol it speaks.
///
/// # Errors
/// For the user.
pub(super) async fn greet(
    globals: &Globals,
    loaded: &Loaded,
    start: Start,
    initialize: &InitializeParams,
) -> Result<Greeted, Failure> {
    let (target, stream) = stream(globals, loaded, start).await?;
    tell::note(globals, &format!("using {} (from {})", target.address, target.origin));
    let (client, notifications) = Client::on(stream);
    let refused = |error| refusal::call(&target, error);
    let patience = globals.args.timeout.unwrap_or(ANSWER_TIMEOUT);
    if target.address.needs_token()
        && let Some(token) = token(globals)?
    {
        client.authenticate(&token, patience).await.map_err(refused)?;
    }
    let hello = client.call_within(patience, Method::Initialize, initialize).await.map_err(refused)?;
    Ok(Greeted { client, notifications, target, hello })
}

fn cannot_read(target: &Target, error: &serde_json::Error) -> Failure {
    let detail = error.to_string();
    refusal::call(target, CallError::Result { method: Method::Initialize, detail })
}

/// Refuses a daemon of another protocol before the rest of what it says is read.
fn check_protocol(greeted: &Greeted) -> Result<(), Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Said {
        server_info: ServerInfo,
        #[serde(default)]
        protocol_version: u32,
    }
    let target = &greeted.target;
    let said: Said =
        serde_json::from_str(greeted.hello.get()).map_err(|error| cannot_read(target, &error))?;
    if said.protocol_version == VERSION {
        return Ok(());
    }
    let message = format!(
        "dshd at {} is {} and speaks protocol {}; this dshd is {} and speaks protocol {VERSION}",
        target.address,
        said.server_info.version,
        said.protocol_version,
        env!("CARGO_PKG_VERSION")
    );
    Err(Failure::new(exit::PROTOCOL, "protocol_version", message).with_help("dshd stop, then try again"))
}

/// Whom to trust at a `tls:` address: what the flags say, else the configuration, else our own daemon's CA.
///
/// # Errors
/// When the configuration's pin is none.
pub(super) fn trust(globals: &Globals, loaded: &Loaded) -> Result<Trust, Failure> {
    let client = &loaded.config.client;
    let cwd = globals.environment.cwd();
    let named = globals.args.ca.as_ref().map(|path| cwd.join(path)).or_else(|| client.ca.clone());
    let pin = match (globals.args.pin, &client.pin) {
        (Some(pin), _) => Some(pin),
        (None, Some(text)) => Some(text.parse().map_err(|error: PinError| {
            Failure::new(exit::CONFIG, "config", format!("client.pin: {error}"))
                .with_help("dshd tls fingerprint")
        })?),
        (None, None) => None,
    };
    let ours = loaded.paths.data_dir.join("tls/ca.pem");
    let ca = named.or_else(|| (pin.is_none() && ours.exists()).then_some(ours));
    let identity = client.cert.clone().zip(client.key.clone());
    Ok(Trust { ca, pin, identity })
}

/// The token for TCP: the flag's file, the variable, the variable's file.
pub(super) fn token(globals: &Globals) -> Result<Option<Zeroizing<String>>, Failure> {
    let environment = &globals.environment;
    let file = match (&globals.args.token_file, environment.get("DSHD_TOKEN")) {
        (Some(file), _) => file.clone(),
        (None, Some(token)) => return Ok(Some(Zeroizing::new(token.to_owned()))),
        (None, None) => match environment.get("DSHD_TOKEN_FILE") {
            Some(file) => file.into(),
            None => return Ok(None),
        },
    };
    let path = environment.cwd().join(file);
    let refused = |why: &dyn std::fmt::Display| {
        Failure::new(
            exit::NOT_ALLOWED,
            "token",
            format!("cannot read the token in {}: {why}", path.display()),
        )
        .with_help("dshd token create NAME > FILE, where the daemon runs")
    };
    let length = std::fs::metadata(&path).map_err(|error| refused(&error))?.len();
    if length > TOKEN_BYTES_MAX {
        return Err(refused(&"it is too long for a token"));
    }
    let text = std::fs::read_to_string(&path).map(Zeroizing::new).map_err(|error| refused(&error))?;
    match text.trim() {
        "" => Err(refused(&"it is empty")),
        token => Ok(Some(Zeroizing::new(token.to_owned()))),
    }
}
