//! The parts of a process that serves, whatever it serves: store, runtime, and what connections share.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::watchdog::Signs;
use super::{DaemonError, chain, with_sources};
use crate::auth::token::Tokens;
use crate::config::{Config, Loaded};
use crate::connection::{self, Service};
use crate::handler::caller::Defaults;
use crate::handler::shared::{Peers, Phase, Place, Shared};
use crate::listener::{Admission, Tls};
use crate::process::{self, Sandbox, Spool};
use crate::provider::registry::Providers;
use crate::runtime::{Parts, Runtime};
use crate::shutdown::Scope;
use crate::store::file::FileStore;

/// How often it is looked whether a token by which somebody is in has ended.
const REVOKED_LOOK: Duration = Duration::from_millis(500);

/// The parts.
pub(super) struct Core {
    /// The configuration in force with its sources.
    pub(super) loaded: Loaded,
    /// Puts a configuration in force.
    pub(super) config: watch::Sender<Arc<Config>>,
    /// Tells connections how far the process is.
    pub(super) phase: watch::Sender<Phase>,
    store: FileStore,
    pub(super) runtime: Runtime,
    pub(super) shared: Arc<Shared>,
    pub(super) service: Service,
    pub(super) admission: Admission,
    /// The certificates of the addresses, to be read again.
    pub(super) certificates: Vec<Arc<Tls>>,
    /// The runtime's tasks.
    pub(super) tasks: Scope,
    /// The connections.
    pub(super) connections: Scope,
}

/// What the process needs of the system before it starts.
///
/// # Errors
/// [`DaemonError::Storage`] when the data directory can't be made.
pub(super) fn prepare(loaded: &Loaded) -> Result<(), DaemonError> {
    if let Err(error) = process::raise_nofile_limit() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    if let Err(error) = process::adopt_orphans() {
        tracing::warn!(%error, "processes that leave their command can't be found");
    }
    if let Err(error) = process::keep_memory_private() {
        tracing::warn!(%error, "other processes of this user can read this one's memory");
    }
    let data_dir = &loaded.paths.data_dir;
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(|error| {
        let what = format!("the data directory {} can't be made", data_dir.display());
        DaemonError::Storage { message: chain(&what, &error) }
    })
}

impl Core {
    /// Builds them. Nothing is served yet.
    ///
    /// # Errors
    /// [`DaemonError::Storage`].
    pub(super) fn start(
        loaded: Loaded,
        defaults: Defaults,
        tokens: Arc<Tokens>,
        listeners: Vec<String>,
    ) -> Result<Self, DaemonError> {
        let store = FileStore::open(&loaded.paths.data_dir)
            .map_err(|error| DaemonError::Storage { message: with_sources(&error) })?;
        let (config, config_in_force) = watch::channel(Arc::new(loaded.config.clone()));
        let (phase, phase_now) = watch::channel(Phase::Serving);
        let (tasks, connections) = (Scope::new(), Scope::new());
        let tools = &loaded.config.tools;
        let (spool_max, spool_total_max) = (tools.spool_bytes.0, tools.spool_total_bytes.0);
        let spool = Spool::new(&loaded.paths.data_dir, spool_max, spool_total_max);
        let swept = spool.clone();
        tasks.spawn_blocking(move || swept.sweep());
        tasks.spawn(process::reap_orphans(tasks.aborting().clone()));
        let runtime = Runtime::new(Parts {
            store: Arc::new(store.clone()),
            config: config_in_force.clone(),
            framing: connection::framing(),
            scope: tasks.clone(),
            providers: Providers::of(&loaded),
            spool: Some(spool),
            sandbox: Some(Sandbox::new(&loaded)),
        });
        let retaining = runtime.clone().retain();
        let ending = tasks.draining().clone();
        tasks.spawn(async move {
            ending.run_until_cancelled(retaining).await;
        });
        let place = place(&loaded, listeners);
        let ending = tasks.draining().clone();
        let revoking = end_revoked(Arc::clone(&tokens));
        tasks.spawn(async move {
            ending.run_until_cancelled(revoking).await;
        });
        let shared = Arc::new(Shared::new(runtime.clone(), config_in_force.clone(), phase_now, place));
        let service = Service {
            shared: shared.clone(),
            tokens,
            defaults,
            scope: connections.clone(),
            input_ended: None,
        };
        let admission = Admission::new(config_in_force);
        let door = admission.clone();
        shared.counts_peers(Box::new(move || {
            let (all, preauth, of_one_user) = door.counts();
            Peers { all, preauth, of_one_user }
        }));
        Ok(Self {
            loaded,
            config,
            phase,
            store,
            runtime,
            shared,
            service,
            admission,
            certificates: Vec::new(),
            tasks,
            connections,
        })
    }
}

impl Core {
    /// What shows whether the daemon lives.
    pub(super) fn signs(&self) -> Signs {
        Signs { store: self.store.clone(), accepting: self.admission.pulse().clone() }
    }

    /// Looks at all stored sessions, so that the first list of them is quick.
    pub(super) fn index_in_background(&self) {
        self.store.index_in_background();
    }
}

/// Ends the connections of tokens that have ended, as long as there are any.
async fn end_revoked(tokens: Arc<Tokens>) {
    loop {
        tokens.someone_holds().await;
        tokio::time::sleep(REVOKED_LOOK).await;
        tokens.end_revoked(Timestamp::now());
    }
}

fn place(loaded: &Loaded, listeners: Vec<String>) -> Place {
    let named = loaded.config.providers.values().filter_map(|provider| provider.api_key_env.clone());
    let mut keys: Vec<String> = named.filter(|name| loaded.environment.get(name).is_some()).collect();
    keys.sort();
    keys.dedup();
    Place { data_dir: loaded.paths.data_dir.clone(), listeners, keys }
}
