//! The process's environment as data: read once by `main`, passed to whoever needs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The system's configuration.
const SYSTEM_CONFIG: &str = "/etc/dshd/dshd.toml";

/// Variables, working directory and system configuration of a process. An empty variable counts as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    cwd: PathBuf,
    system_config: Option<PathBuf>,
}

impl Environment {
    /// That of this process. Variables that are not UTF-8 are left out, since none of ours may be.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Self { variables, cwd, system_config: Some(PathBuf::from(SYSTEM_CONFIG)) }
    }

    /// One made of these variables, in the directory `/`, without system configuration.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let variables =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { variables, cwd: PathBuf::from("/"), system_config: None }
    }

    /// The same variables in another directory.
    #[must_use]
    pub fn in_directory(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    /// The same with this system configuration.
    #[must_use]
    pub fn with_system_config(mut self, path: impl Into<PathBuf>) -> Self {
        self.system_config = Some(path.into());
        self
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A variable that holds an absolute path; XDG asks that others be ignored.
    pub fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// The file of a service manager's credential (`LoadCredential=`), if there is one of this name.
    pub fn credential(&self, name: &str) -> Option<PathBuf> {
        if name.is_empty() || name.contains('/') {
            return None;
        }
        self.absolute("CREDENTIALS_DIRECTORY")
            .map(|directory| directory.join(name))
            .filter(|path| path.is_file())
    }

    /// All variables that are not empty, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(_, value)| !value.is_empty())
    }

    /// The system's configuration file, which need not exist.
    pub fn system_config(&self) -> Option<&Path> {
        self.system_config.as_deref()
    }

    /// The working directory.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let environment = Environment::of([("DSHD_CONNECT", ""), ("HOME", "/home/me")]);
        assert_eq!(environment.get("DSHD_CONNECT"), None);
        assert_eq!(environment.iter().collect::<Vec<_>>(), [("HOME", "/home/me")]);
    }

    #[test]
    fn a_relative_base_directory_is_ignored() {
        let environment = Environment::of([("XDG_STATE_HOME", "state")]);
        assert_eq!(environment.absolute("XDG_STATE_HOME"), None);
    }
}
