//! The configuration in force as rows: key, value, where it was set. Secrets are masked.

use std::path::Path;

use figment::value::Value;

use super::{Credentials, CredentialsError, KeyPlace, Loaded, Secret, Source, api_key, keys};

/// One value in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The dotted key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Where it was set.
    pub source: Source,
    /// The value is a mask and no value to write in a file.
    pub secret: bool,
}

/// All values in force by key, and of each provider's key whether it is set.
///
/// # Errors
/// When stored keys can't be read.
pub fn rows(loaded: &Loaded) -> Result<Vec<Row>, CredentialsError> {
    let mut rows: Vec<Row> = keys::flatten(&loaded.config)
        .into_iter()
        .map(|(key, value)| {
            let source = loaded.source(&key);
            if is_secret(&key)
                && let Some(secret) = value.as_str().and_then(Secret::new)
            {
                return Row { value: Value::from(secret.masked()), source, secret: true, key };
            }
            Row { value: masked(&key, value), source, secret: false, key }
        })
        .collect();
    let path = loaded.paths.credentials.as_deref();
    let credentials = path.map_or_else(|| Ok(Credentials::default()), Credentials::read)?;
    let path = path.unwrap_or(Path::new(""));
    for (name, provider) in &loaded.config.providers {
        if let Some(found) = api_key(name, provider, &loaded.environment, (&credentials, path))? {
            rows.push(Row {
                key: keys::join(&["providers", name, "api_key"]),
                value: Value::from(found.key.masked()),
                source: found.place.into(),
                secret: true,
            });
        }
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(rows)
}

impl From<KeyPlace> for Source {
    fn from(place: KeyPlace) -> Self {
        match place {
            KeyPlace::Variable(name) => Self::Variable { name },
            KeyPlace::File(path) | KeyPlace::Login(path) => Self::KeyFile { path },
        }
    }
}

/// The keys that may be asked for although nothing sets them, and whether one of them is meant by a misspelt one.
pub fn nearest_key(loaded: &Loaded, key: &str) -> Option<String> {
    let values = keys::flatten(&loaded.config);
    let known = keys::known();
    let candidates = values.keys().chain(known.iter()).map(String::as_str);
    keys::nearest(key, candidates).map(str::to_owned)
}

/// Whether a key exists, set or not.
pub fn is_key(loaded: &Loaded, key: &str) -> bool {
    keys::known().iter().any(|known| known == key) || keys::flatten(&loaded.config).contains_key(key)
}

/// A value as TOML writes it. What is not set inside is left out.
pub fn toml(value: &Value) -> String {
    match value {
        Value::String(_, text) => toml_edit::Value::from(text.as_str()).to_string(),
        Value::Char(_, c) => toml_edit::Value::from(c.to_string()).to_string(),
        Value::Bool(_, flag) => flag.to_string(),
        Value::Num(_, number) => match (number.to_i128(), number.to_u128(), number.to_f64()) {
            (Some(number), ..) => number.to_string(),
            (None, Some(number), _) => number.to_string(),
            (None, None, number) => format!("{:?}", number.unwrap_or_default()),
        },
        Value::Empty(..) => "\"\"".to_owned(),
        Value::Dict(_, table) => {
            let set = table.iter().filter(|(_, value)| !matches!(value, Value::Empty(..)));
            let members: Vec<String> =
                set.map(|(name, value)| format!("{} = {}", keys::join(&[name]), toml(value))).collect();
            if members.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", members.join(", ")) }
        }
        Value::Array(_, values) => {
            format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Headers, and variables of MCP servers, hold tokens more often than not.
fn is_secret(key: &str) -> bool {
    let of_mcp = key.strip_prefix("mcp.servers.");
    of_mcp.is_some_and(|rest| rest.contains(".env.") || rest.contains(".headers."))
        || key.strip_prefix("providers.").is_some_and(|rest| rest.contains(".headers."))
}

fn is_address(key: &str) -> bool {
    match key.rsplit_once('.') {
        Some((_, "base_url")) => true,
        Some((table, "url")) => table.starts_with("mcp.servers."),
        Some(_) | None => false,
    }
}

/// A URL's password is a secret too.
fn masked(key: &str, value: Value) -> Value {
    let Value::String(_, url) = &value else { return value };
    if !is_address(key) {
        return value;
    }
    let Some((scheme, rest)) = url.split_once("://") else { return value };
    let authority = rest.find('/').map_or(rest, |end| &rest[..end]);
    match authority.rsplit_once('@') {
        Some((user, _)) => {
            let user = user.split(':').next().unwrap_or_default();
            let host = &rest[authority.rfind('@').unwrap_or(0)..];
            Value::from(format!("{scheme}://{user}:…{host}"))
        }
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Flags, load};

    #[test]
    fn a_key_is_shown_as_set_and_never_as_it_is() {
        let environment = Environment::of([("HOME", "/nowhere"), ("OPENAI_API_KEY", "sk-secret")]);
        let rows = rows(&load(&environment, &Flags::default()).unwrap()).unwrap();
        let row = rows.iter().find(|row| row.key == "providers.openai.api_key").unwrap();
        assert_eq!(row.source, Source::variable("OPENAI_API_KEY"));
        assert!(row.value.as_str().unwrap().starts_with("set (sha256:"));
        assert!(!format!("{rows:?}").contains("sk-secret"));
    }

    #[test]
    fn a_headers_value_is_shown_as_set_and_never_as_it_is() {
        let environment = Environment::of([("HOME", "/nowhere")]);
        let mut loaded = load(&environment, &Flags::default()).unwrap();
        let openai = loaded.config.providers.get_mut("openai").unwrap();
        openai.headers.insert("x-api.key".to_owned(), "sk-secret".to_owned());
        let rows = rows(&loaded).unwrap();
        let row = rows.iter().find(|row| row.key == "providers.openai.headers.\"x-api.key\"").unwrap();
        assert!(row.secret && row.value.as_str().unwrap().starts_with("set (sha256:"));
        assert!(!format!("{rows:?}").contains("sk-secret"));
    }

    #[test]
    fn what_an_mcp_server_is_given_is_shown_as_set_and_never_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dshd.toml");
        let text = "[mcp.servers.a]\ncommand = \"x\"\nenv = { TOKEN = \"t0k\" }\n\
                    [mcp.servers.b]\nurl = \"http://x/\"\nheaders = { \"X-Key\" = \"k3y\" }\n";
        std::fs::write(&file, text).unwrap();
        let environment = Environment::of([("HOME", "/nowhere")]);
        let flags = Flags { config: Some(file), ..Flags::default() };
        let rows = rows(&load(&environment, &flags).unwrap()).unwrap();
        let row = rows.iter().find(|row| row.key == "mcp.servers.a.env.TOKEN").unwrap();
        assert!(row.secret && row.value.as_str().unwrap().starts_with("set (sha256:"));
        let shown = format!("{rows:?}");
        assert!(!shown.contains("t0k") && !shown.contains("k3y"), "{shown}");
    }

    #[test]
    fn a_urls_password_is_masked() {
        let url = Value::from("https://me:pw@host/v1");
        assert_eq!(masked("providers.x.base_url", url), Value::from("https://me:…@host/v1"));
        let plain = Value::from("https://host/v1?a=b@c");
        assert_eq!(masked("providers.x.base_url", plain.clone()), plain);
    }
}
