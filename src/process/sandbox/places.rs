//! What no program may see, and what each gets an empty one of.

use std::path::{Path, PathBuf};

use crate::config::Loaded;

/// Where sockets and other people's temporary files are: `connect` to a socket passes a read-only mount.
const PRIVATE: [&str; 3] = ["/run", "/tmp", "/var/tmp"];

/// What people keep their keys in, below the home.
const SECRETS_AT_HOME: [&str; 18] = [
    ".ssh",
    ".aws",
    ".azure",
    ".config/dshd",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
];

/// What the machine keeps its keys in; users other than root can't read most of it anyway.
const SECRETS_OF_SYSTEM: [&str; 5] =
    ["/etc/dshd", "/etc/gshadow", "/etc/shadow", "/etc/ssh", "/etc/ssl/private"];

/// Places that programs see otherwise than they are. As configured: what of it is there is looked at for each program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// Nobody sees these.
    pub(super) hidden: Vec<PathBuf>,
    /// Each program sees an empty one of these, or none.
    pub(super) private: Vec<PathBuf>,
    /// Where programs are looked up.
    pub(super) programs: Vec<PathBuf>,
}

impl Places {
    pub(super) fn new(loaded: &Loaded) -> Self {
        let (environment, paths) = (&loaded.environment, &loaded.paths);
        let mut hidden = vec![paths.data_dir.clone()];
        hidden.extend(SECRETS_OF_SYSTEM.map(PathBuf::from));
        let config_dir = paths.user_config.as_deref().and_then(Path::parent);
        hidden.extend(config_dir.map(Path::to_path_buf));
        hidden.extend(paths.credentials.clone());
        hidden.extend(paths.files.iter().cloned());
        hidden.extend(loaded.config.listen.iter().filter_map(|listen| listen.unix.clone()));
        let key_files = loaded.config.providers.values().filter_map(|one| one.api_key_file.clone());
        hidden.extend(key_files);
        if let Some(home) = environment.absolute("HOME") {
            hidden.extend(SECRETS_AT_HOME.map(|secret| home.join(secret)));
        }
        hidden.extend(environment.absolute("CREDENTIALS_DIRECTORY"));
        let mut private: Vec<PathBuf> = PRIVATE.map(PathBuf::from).into();
        private.extend(environment.absolute("XDG_RUNTIME_DIR"));
        private.extend(environment.absolute("TMPDIR"));
        let path = environment.get("PATH").unwrap_or_default();
        let programs = std::env::split_paths(path).filter(|path| path.is_absolute()).collect();
        Self { hidden, private, programs }
    }
}
