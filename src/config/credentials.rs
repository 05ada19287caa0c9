//! Keys of providers: the file that `dshd login` writes, and the search for a key. A key is never logged or shown.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};
use toml_edit::{DocumentMut, Item, Table, value};
use zeroize::Zeroizing;

use super::private_file::write_private;
use super::{Environment, ProviderConfig};

/// A secret text. Neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Keeps a text; white space around it, as of a file's end, is dropped. None when nothing is left.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `set (sha256:ab12…)`: enough to tell two secrets apart, too little to guess one.
    pub fn masked(&self) -> String {
        let digest = Sha256::digest(self.0.as_bytes());
        format!("set (sha256:{:02x}{:02x}…)", digest[0], digest[1])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Where a key was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind", content = "name")]
pub enum KeyPlace {
    /// The variable that `api_key_env` names.
    Variable(String),
    /// The file that `api_key_file` names.
    File(PathBuf),
    /// The file that `dshd login` writes.
    Login(PathBuf),
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) | Self::Login(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A provider's key and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySource {
    /// The key.
    pub key: Secret,
    /// Where it was found.
    pub place: KeyPlace,
}

/// Why keys can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file can't be read or written.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// `read` or `write`.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The file is not what `dshd login` writes.
    #[error("{} is not a file of keys: {reason}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The keys that `dshd login` has stored: `[keys]` with `provider = "key"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    keys: BTreeMap<String, Secret>,
}

impl Credentials {
    /// Reads a file; one that is not there holds no keys.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                return Err(CredentialsError::Io { doing: "read", path: path.to_path_buf(), error });
            }
        };
        let malformed = |reason: &str| CredentialsError::Malformed {
            path: path.to_path_buf(),
            reason: reason.to_owned(),
        };
        // The parser's own message would quote the line, and with it a key.
        let document: DocumentMut = text.parse().map_err(|_| malformed("not TOML"))?;
        let mut keys = BTreeMap::new();
        let Some(table) = document.get("keys") else { return Ok(Self { keys }) };
        let table = table.as_table_like().ok_or_else(|| malformed("`keys` is no table"))?;
        for (provider, item) in table.iter() {
            let key = item.as_str().and_then(Secret::new);
            keys.insert(provider.to_owned(), key.ok_or_else(|| malformed("a key is no text, or empty"))?);
        }
        Ok(Self { keys })
    }

    /// A provider's key.
    pub fn get(&self, provider: &str) -> Option<&Secret> {
        self.keys.get(provider)
    }

    /// The providers that have a key.
    pub fn providers(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Sets a key. Says whether there was one.
    pub fn set(&mut self, provider: &str, key: Secret) -> bool {
        self.keys.insert(provider.to_owned(), key).is_some()
    }

    /// Removes a key. Says whether there was one.
    pub fn remove(&mut self, provider: &str) -> bool {
        self.keys.remove(provider).is_some()
    }

    /// Writes the file, readable by us alone, in one step.
    ///
    /// # Errors
    /// [`CredentialsError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), CredentialsError> {
        let mut table = Table::new();
        for (provider, key) in &self.keys {
            table.insert(provider, value(key.expose()));
        }
        let mut document = DocumentMut::new();
        document.insert("keys", Item::Table(table));
        write_private(path, &Zeroizing::new(document.to_string())).map_err(|error| CredentialsError::Io {
            doing: "write",
            path: path.to_path_buf(),
            error,
        })
    }
}

/// What is to be said of a file of secrets that others can read.
pub fn loose_secret(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        let path = path.display();
        format!("{path} holds keys and others can read it (mode {mode:04o}); chmod 600 {path}")
    })
}

/// Looks for a provider's key: its variable, its file, the service manager's credential of its name, then what
/// `dshd login` stored.
///
/// # Errors
/// When a file that is there can't be read.
pub fn api_key(
    name: &str,
    provider: &ProviderConfig,
    environment: &Environment,
    login: (&Credentials, &Path),
) -> Result<Option<KeySource>, CredentialsError> {
    let variable = provider.api_key_env.as_deref();
    if let Some((name, key)) = variable.and_then(|name| Some((name, Secret::new(environment.get(name)?)?))) {
        return Ok(Some(KeySource { key, place: KeyPlace::Variable(name.to_owned()) }));
    }
    if let Some(path) = &provider.api_key_file {
        let text = fs::read_to_string(path).map(Zeroizing::new).map_err(|error| CredentialsError::Io {
            doing: "read the key in",
            path: path.clone(),
            error,
        })?;
        if let Some(key) = Secret::new(&text) {
            return Ok(Some(KeySource { key, place: KeyPlace::File(path.clone()) }));
        }
    }
    if let Some(path) = environment.credential(name) {
        let text = fs::read_to_string(&path).map(Zeroizing::new).map_err(|error| CredentialsError::Io {
            doing: "read the key in",
            path: path.clone(),
            error,
        })?;
        if let Some(key) = Secret::new(&text) {
            return Ok(Some(KeySource { key, place: KeyPlace::File(path) }));
        }
    }
    let (credentials, path) = login;
    Ok(credentials
        .get(name)
        .map(|key| KeySource { key: key.clone(), place: KeyPlace::Login(path.to_path_buf()) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_were_written_are_read_back_and_only_we_can_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dshd/credentials.toml");
        let mut credentials = Credentials::default();
        assert!(!credentials.set("my.own", Secret::new(" sk-1\"2 \n").unwrap()));
        credentials.write(&path).unwrap();
        let read = Credentials::read(&path).unwrap();
        assert_eq!(read.get("my.own").unwrap().expose(), "sk-1\"2");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn no_file_is_no_keys() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Credentials::read(&dir.path().join("none")).unwrap(), Credentials::default());
    }

    #[test]
    fn a_message_about_the_file_never_quotes_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials.toml");
        fs::write(&path, "[keys]\nopenai = sk-secret\n").unwrap();
        let error = Credentials::read(&path).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sk-secret"));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("sk-secret").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        assert!(secret.masked().starts_with("set (sha256:"), "{}", secret.masked());
    }

    #[test]
    fn a_variable_wins_over_the_file_and_the_file_over_the_login() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        fs::write(&file, "from-file\n").unwrap();
        let mut credentials = Credentials::default();
        credentials.set("x", Secret::new("from-login").unwrap());
        let mut provider =
            ProviderConfig { api_key_env: Some("KEY".to_owned()), ..ProviderConfig::default() };
        let find = |provider: &ProviderConfig, variables: &[(&str, &str)]| {
            let environment = Environment::of(variables.iter().copied());
            let found = api_key("x", provider, &environment, (&credentials, Path::new("/c"))).unwrap();
            found.map(|found| found.key.expose().to_owned())
        };
        assert_eq!(find(&provider, &[]).as_deref(), Some("from-login"));
        provider.api_key_file = Some(file);
        assert_eq!(find(&provider, &[("KEY", "")]).as_deref(), Some("from-file"));
        assert_eq!(find(&provider, &[("KEY", "from-variable")]).as_deref(), Some("from-variable"));
    }

    #[test]
    fn a_credential_of_the_service_manager_is_a_key() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x"), "from-systemd\n").unwrap();
        let place = dir.path().to_str().unwrap();
        let environment = Environment::of([("CREDENTIALS_DIRECTORY", place)]);
        let mut credentials = Credentials::default();
        credentials.set("x", Secret::new("from-login").unwrap());
        credentials.set("../x", Secret::new("from-login").unwrap());
        let provider = ProviderConfig::default();
        let find = |name: &str| {
            let found = api_key(name, &provider, &environment, (&credentials, Path::new("/c"))).unwrap();
            found.unwrap().key.expose().to_owned()
        };
        assert_eq!(find("x"), "from-systemd");
        // A name is no path.
        assert_eq!(find("../x"), "from-login");
    }

    #[test]
    fn a_file_that_others_can_read_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials.toml");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(loose_secret(&path).unwrap().contains("mode 0644"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(loose_secret(&path), None);
    }
}
