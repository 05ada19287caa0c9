//! A layer of configuration: values from one place, checked by themselves, each with its origin.

use std::collections::BTreeMap;

use figment::error::Kind;
use figment::value::{Dict, Value};
use serde::Deserialize;

use super::keys;
use super::{Config, ConfigError, Source};

/// Values from one place.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// The values.
    pub(super) values: Dict,
    /// Where each table and value was set, by dotted key; elements of lists by their index.
    pub(super) origins: BTreeMap<String, Source>,
}

impl Layer {
    /// Sets one value.
    pub(super) fn set(&mut self, path: &[String], value: Value, origin: Source) {
        self.origins.insert(keys::join(path), origin);
        keys::insert(&mut self.values, path, value);
    }

    /// Sets one value at a dotted path of bare keys.
    pub(super) fn set_at(&mut self, key: &str, value: impl Into<Value>, origin: Source) {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        self.set(&path, value.into(), origin);
    }

    /// Checks keys and types of this layer alone, so that a wrong value is found even where a later layer hides it.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        Config::deserialize(&Value::from(self.values.clone())).map(drop).map_err(|error| self.refusal(&error))
    }

    fn refusal(&self, error: &figment::Error) -> ConfigError {
        let key = keys::join(&error.path);
        let origin = self.origin(&error.path);
        match &error.kind {
            Kind::UnknownField(name, expected) => {
                ConfigError::UnknownKey { nearest: nearest(&error.path, name, expected), key, origin }
            }
            kind @ (Kind::Message(_)
            | Kind::InvalidType(..)
            | Kind::InvalidValue(..)
            | Kind::InvalidLength(..)
            | Kind::UnknownVariant(..)
            | Kind::MissingField(_)
            | Kind::DuplicateField(_)
            | Kind::ISizeOutOfRange(_)
            | Kind::USizeOutOfRange(_)
            | Kind::Unsupported(_)
            | Kind::UnsupportedKey(..)) => ConfigError::Value { key, origin, reason: reason(kind) },
        }
    }

    /// The origin of a path, or of the nearest table around it.
    fn origin(&self, path: &[String]) -> Source {
        (0..=path.len())
            .rev()
            .find_map(|length| self.origins.get(&keys::join(&path[..length])).cloned())
            .unwrap_or(Source::Default)
    }
}

fn reason(kind: &Kind) -> String {
    match kind {
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            format!("expected {}, got {actual}", in_words(expected))
        }
        Kind::UnknownVariant(name, expected) => {
            let expected: Vec<String> = expected.iter().map(|name| format!("\"{name}\"")).collect();
            format!("expected one of {}, got \"{name}\"", expected.join(", "))
        }
        Kind::Message(_)
        | Kind::InvalidLength(..)
        | Kind::UnknownField(..)
        | Kind::MissingField(_)
        | Kind::DuplicateField(_)
        | Kind::ISizeOutOfRange(_)
        | Kind::USizeOutOfRange(_)
        | Kind::Unsupported(_)
        | Kind::UnsupportedKey(..) => kind.to_string(),
    }
}

fn in_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// The nearest key beside an unknown one, else the key of that name elsewhere, else the nearest key anywhere.
fn nearest(path: &[String], name: &str, beside: &[&str]) -> Option<String> {
    let above = &path[..path.len().saturating_sub(1)];
    if let Some(nearest) = keys::nearest(name, beside.iter().copied()) {
        let mut path = above.to_vec();
        path.push(nearest.to_owned());
        return Some(keys::join(&path));
    }
    let known = keys::known();
    let known = || known.iter().map(String::as_str).filter(|key| !key.starts_with("providers."));
    let moved = known().find(|key| key.rsplit('.').next() == Some(name));
    moved.or_else(|| keys::nearest(&keys::join(path), known())).map(str::to_owned)
}
