//! Loading: built-in defaults, files, variables, flags, in this order; later ones win.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::Serialized;
use figment::value::{Dict, Value};

use super::layer::Layer;
use super::paths::{default_data_dir, expand_home};
use super::{Config, ConfigError, Environment, Listen, LogFormat, Paths, Source};
use super::{builtin, check, credentials, file, keys, variables};

/// For whom the process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// For everybody.
    #[default]
    Standard,
    /// For an official SDK (`--profile sdk`): other defaults, PROTOCOL.md 9.
    Sdk,
}

/// What flags say about configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    /// `--config`: one more file.
    pub config: Option<PathBuf>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
    /// `--listen`; replaces all configured addresses.
    pub listen: Vec<Listen>,
    /// `--log-level`.
    pub log_level: Option<String>,
    /// `--log-format`.
    pub log_format: Option<LogFormat>,
    /// `--profile`.
    pub profile: Profile,
}

/// The configuration in force, and how it came about.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values. `data_dir` and `listen` are always filled in, and paths are absolute.
    pub config: Config,
    /// Where each value that is not built in was set, by dotted key. Lists are one value.
    pub sources: BTreeMap<String, Source>,
    /// What is doubtful, a sentence each; the configuration is in force all the same.
    pub warnings: Vec<String>,
    /// Where things are.
    pub paths: Paths,
    /// For whom the process runs.
    pub profile: Profile,
    /// Whether clients that say nothing get deltas: `false` under the SDK profile unless `DSHD_DELTAS=1`.
    pub deltas: bool,
    /// The environment that was read.
    pub environment: Environment,
    pub(super) flags: Flags,
}

impl Loaded {
    /// Where a key was set.
    pub fn source(&self, key: &str) -> Source {
        self.sources.get(key).cloned().unwrap_or(Source::Default)
    }
}

/// Loads the configuration.
///
/// # Errors
/// [`ConfigError`], naming key, file and line.
pub fn load(environment: &Environment, flags: &Flags) -> Result<Loaded, ConfigError> {
    let mut paths = Paths::new(environment);
    let mut warnings = Vec::new();
    let layers = layers(environment, flags, &mut paths, &mut warnings)?;
    let (mut config, mut sources) = merge(layers)?;
    absolute_paths(&mut config, &sources, environment);
    if config.data_dir.is_none() {
        config.data_dir = default_data_dir(environment, flags.profile);
    }
    let data_dir = config.data_dir.clone().ok_or(ConfigError::NoDataDirectory)?;
    paths.place_data(&data_dir, environment);
    if config.listen.is_empty() {
        config.listen.push(Listen::unix(&paths.socket));
        sources.remove("listen");
    }
    check::check(&config, &sources)?;
    warnings.extend(paths.credentials.as_deref().and_then(credentials::loose_secret));
    Ok(Loaded {
        config,
        sources,
        warnings,
        paths,
        profile: flags.profile,
        deltas: flags.profile == Profile::Standard || environment.get("DSHD_DELTAS") == Some("1"),
        environment: environment.clone(),
        flags: flags.clone(),
    })
}

/// Checks the text of one file on top of the built-in defaults, whatever else is configured.
///
/// # Errors
/// [`ConfigError`], naming key, file and line.
pub fn check_text(path: &Path, text: &str, environment: &Environment) -> Result<(), ConfigError> {
    let layer = file::parse(path, text)?;
    let (mut config, sources) = merge(vec![layer])?;
    absolute_paths(&mut config, &sources, environment);
    check::check(&config, &sources)
}

/// All layers, the lowest first.
fn layers(
    environment: &Environment,
    flags: &Flags,
    paths: &mut Paths,
    warnings: &mut Vec<String>,
) -> Result<Vec<Layer>, ConfigError> {
    let mut layers = Vec::new();
    if flags.profile == Profile::Sdk {
        layers.push(builtin::sdk_profile());
    }
    let standard = [paths.system_config.clone(), paths.user_config.clone()];
    for path in standard.into_iter().flatten().filter(|path| path.exists()) {
        layers.push(file::read(&path, None)?);
        paths.files.push(path);
    }
    if let Some((path, named_by)) = named_file(environment, flags) {
        layers.push(file::read(&path, Some(named_by))?);
        paths.files.push(path);
    }
    let below = merged(&layers)?;
    layers.push(variables::read(environment, flags.profile, &below, warnings)?);
    layers.push(flag_layer(flags, environment));
    Ok(layers)
}

fn named_file(environment: &Environment, flags: &Flags) -> Option<(PathBuf, &'static str)> {
    match (&flags.config, environment.get("DSHD_CONFIG")) {
        (Some(path), _) => Some((environment.cwd().join(path), "--config")),
        (None, Some(path)) => Some((environment.cwd().join(path), "DSHD_CONFIG")),
        (None, None) => None,
    }
}

fn flag_layer(flags: &Flags, environment: &Environment) -> Layer {
    let mut layer = Layer::default();
    if let Some(dir) = &flags.data_dir {
        let dir = environment.cwd().join(dir).to_string_lossy().into_owned();
        layer.set_at("data_dir", dir, Source::Flag { name: "--data-dir" });
    }
    if !flags.listen.is_empty() {
        let listen: Vec<Value> = flags.listen.iter().filter_map(|one| Value::serialize(one).ok()).collect();
        layer.set_at("listen", listen, Source::Flag { name: "--listen" });
    }
    if let Some(level) = &flags.log_level {
        layer.set_at("log.level", level.as_str(), Source::Flag { name: "--log-level" });
    }
    if let Some(format) = flags.log_format {
        let name = match format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        layer.set_at("log.format", name, Source::Flag { name: "--log-format" });
    }
    layer
}

/// The figment of all layers on top of the built-in defaults.
fn figment(layers: &[Layer]) -> Figment {
    layers.iter().fold(Figment::from(Serialized::defaults(Config::default())), |figment, layer| {
        figment.merge(Serialized::defaults(layer.values.clone()))
    })
}

fn merged(layers: &[Layer]) -> Result<Dict, ConfigError> {
    figment(layers).extract().map_err(|error| conflict(&error))
}

fn merge(layers: Vec<Layer>) -> Result<(Config, BTreeMap<String, Source>), ConfigError> {
    let config = figment(&layers).extract().map_err(|error| conflict(&error))?;
    let mut sources = BTreeMap::new();
    for layer in layers {
        let mut leaves = BTreeMap::new();
        keys::collect("", &layer.values, &mut leaves);
        for key in leaves.into_keys() {
            if let Some(origin) = layer.origins.get(&key) {
                sources.insert(key, origin.clone());
            }
        }
    }
    Ok((config, sources))
}

/// Each layer was checked by itself, so that only their sum can be wrong here.
fn conflict(error: &figment::Error) -> ConfigError {
    ConfigError::Value {
        key: keys::join(&error.path),
        origin: Source::Default,
        reason: error.kind.to_string(),
    }
}

/// Makes paths absolute: those of a file from its directory, others from the working directory; `~/` is the home.
fn absolute_paths(config: &mut Config, sources: &BTreeMap<String, Source>, environment: &Environment) {
    let base = |key: &str| match sources.get(key) {
        Some(Source::File { path, .. }) => path.parent().unwrap_or(Path::new("/")).to_path_buf(),
        Some(
            Source::Default
            | Source::Profile
            | Source::Variable { .. }
            | Source::Flag { .. }
            | Source::KeyFile { .. },
        )
        | None => environment.cwd().to_path_buf(),
    };
    let settle = |key: &str, path: &mut Option<PathBuf>| {
        if let Some(path) = path {
            *path = base(key).join(expand_home(path, environment));
        }
    };
    settle("data_dir", &mut config.data_dir);
    for listen in &mut config.listen {
        settle("listen", &mut listen.unix);
        if let Some(tls) = &mut listen.tls {
            settle("listen", &mut tls.cert);
            settle("listen", &mut tls.key);
            settle("listen", &mut tls.client_ca);
        }
    }
    settle("client.ca", &mut config.client.ca);
    settle("client.cert", &mut config.client.cert);
    settle("client.key", &mut config.client.key);
    for (name, provider) in &mut config.providers {
        let credential =
            provider.api_key_file.as_ref().and_then(|path| environment.credential(path.to_str()?));
        provider.api_key_file = credential.or_else(|| provider.api_key_file.take());
        settle(&keys::join(&["providers", name, "api_key_file"]), &mut provider.api_key_file);
        settle(&keys::join(&["providers", name, "ca_file"]), &mut provider.ca_file);
        settle(&keys::join(&["providers", name, "script"]), &mut provider.script);
    }
    for (name, server) in &mut config.mcp.servers {
        settle(&keys::join(&["mcp", "servers", name, "cwd"]), &mut server.cwd);
        let key = keys::join(&["mcp", "servers", name, "writable"]);
        for path in &mut server.writable {
            *path = base(&key).join(expand_home(path, environment));
        }
    }
    for workspace in &mut config.mcp.trusted_workspaces {
        *workspace = base("mcp.trusted_workspaces").join(expand_home(workspace, environment));
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
