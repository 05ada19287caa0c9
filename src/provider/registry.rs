//! The providers by name: what is built in, what is configured, who has a key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::Provider;
use super::anthropic::Anthropic;
use super::chat::Chat;
use super::http::{Access, Gate, Key};
use super::responses::Responses;
use super::retry::RetryPolicy;
use super::scripted::Scripted;
use crate::config::{
    Config, Credentials, CredentialsError, DEEPSEEK, Environment, KeyPlace, Loaded, ModelConfig, Profile,
    ProviderConfig, ProviderKind, SCRIPTED, api_key, loose_secret,
};

/// A configured model for `models/list`.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// What it can do and costs.
    pub abilities: ModelConfig,
}

/// A provider for `models/list`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub provider: String,
    /// The wire it speaks.
    pub kind: ProviderKind,
    /// Whether a key is there, or none is needed.
    pub ready: bool,
    /// Its configured models.
    pub models: Vec<Model>,
    /// The one that is asked when a client names none.
    pub default_model: Option<String>,
}

/// Why a route can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No such provider.
    #[error("unknown provider {name}; configured: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No key, or one that can't be used.
    #[error("provider {name} has no key: {remedy}")]
    NoKey {
        /// Which provider.
        name: String,
        /// What to do.
        remedy: String,
    },
    /// Nobody says which of its models is meant.
    #[error(
        "provider {name} has no default model; help: name one, as in {name}/MODEL, or set providers.{name}.default_model"
    )]
    NoModel {
        /// Which provider.
        name: String,
    },
}

struct Entry {
    adapter: Arc<dyn Provider>,
    key: Key,
    gate: Gate,
    config: ProviderConfig,
    default_model: Option<String>,
}

/// What a table was made of, to make it anew when the file of keys changes.
struct Source {
    config: Config,
    environment: Environment,
    credentials: PathBuf,
    stamp: Stamp,
}

/// Tells one state of a file from another; `None`: there is none.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

struct Table {
    source: Option<Source>,
    entries: BTreeMap<String, Entry>,
    default_provider: Option<String>,
    profile: Profile,
}

/// All providers. Cheap to clone; rebuilt on reload.
#[derive(Clone)]
pub struct Providers {
    table: Arc<Table>,
}

impl Providers {
    /// Reads keys and builds the table. HTTP clients are built on first use.
    pub fn of(loaded: &Loaded) -> Self {
        let credentials = loaded.paths.credentials.as_deref();
        Self::from_config(&loaded.config, &loaded.environment, credentials, loaded.profile)
    }

    /// As [`Providers::of`], in the place of these: calls in flight go on counting against `concurrency`.
    #[must_use]
    pub fn succeeded(&self, loaded: &Loaded) -> Self {
        let credentials = loaded.paths.credentials.as_deref();
        self.followed(&loaded.config, &loaded.environment, credentials, loaded.profile)
    }

    /// The same from its parts; `credentials` is the file that `dshd login` writes.
    pub fn from_config(
        config: &Config,
        environment: &Environment,
        credentials: Option<&Path>,
        profile: Profile,
    ) -> Self {
        let nobody = Table { source: None, entries: BTreeMap::new(), default_provider: None, profile };
        Self { table: Arc::new(nobody) }.followed(config, environment, credentials, profile)
    }

    fn followed(
        &self,
        config: &Config,
        environment: &Environment,
        credentials: Option<&Path>,
        profile: Profile,
    ) -> Self {
        let source = credentials.map(|path| Source {
            config: config.clone(),
            environment: environment.clone(),
            credentials: path.to_path_buf(),
            stamp: stamp(path),
        });
        let logins = credentials.map_or_else(|| Ok(Credentials::default()), Credentials::read);
        let search = Search { environment, logins, credentials };
        let keys: Vec<_> = config
            .providers
            .iter()
            .map(|(name, provider)| (name, provider, search.key(name, provider)))
            .collect();
        let keyless = !keys.iter().any(|(_, _, key)| matches!(key, Key::Present(_) | Key::Refused(_)));
        let entry = |(name, provider, key): (&String, &ProviderConfig, Key)| {
            let old = self.table.entries.get(name).map(|entry| &entry.gate);
            let gate = Gate::after(old, provider.concurrency);
            let access = Access { key: key.clone(), gate: gate.clone() };
            let adapter: Arc<dyn Provider> = match provider.kind {
                ProviderKind::Chat => Arc::new(Chat::new(name, provider, access)),
                ProviderKind::Anthropic => Arc::new(Anthropic::new(name, provider, access)),
                ProviderKind::Responses => Arc::new(Responses::new(name, provider, access)),
                ProviderKind::Scripted => Arc::new(Scripted::new(provider, keyless)),
            };
            let default_model = config.model_of(name).map(str::to_owned);
            (name.clone(), Entry { adapter, key, gate, config: provider.clone(), default_model })
        };
        let entries = keys.into_iter().map(entry).collect();
        let default_provider = config.default_provider.clone();
        Self { table: Arc::new(Table { source, entries, default_provider, profile }) }
    }

    /// The table made anew, if the file that `dshd login` writes has changed since: a key that was stored or removed
    /// counts from the next turn.
    #[must_use]
    pub fn refreshed(&self) -> Option<Self> {
        let source = self.table.source.as_ref()?;
        if stamp(&source.credentials) == source.stamp {
            return None;
        }
        let credentials = Some(source.credentials.as_path());
        Some(self.followed(&source.config, &source.environment, credentials, self.table.profile))
    }

    /// The default route: (provider, model). Configured, else DeepSeek if it has a key, else `scripted`.
    pub fn default_route(&self) -> (String, String) {
        let table = &self.table;
        let has_key = |entry: &Entry| !matches!(entry.key, Key::Missing(_));
        let provider = match &table.default_provider {
            Some(provider) => provider.as_str(),
            None if table.profile == Profile::Sdk => DEEPSEEK,
            None if table.entries.get(DEEPSEEK).is_some_and(has_key) => DEEPSEEK,
            None => SCRIPTED,
        };
        // Of a configuration that was checked, the default provider has a default model.
        (provider.to_owned(), self.default_model(provider).unwrap_or_default())
    }

    /// The model of a provider when a client names none.
    ///
    /// # Errors
    /// [`RouteError::Unknown`]; [`RouteError::NoModel`] when none is configured.
    pub fn default_model(&self, provider: &str) -> Result<String, RouteError> {
        let no_model = || RouteError::NoModel { name: provider.to_owned() };
        self.entry(provider)?.default_model.clone().ok_or_else(no_model)
    }

    /// Checks that a provider exists and has its key. Official SDKs are told of a missing key by the turn.
    ///
    /// # Errors
    /// [`RouteError`].
    pub fn check(&self, provider: &str) -> Result<(), RouteError> {
        match &self.entry(provider)?.key {
            Key::Missing(_) if self.table.profile == Profile::Sdk => Ok(()),
            Key::Missing(remedy) | Key::Refused(remedy) => {
                Err(RouteError::NoKey { name: provider.to_owned(), remedy: remedy.clone() })
            }
            Key::Present(_) | Key::Needless => Ok(()),
        }
    }

    /// The provider, for a call. One without key is returned too; its calls fail with `MISSING_CREDENTIAL`.
    ///
    /// # Errors
    /// [`RouteError::Unknown`].
    pub fn get(&self, provider: &str) -> Result<Arc<dyn Provider>, RouteError> {
        Ok(Arc::clone(&self.entry(provider)?.adapter))
    }

    /// What a model can do; defaults for one that is not configured.
    pub fn abilities(&self, provider: &str, model: &str) -> ModelConfig {
        let entry = self.table.entries.get(provider);
        entry.and_then(|entry| entry.config.models.get(model)).cloned().unwrap_or_default()
    }

    /// How often and after which first pause a provider's failed calls are made again.
    pub fn retry_policy(&self, provider: &str) -> RetryPolicy {
        let default = ProviderConfig::default();
        let config = self.table.entries.get(provider).map_or(&default, |entry| &entry.config);
        RetryPolicy { max: config.max_retries, base: config.retry_base }
    }

    /// For `models/list`.
    pub fn routes(&self) -> Vec<Route> {
        let route = |(name, entry): (&String, &Entry)| Route {
            provider: name.clone(),
            kind: entry.config.kind,
            ready: matches!(entry.key, Key::Present(_) | Key::Needless),
            models: (entry.config.models.iter())
                .map(|(name, abilities)| Model { name: name.clone(), abilities: abilities.clone() })
                .collect(),
            default_model: entry.default_model.clone(),
        };
        self.table.entries.iter().map(route).collect()
    }

    fn entry(&self, provider: &str) -> Result<&Entry, RouteError> {
        self.table.entries.get(provider).ok_or_else(|| RouteError::Unknown {
            name: provider.to_owned(),
            known: self.table.entries.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })
    }
}

/// Where keys are looked for.
struct Search<'a> {
    environment: &'a Environment,
    logins: Result<Credentials, CredentialsError>,
    credentials: Option<&'a Path>,
}

impl Search<'_> {
    fn key(&self, name: &str, provider: &ProviderConfig) -> Key {
        if provider.kind == ProviderKind::Scripted {
            return Key::Needless;
        }
        let none = Credentials::default();
        let logins = self.logins.as_ref().unwrap_or(&none);
        let path = self.credentials.unwrap_or(Path::new(""));
        match api_key(name, provider, self.environment, (logins, path)) {
            Ok(Some(source)) => match self.loose(&source.place) {
                Some(refusal) => Key::Refused(refusal),
                None => Key::Present(source.key),
            },
            Ok(None) => match &self.logins {
                Err(error) => {
                    Key::Refused(format!("{error}; help: mend or remove that file, then dshd login {name}"))
                }
                Ok(_) => missing(name, provider),
            },
            Err(error) => Key::Refused(error.to_string()),
        }
    }

    /// A file of keys that others can read is not used; but systemd guards its own directory.
    fn loose(&self, place: &KeyPlace) -> Option<String> {
        let (KeyPlace::File(path) | KeyPlace::Login(path)) = place else { return None };
        let guarded = self.environment.absolute("CREDENTIALS_DIRECTORY");
        if guarded.is_some_and(|directory| path.starts_with(directory)) {
            return None;
        }
        loose_secret(path)
    }
}

fn missing(name: &str, provider: &ProviderConfig) -> Key {
    match &provider.api_key_env {
        Some(variable) => Key::Missing(format!("no key is set; help: dshd login {name}, or set {variable}")),
        None if provider.api_key_file.is_some() => {
            Key::Missing(format!("its api_key_file is empty; help: put the key there, or dshd login {name}"))
        }
        None => Key::Needless,
    }
}

#[cfg(test)]
mod tests;
