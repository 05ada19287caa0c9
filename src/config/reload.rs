//! Reading the configuration again while the daemon runs.

use super::{Config, ConfigError, Loaded, keys, load};

/// Keys, or tables, that are read once at start.
const FIXED: [&str; 11] = [
    "data_dir",
    "listen",
    "limits.connections",
    "limits.connections_per_uid",
    "limits.preauth_connections",
    "limits.in_flight_total",
    "limits.children",
    "log.format",
    "log.files_kept",
    "auth.allowed_uids",
    "metrics.listen",
];

/// Loads once more from the same places: files as they are now, the environment and the flags as they were.
///
/// # Errors
/// [`ConfigError`]; the old configuration stays in force.
pub fn reload(old: &Loaded) -> Result<Loaded, ConfigError> {
    load(&old.environment, &old.flags)
}

/// The keys that have changed and that only a restart applies.
pub fn changed_but_fixed(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (keys::flatten(old), keys::flatten(new));
    FIXED.iter().filter(|key| old.get(**key) != new.get(**key)).map(|key| (*key).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{Environment, Flags, Listen};

    #[test]
    fn files_are_read_again_and_a_bad_one_keeps_the_old() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dshd.toml");
        fs::write(&file, "[limits]\nin_flight = 7\n").unwrap();
        let environment = Environment::of([("HOME", "/nowhere")]);
        let flags = Flags { config: Some(file.clone()), ..Flags::default() };
        let old = load(&environment, &flags).unwrap();
        fs::write(&file, "[limits]\nin_flight = 8\n").unwrap();
        assert_eq!(reload(&old).unwrap().config.limits.in_flight, 8);
        fs::write(&file, "[limits]\nin_flight = 0\n").unwrap();
        let error = reload(&old).unwrap_err().to_string();
        assert!(error.ends_with("dshd.toml:2: `limits.in_flight`: at least 1, got 0"), "{error}");
        assert_eq!(old.config.limits.in_flight, 7);
    }

    #[test]
    fn a_change_that_needs_a_restart_is_named() {
        let old = Config::default();
        let mut new = old.clone();
        new.turn.max_steps = 1;
        assert_eq!(changed_but_fixed(&old, &new), Vec::<String>::new());
        new.limits.connections = 1;
        new.listen.push(Listen::unix("/x"));
        assert_eq!(changed_but_fixed(&old, &new), ["listen", "limits.connections"]);
    }
}
