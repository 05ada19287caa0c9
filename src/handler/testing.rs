//! What tests of handlers and of connections stand on: a runtime over memory, whose model plays a script.

use std::sync::Arc;

use tokio::sync::watch;

use super::shared::{Phase, Place, Shared};
use crate::config::{Config, Environment, Profile, ProviderConfig, ProviderKind};
use crate::provider::registry::Providers;
use crate::runtime::{Parts, Runtime};
use crate::session::feed::Framing;
use crate::shutdown::Scope;
use crate::store::memory::MemoryStore;

/// The provider that plays the script.
pub(crate) const PLAYER: &str = "player";

/// A process without sockets; its directory holds the script.
pub(crate) struct House {
    pub(crate) shared: Arc<Shared>,
    /// Keeps the configuration in force.
    _config: watch::Sender<Arc<Config>>,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) dir: tempfile::TempDir,
    /// Where its sessions are.
    pub(crate) store: MemoryStore,
}

impl House {
    /// A house whose default model plays `script`, a line an answer.
    pub(crate) fn new(script: &str, framing: Framing, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script.jsonl");
        std::fs::write(&path, script).unwrap();
        let mut config = Config::default();
        let player =
            ProviderConfig { kind: ProviderKind::Scripted, script: Some(path), ..ProviderConfig::default() };
        config.providers.insert(PLAYER.to_owned(), player);
        config.default_provider = Some(PLAYER.to_owned());
        change(&mut config);
        let providers = Providers::from_config(&config, &Environment::default(), None, Profile::Standard);
        let (config, in_force) = watch::channel(Arc::new(config));
        let (phase, phase_now) = watch::channel(Phase::Serving);
        let store = MemoryStore::default();
        let runtime = Runtime::new(Parts {
            store: Arc::new(store.clone()),
            config: in_force.clone(),
            framing,
            scope: Scope::new(),
            providers,
            spool: None,
            sandbox: None,
        });
        let shared = Arc::new(Shared::new(runtime, in_force, phase_now, Place::default()));
        Self { shared, _config: config, phase, dir, store }
    }
}
