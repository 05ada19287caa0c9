//! The composition root: builds the parts, walks the phases, owns the order of shutdown.
//!
//! Called by the subcommands `serve` and `stdio`. Everything that runs is in a scope that ends here.

mod announce;
mod core;
mod ending;
mod reload;
mod watchdog;
mod wishes;

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use self::announce::Announcement;
use self::core::Core;
use self::ending::Plan;
use self::watchdog::Watchdog;
use self::wishes::Wishes;
use crate::auth::peer::{PeerInfo, PeerKind};
use crate::auth::token::Tokens;
use crate::config::{Config, Loaded, Profile};
use crate::connection::{self, Service};
use crate::exporter::Exporter;
use crate::handler::caller::Defaults;
use crate::listener::{Accepted, Inherited, ListenError, Listener, Stdio, Tls};
use crate::process;
use crate::process::lock::{LockError, LockFile};
use crate::shutdown::Scope;
use crate::signal::SignalStream;

/// How to serve, beside the configuration.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Stop after so long without clients and turns.
    pub idle_exit: Option<Duration>,
}

/// Why the daemon ended other than by a request to stop.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// An address can't be bound; exit 69.
    #[error("{message}")]
    Bind {
        /// What and why.
        message: String,
        /// The next step.
        help: Option<String>,
    },
    /// A bug of ours; exit 70.
    #[error("{message}")]
    Internal {
        /// What, with the incident id.
        message: String,
    },
    /// Storage failed; exit 74.
    #[error("{message}")]
    Storage {
        /// What and why.
        message: String,
    },
    /// Another daemon holds the data directory or the socket; exit 75.
    #[error("{message}")]
    AlreadyRunning {
        /// Which, with its pid.
        message: String,
        /// The next step.
        help: Option<String>,
    },
    /// The configuration can't be served; exit 78.
    #[error("{message}")]
    Config {
        /// What and why.
        message: String,
        /// The next step.
        help: Option<String>,
    },
}

impl DaemonError {
    /// What to do next.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Bind { help, .. } | Self::AlreadyRunning { help, .. } | Self::Config { help, .. } => {
                help.as_deref()
            }
            Self::Internal { .. } | Self::Storage { .. } => None,
        }
    }
}

/// Serves the configured addresses until asked to stop.
///
/// # Errors
/// [`DaemonError`].
pub async fn serve(loaded: Loaded, options: ServeOptions) -> Result<(), DaemonError> {
    let signals = SignalStream::install().map_err(|error| internal("signals can't be had", &error))?;
    core::prepare(&loaded)?;
    let _lock = lock(&loaded)?;
    let listeners = bind(&loaded.config)?;
    let exporter = export(&loaded.config)?;
    let tokens = Arc::new(tokens(&loaded)?);
    check_tokens(&tokens, &listeners)?;
    let certificates: Vec<Arc<Tls>> = listeners.iter().filter_map(Listener::tls).collect();
    let addresses: Vec<String> = listeners.iter().map(Listener::address).collect();

    let mut core = Core::start(loaded, Defaults::sockets(), tokens, addresses)?;
    core.certificates = certificates;
    core.index_in_background();
    let watchdog = Watchdog::start(core.tasks.clone(), core.signs());
    let listening = Scope::new();
    if let Some(exporter) = exporter {
        listening.spawn(exporter.run(core.shared.clone(), listening.clone()));
    }
    let announcement = Announcement::of(&listeners);
    for listener in listeners {
        listen(&core, &listening, listener);
    }
    let announced = announcement.publish(&core.loaded.paths.data_dir);
    let _announced = announced
        .map_err(|error| DaemonError::Storage { message: chain("daemon.json can't be written", &error) })?;
    announcement.say_ready();

    let mut wishes = Wishes::new(signals, core.shared.stops());
    let deadline = wishes.serve(&mut core, options.idle_exit).await;
    announce::say_stopping();
    let plan = Plan::daemon(&core.loaded.config, deadline);
    watchdog.end_within(plan.longest());
    let hurry = CancellationToken::new();
    let failures = tokio::select! {
        failures = ending::end(&core, &plan, &hurry, Some(&listening)) => failures,
        never = wishes.hurry(&hurry) => match never {},
    };
    drop(watchdog);
    conclude(&core, &failures, hurry.is_cancelled())
}

/// Serves stdin and stdout until EOF, `shutdown` or a signal. The defaults of `Loaded::profile` apply.
///
/// # Errors
/// [`DaemonError`].
pub async fn stdio(loaded: Loaded) -> Result<(), DaemonError> {
    let io = Stdio::claim().map_err(|error| internal("stdin and stdout can't be had", &error))?;
    let signals = SignalStream::install().map_err(|error| internal("signals can't be had", &error))?;
    core::prepare(&loaded)?;
    let defaults = match loaded.profile {
        Profile::Standard => Defaults { deltas: loaded.deltas, ..Defaults::stdio() },
        Profile::Sdk => Defaults::sdk(loaded.deltas),
    };
    let tokens = Arc::new(Tokens::new(&loaded.paths.tokens));
    let mut core = Core::start(loaded, defaults, tokens, vec!["stdio".to_owned()])?;
    let watchdog = Watchdog::start(core.tasks.clone(), core.signs());

    let input_ended = CancellationToken::new();
    let mut service = core.service.clone();
    service.input_ended = Some(input_ended.clone());
    let peer = PeerInfo::new(PeerKind::Stdio);
    let served = core.connections.spawn(connection::serve(io, peer, None, service));

    let mut wishes = Wishes::new(signals, core.shared.stops());
    let plan = tokio::select! {
        _ = wishes.serve(&mut core, None) => Plan::at_once(),
        () = input_ended.cancelled() => Plan::input_ended(),
        // The peer is gone.
        _ = served => Plan::input_ended(),
    };
    watchdog.end_within(plan.longest());
    let hurry = CancellationToken::new();
    let failures = tokio::select! {
        failures = ending::end(&core, &plan, &hurry, None) => failures,
        never = wishes.hurry(&hurry) => match never {},
    };
    drop(watchdog);
    conclude(&core, &failures, hurry.is_cancelled() || plan.is_hurried())
}

fn listen(core: &Core, listening: &Scope, listener: Listener) {
    let admission = core.admission.clone();
    let (connections, service) = (core.connections.clone(), core.service.clone());
    let on_connection = move |accepted: Accepted| {
        let service = service.clone();
        if accepted.is_ready() {
            let Accepted { io, peer, permit, .. } = accepted;
            connections.spawn(connection::serve(io, peer, Some(permit), service));
        } else {
            connections.spawn(serve_secured(accepted, service));
        }
    };
    listening.spawn(listener.run(admission, connection::refusals(), listening.clone(), on_connection));
}

/// Serves a peer once TLS is spoken.
async fn serve_secured(accepted: Accepted, service: Service) {
    if let Some(Accepted { io, peer, permit, .. }) = Box::pin(accepted.secured(&service.scope)).await {
        connection::serve(io, peer, Some(permit), service).await;
    }
}

fn lock(loaded: &Loaded) -> Result<LockFile, DaemonError> {
    LockFile::acquire(&loaded.paths.data_dir.join("LOCK")).map_err(|error| match &error {
        LockError::Held { pid, .. } => DaemonError::AlreadyRunning {
            message: match pid {
                Some(pid) => {
                    format!("dshd is running already (pid {pid}) on {}", loaded.paths.data_dir.display())
                }
                None => format!("dshd is running already on {}", loaded.paths.data_dir.display()),
            },
            help: Some("dshd status shows it, dshd stop ends it; or choose another --data-dir".to_owned()),
        },
        LockError::Io { .. } => DaemonError::Storage { message: with_sources(&error) },
    })
}

/// Binds every address before any is served.
fn bind(config: &Config) -> Result<Vec<Listener>, DaemonError> {
    let handed = process::inherited::sockets()
        .map_err(|error| internal("the service manager's sockets can't be had", &error))?;
    let inherited = handed.into_iter().map(|(name, fd)| Inherited::new(&name, fd)).collect();
    Listener::all(config, inherited).map_err(|error: ListenError| {
        let message = with_sources(&error);
        match error.exit_code() {
            75 => DaemonError::AlreadyRunning { message, help: None },
            78 => DaemonError::Config { message, help: None },
            _ => DaemonError::Bind { message, help: None },
        }
    })
}

/// The tokens of the file, and the one that the service manager hands over (`LoadCredential=dshd-token:FILE`).
fn tokens(loaded: &Loaded) -> Result<Tokens, DaemonError> {
    let tokens = Tokens::new(&loaded.paths.tokens);
    let path = loaded.environment.get("CREDENTIALS_DIRECTORY").map(|dir| Path::new(dir).join("dshd-token"));
    let Some(path) = path.filter(|path| path.exists()) else { return Ok(tokens) };
    let help = || Some("write one with: head -c 32 /dev/urandom | base64 > FILE".to_owned());
    let secret = std::fs::read_to_string(&path).map(Zeroizing::new).map_err(|error| DaemonError::Config {
        message: format!("cannot read the token in {}: {error}", path.display()),
        help: None,
    })?;
    tokens.with_secret("dshd-token", secret.trim(), Timestamp::now()).map_err(|error| DaemonError::Config {
        message: format!("{}: {error}", path.display()),
        help: help(),
    })
}

/// Binds the address for health and metrics, if there is one.
fn export(config: &Config) -> Result<Option<Exporter>, DaemonError> {
    let refused =
        |reason: String| DaemonError::Config { message: format!("`metrics.listen`: {reason}"), help: None };
    let Some(address) = config.metrics.address().map_err(refused)? else { return Ok(None) };
    Exporter::bind(&address).map(Some).map_err(|error| DaemonError::Bind {
        message: chain(&format!("cannot serve metrics at {address}"), &error),
        help: Some("choose another metrics.listen, or none".to_owned()),
    })
}

/// A token file that can't be read is found at start, and one without tokens is worth a word.
fn check_tokens(tokens: &Tokens, listeners: &[Listener]) -> Result<(), DaemonError> {
    if !listeners.iter().any(|listener| listener.kind() != "unix") {
        return Ok(());
    }
    let count =
        tokens.count().map_err(|error| DaemonError::Config { message: with_sources(&error), help: None })?;
    if count > 0 {
        return Ok(());
    }
    if let Some(remote) = listeners.iter().find(|listener| listener.is_remote()) {
        let address = remote.address();
        return Err(DaemonError::Config {
            message: format!(
                "{address} can be reached from other machines, and there is no token to come in by"
            ),
            help: Some("dshd token create NAME > NAME.token, then start again".to_owned()),
        });
    }
    tracing::warn!("no tokens yet, so TCP admits nobody; make one with dshd token create");
    Ok(())
}

fn conclude(core: &Core, failures: &[String], hurried: bool) -> Result<(), DaemonError> {
    for failure in failures {
        tracing::error!(failure, "something failed while stopping");
    }
    if let Some(reason) = core.runtime.storage_failure() {
        return Err(DaemonError::Storage { message: format!("storage failed: {reason}") });
    }
    match failures {
        [] => Ok(()),
        _ if hurried => Ok(()),
        failures => Err(DaemonError::Internal { message: failures.join("; ") }),
    }
}

fn internal(what: &str, error: &dyn Error) -> DaemonError {
    DaemonError::Internal { message: chain(what, error) }
}

fn with_sources(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => chain(&error.to_string(), source),
        None => error.to_string(),
    }
}

fn chain(what: &str, error: &dyn Error) -> String {
    let mut text = format!("{what}: {error}");
    let mut source = error.source();
    while let Some(error) = source {
        // Writing to a string never fails.
        let _ = write!(text, ": {error}");
        source = error.source();
    }
    text
}
