//! Where configuration, data and sockets are when nothing says otherwise.

use std::path::{Path, PathBuf};

use super::{Environment, Profile};

/// The file of tokens, in the data directory or among the service manager's credentials.
const TOKENS: &str = "tokens.toml";

/// Where things are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// The system's configuration, `/etc/dshd/dshd.toml`.
    pub system_config: Option<PathBuf>,
    /// The user's configuration; none without a home.
    pub user_config: Option<PathBuf>,
    /// Keys of providers, beside the user's configuration; none without a home.
    pub credentials: Option<PathBuf>,
    /// Configuration files that were read, in order; later ones win.
    pub files: Vec<PathBuf>,
    /// Sessions, locks, logs and tokens.
    pub data_dir: PathBuf,
    /// The Unix socket of this user's daemon.
    pub socket: PathBuf,
    /// The tokens of TCP clients.
    pub tokens: PathBuf,
    /// Daily logs.
    pub logs: PathBuf,
}

impl Paths {
    /// Where configuration is. Data has no place yet.
    pub fn new(environment: &Environment) -> Self {
        let config_dir = config_dir(environment);
        Self {
            system_config: environment.system_config().map(Path::to_path_buf),
            user_config: config_dir.as_deref().map(|dir| dir.join("dshd.toml")),
            credentials: config_dir.map(|dir| dir.join("credentials.toml")),
            ..Self::default()
        }
    }

    /// Places all that is in the data directory.
    pub(super) fn place_data(&mut self, data_dir: &Path, environment: &Environment) {
        self.socket = socket(data_dir, environment);
        self.tokens = environment.credential(TOKENS).unwrap_or_else(|| data_dir.join(TOKENS));
        self.logs = data_dir.join("log");
        self.data_dir = data_dir.to_path_buf();
    }
}

/// The certificate that `dshd tls init` makes for the daemon, with those that lead to its CA, and its key.
pub fn tls_files(data_dir: &Path) -> (PathBuf, PathBuf) {
    let dir = data_dir.join("tls");
    (dir.join("server.pem"), dir.join("server.key"))
}

fn home(environment: &Environment) -> Option<PathBuf> {
    environment.absolute("HOME")
}

fn config_dir(environment: &Environment) -> Option<PathBuf> {
    let base =
        environment.absolute("XDG_CONFIG_HOME").or_else(|| Some(home(environment)?.join(".config")))?;
    Some(base.join("dshd"))
}

/// The default data directory; none without a home.
pub(super) fn default_data_dir(environment: &Environment, profile: Profile) -> Option<PathBuf> {
    match profile {
        Profile::Standard => environment.absolute("STATE_DIRECTORY").or_else(|| {
            let state = environment
                .absolute("XDG_STATE_HOME")
                .or_else(|| Some(home(environment)?.join(".local/state")))?;
            Some(state.join("dshd"))
        }),
        Profile::Sdk => {
            let dsh = environment.absolute("DSH_HOME").or_else(|| Some(home(environment)?.join(".dsh")))?;
            Some(dsh.join("dshd"))
        }
    }
}

/// `$XDG_RUNTIME_DIR/dshd/dshd.sock`, and without that variable a socket below the data directory.
fn socket(data_dir: &Path, environment: &Environment) -> PathBuf {
    match environment.absolute("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("dshd/dshd.sock"),
        None => data_dir.join("run/dshd.sock"),
    }
}

/// Replaces a leading `~/` by the home.
pub(super) fn expand_home(path: &Path, environment: &Environment) -> PathBuf {
    match (path.strip_prefix("~"), home(environment)) {
        (Ok(rest), Some(home)) => home.join(rest),
        (Ok(_) | Err(_), _) => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variables: &[(&str, &str)], profile: Profile, expected: &str) {
        let environment = Environment::of(variables.iter().copied());
        assert_eq!(default_data_dir(&environment, profile).unwrap(), Path::new(expected));
    }

    #[test]
    fn the_data_directory_is_systemds_then_xdgs_then_below_home() {
        let home = ("HOME", "/home/me");
        let xdg = ("XDG_STATE_HOME", "/state");
        check(&[home], Profile::Standard, "/home/me/.local/state/dshd");
        check(&[home, xdg], Profile::Standard, "/state/dshd");
        check(&[home, xdg, ("STATE_DIRECTORY", "/var/lib/dshd")], Profile::Standard, "/var/lib/dshd");
    }

    #[test]
    fn under_the_sdk_profile_data_is_in_the_harness_home() {
        check(&[("HOME", "/home/me"), ("DSH_HOME", "/dsh")], Profile::Sdk, "/dsh/dshd");
        check(&[("HOME", "/home/me")], Profile::Sdk, "/home/me/.dsh/dshd");
    }

    #[test]
    fn the_socket_is_in_the_runtime_directory_or_below_the_data() {
        let data = Path::new("/data");
        let with = Environment::of([("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(socket(data, &with), Path::new("/run/user/7/dshd/dshd.sock"));
        assert_eq!(socket(data, &Environment::default()), Path::new("/data/run/dshd.sock"));
    }
}
