//! The configuration in force as rows: key, value, where it was set. Secrets are masked.

use std::path::Path;

use figment::value::Value;

use super::{Credentials, CredentialsError, Loaded, api_key, keys};

/// One value in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The dotted key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Where it was set: `default`, `FILE:LINE`, a variable, a flag.
    pub source: String,
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
            let source = loaded.source(&key).to_string();
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
                source: found.place.to_string(),
                secret: true,
            });
        }
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(rows)
}

/// A URL's password is a secret too.
fn masked(key: &str, value: Value) -> Value {
    let Value::String(_, url) = &value else { return value };
    if !key.ends_with(".base_url") {
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
        assert_eq!(row.source, "OPENAI_API_KEY");
        assert!(row.value.as_str().unwrap().starts_with("set (sha256:"));
        assert!(!format!("{rows:?}").contains("sk-secret"));
    }

    #[test]
    fn a_urls_password_is_masked() {
        let url = Value::from("https://me:pw@host/v1");
        assert_eq!(masked("providers.x.base_url", url), Value::from("https://me:…@host/v1"));
        let plain = Value::from("https://host/v1?a=b@c");
        assert_eq!(masked("providers.x.base_url", plain.clone()), plain);
    }
}
