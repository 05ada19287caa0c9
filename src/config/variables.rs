//! The layer of the environment: `DSHD_LIMITS__IN_FLIGHT=64` sets `limits.in_flight`. Two underscores nest, since one
//! is part of a name.

use figment::value::{Dict, Value};

use super::layer::Layer;
use super::{ConfigError, Environment, Listen, Profile, Source, keys};

const PREFIX: &str = "DSHD_";

/// Variables that are no configuration keys, and who reads them.
const RESERVED: [&str; 6] =
    ["DSHD_CONNECT", "DSHD_TOKEN", "DSHD_TOKEN_FILE", "DSHD_CONFIG", "DSHD_DELTAS", "DSHD_SESSION"];

/// Short names of keys.
const ALIASES: [(&str, &str); 4] = [
    ("DSHD_LOG", "log.level"),
    ("DSHD_AUTOSTART", "client.autostart"),
    ("DSHD_CA", "client.ca"),
    ("DSHD_PIN", "client.pin"),
];

/// Reads the environment's layer. `below` has the values of the layers below, which say how names are spelt.
/// An unknown variable is a warning, since it may be of another version.
///
/// # Errors
/// A value that its key can't take.
pub(super) fn read(
    environment: &Environment,
    profile: Profile,
    below: &Dict,
    warnings: &mut Vec<String>,
) -> Result<Layer, ConfigError> {
    let mut layer = Layer::default();
    foreign(environment, profile, &mut layer);
    layer.check()?;
    for (name, text) in environment.iter() {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if RESERVED.contains(&name) {
            continue;
        }
        let path = match ALIASES.iter().find(|(alias, _)| *alias == name) {
            Some((_, key)) => key.split('.').map(str::to_owned).collect(),
            None => spelt(rest.split("__").map(str::to_ascii_lowercase).collect(), below),
        };
        match value(&path, text, name) {
            Ok(value) => layer.set(&path, value, Source::variable(name)),
            Err(ConfigError::UnknownKey { nearest, .. }) => warnings.push(unknown(name, nearest)),
            Err(error) => return Err(error),
        }
    }
    Ok(layer)
}

/// Variables of other programs that we follow.
fn foreign(environment: &Environment, profile: Profile, layer: &mut Layer) {
    let mut take = |name: &str, key: &str| {
        if let Some(text) = environment.get(name) {
            layer.set_at(key, text, Source::variable(name));
        }
    };
    take("DEEPSEEK_BASE_URL", "providers.deepseek-official.base_url");
    if profile == Profile::Sdk {
        take("DSH_PERMISSION_MODE", "sessions.permission_mode");
        if let Some(home) = environment.absolute("DSH_HOME") {
            let data = home.join("dshd").to_string_lossy().into_owned();
            layer.set_at("data_dir", data, Source::variable("DSH_HOME"));
        }
    }
}

/// The first reading of a text that its key can take: as a TOML value, as a string, as a list split at commas, as a
/// switch.
fn value(path: &[String], text: &str, name: &str) -> Result<Value, ConfigError> {
    let check = |value: Value| {
        let mut layer = Layer::default();
        layer.set(path, value.clone(), Source::variable(name));
        layer.check().map(|()| value)
    };
    let Ok(typed) = text.parse::<Value>();
    let refused = match check(typed) {
        Ok(value) => return Ok(value),
        Err(refused) => refused,
    };
    let others = [Some(Value::from(text)), Some(list(path, text)), switch(text)];
    others.into_iter().flatten().find_map(|value| check(value).ok()).ok_or(refused)
}

fn list(path: &[String], text: &str) -> Value {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    if path == ["listen"] {
        return Value::from(items.map(address).collect::<Vec<Value>>());
    }
    let items = items.map(|item| item.parse::<u32>().map_or_else(|_| Value::from(item), Value::from));
    Value::from(items.collect::<Vec<Value>>())
}

fn address(text: &str) -> Value {
    match text.parse::<Listen>() {
        Ok(Listen { unix: Some(path), .. }) => {
            Value::from(Dict::from([("unix".to_owned(), Value::from(path.to_string_lossy().into_owned()))]))
        }
        Ok(Listen { tcp: Some(tcp), tls, .. }) => {
            let mut keys = Dict::from([("tcp".to_owned(), Value::from(tcp))]);
            if tls.is_some() {
                keys.insert("tls".to_owned(), Value::from(Dict::new()));
            }
            Value::from(keys)
        }
        // The list is refused as a whole, with the first reading's reason.
        Ok(Listen { unix: None, tcp: None, .. }) | Err(_) => Value::from(text),
    }
}

fn switch(text: &str) -> Option<Value> {
    match text {
        "1" | "yes" | "on" => Some(Value::from(true)),
        "0" | "no" | "off" => Some(Value::from(false)),
        _ => None,
    }
}

/// Names of providers and models as the layers below spell them, since a variable can hold neither `-` nor `.`.
fn spelt(mut path: Vec<String>, below: &Dict) -> Vec<String> {
    if path.first().is_some_and(|table| table == "providers") && path.len() > 1 {
        let providers = table(below, "providers");
        path[1] = spelling(&path[1], providers);
        if path.len() > 3 && path[2] == "models" {
            let provider = providers.and_then(|providers| table(providers, &path[1]));
            path[3] = spelling(&path[3], provider.and_then(|provider| table(provider, "models")));
        }
    }
    path
}

fn table<'a>(dict: &'a Dict, name: &str) -> Option<&'a Dict> {
    match dict.get(name)? {
        Value::Dict(_, table) => Some(table),
        Value::String(..)
        | Value::Char(..)
        | Value::Bool(..)
        | Value::Num(..)
        | Value::Empty(..)
        | Value::Array(..) => None,
    }
}

fn spelling(name: &str, known: Option<&Dict>) -> String {
    let same = |candidate: &&String| {
        candidate
            .chars()
            .map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
            .eq(name.chars())
    };
    known.and_then(|known| known.keys().find(same)).cloned().unwrap_or_else(|| name.replace('_', "-"))
}

fn unknown(name: &str, nearest: Option<String>) -> String {
    let known: Vec<String> = keys::known().iter().map(|key| variable(key)).collect();
    let candidates = known.iter().map(String::as_str).chain(RESERVED).chain(ALIASES.map(|(alias, _)| alias));
    // One underscore where two belong is the usual slip; letters alone decide then.
    let letters = |text: &str| text.replace('_', "");
    let slip = known.iter().find(|candidate| letters(candidate) == letters(name)).cloned();
    let nearest = slip
        .or_else(|| keys::nearest(name, candidates).map(str::to_owned))
        .or_else(|| nearest.map(|key| variable(&key)));
    match nearest {
        Some(nearest) => format!("{name} is no variable of dshd and does nothing; did you mean {nearest}?"),
        None => format!("{name} is no variable of dshd and does nothing"),
    }
}

/// The variable of a key.
fn variable(key: &str) -> String {
    PREFIX.to_owned() + &key.replace(['-', '"'], "_").replace('.', "__").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Loaded, load};

    fn loaded(variables: &[(&str, &str)]) -> Loaded {
        let environment = Environment::of([("HOME", "/nowhere")].iter().chain(variables).copied());
        load(&environment, &Flags::default()).unwrap()
    }

    #[track_caller]
    fn refused(variable: (&str, &str), expected: &str) {
        let environment = Environment::of([("HOME", "/nowhere"), variable]);
        assert_eq!(load(&environment, &Flags::default()).unwrap_err().to_string(), expected);
    }

    #[track_caller]
    fn warned(variable: &str, expected: &str) {
        let loaded = loaded(&[(variable, "1")]);
        assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
        assert!(loaded.warnings[0].ends_with(expected), "{:?}", loaded.warnings);
    }

    #[test]
    fn two_underscores_nest_and_one_is_part_of_a_name() {
        let config = loaded(&[("DSHD_LIMITS__IN_FLIGHT", "7"), ("DSHD_LIMITS__LINE_BYTES", "2MiB")]).config;
        assert_eq!(config.limits.in_flight, 7);
        assert_eq!(config.limits.line_bytes.to_string(), "2MiB");
    }

    #[test]
    fn a_value_takes_the_type_of_its_key() {
        let config = loaded(&[
            ("DSHD_DEFAULT_MODEL", "4711"),
            ("DSHD_TOOLS__ENV", "FOO, BAR"),
            ("DSHD_AUTH__ALLOWED_UIDS", "1000"),
            ("DSHD_AUTOSTART", "0"),
            ("DSHD_LOG", "dshd=debug,info"),
            ("DSHD_TOOLS__ALLOW_UNSANDBOXED_REMOTE", "true"),
            ("DSHD_LISTEN", "unix:/run/x.sock,tcp:127.0.0.1:0"),
        ])
        .config;
        assert_eq!(config.default_model.as_deref(), Some("4711"));
        assert_eq!(config.tools.env, ["FOO", "BAR"]);
        assert_eq!(config.auth.allowed_uids, [1000]);
        assert!(!config.client.autostart);
        assert_eq!(config.log.level, "dshd=debug,info");
        assert_eq!(config.listen, [Listen::unix("/run/x.sock"), Listen::tcp("127.0.0.1:0")]);
    }

    #[test]
    fn a_providers_name_is_spelt_as_it_is_known() {
        let config = loaded(&[
            ("DSHD_PROVIDERS__DEEPSEEK_OFFICIAL__HTTP1_ONLY", "1"),
            ("DSHD_PROVIDERS__MY_OWN__BASE_URL", "http://127.0.0.1:1/v1"),
        ])
        .config;
        assert!(config.providers["deepseek-official"].http1_only);
        assert_eq!(config.providers["my-own"].base_url.as_deref(), Some("http://127.0.0.1:1/v1"));
    }

    #[test]
    fn a_value_that_its_key_cannot_take_refuses_and_names_the_variable() {
        refused(
            ("DSHD_LIMITS__IN_FLIGHT", "many"),
            "DSHD_LIMITS__IN_FLIGHT: `limits.in_flight`: expected a whole number, got string \"many\"",
        );
    }

    #[test]
    fn an_unknown_variable_warns_with_the_nearest() {
        warned("DSHD_CONECT", "did you mean DSHD_CONNECT?");
        warned("DSHD_LIMITS_IN_FLIGHT", "did you mean DSHD_LIMITS__IN_FLIGHT?");
        warned("DSHD_LIMITS__IN_FLIHGT", "did you mean DSHD_LIMITS__IN_FLIGHT?");
        warned("DSHD_ZEBRA", "does nothing");
    }

    #[test]
    fn reserved_variables_are_silent() {
        let loaded = loaded(
            &RESERVED
                .map(|name| (name, "1"))
                .iter()
                .filter(|(name, _)| *name != "DSHD_CONFIG")
                .copied()
                .collect::<Vec<_>>(),
        );
        assert_eq!(loaded.warnings, Vec::<String>::new());
    }
}
