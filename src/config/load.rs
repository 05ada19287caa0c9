//! Loading: built-in defaults, files, variables, flags, in this order; later ones win.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use super::paths::default_data_dir;
use super::{Config, ConfigError, Environment, Listen, LogFormat, Paths, Source};

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
    /// The values. `data_dir` and `listen` are always filled in.
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
    flags: Flags,
}

impl Loaded {
    /// Writes the warnings to stderr.
    pub fn tell_warnings(&self) {
        for warning in &self.warnings {
            // Nobody is left to warn when stderr is gone.
            let _ = writeln!(anstream::stderr(), "warning: {warning}");
        }
    }
}

/// Loads the configuration.
///
/// # Errors
/// [`ConfigError`], naming key, file and line.
pub fn load(environment: &Environment, flags: &Flags) -> Result<Loaded, ConfigError> {
    let mut config = Config::default();
    let mut paths = Paths::new(environment);
    let data_dir = flags
        .data_dir
        .clone()
        .or_else(|| environment.get("DSHD_DATA_DIR").map(PathBuf::from))
        .or_else(|| default_data_dir(environment, flags.profile))
        .ok_or(ConfigError::NoDataDirectory)?;
    paths.place_data(&environment.cwd().join(data_dir), environment);
    config.data_dir = Some(paths.data_dir.clone());
    config.listen.clone_from(&flags.listen);
    if config.listen.is_empty() {
        config.listen.push(Listen::unix(&paths.socket));
    }
    Ok(Loaded {
        config,
        sources: BTreeMap::new(),
        warnings: Vec::new(),
        paths,
        profile: flags.profile,
        deltas: flags.profile == Profile::Standard || environment.get("DSHD_DELTAS") == Some("1"),
        environment: environment.clone(),
        flags: flags.clone(),
    })
}
