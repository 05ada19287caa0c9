//! `config/dshd.toml` says what is true: every key is there, with its default. Tests alone.

use std::collections::BTreeMap;
use std::path::Path;

use figment::value::Value;
use serde::Deserialize as _;

use super::{Config, DEEPSEEK, McpServer, ModelConfig, ProviderConfig, check_text, file, keys};
use crate::config::Environment;

const SAMPLE: &str = include_str!("../../config/dshd.toml");

/// The sample with its defaults in force.
fn uncommented() -> String {
    let line = |line: &'static str| match line.strip_prefix('#') {
        Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest,
        Some(_) | None => line,
    };
    SAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn has_example(name: &str) -> bool {
    SAMPLE.lines().any(|line| line.starts_with(&format!("# {name} = ")))
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

#[test]
fn each_line_that_is_uncommented_gives_the_default() {
    let layer = file::parse(Path::new("dshd.toml"), &uncommented()).unwrap();
    let sample = Config::deserialize(&Value::from(layer.values)).unwrap();
    let defaults = Config::default();
    let models = defaults.providers[DEEPSEEK].models.clone();
    let deepseek = ProviderConfig { models, ..sample.providers[DEEPSEEK].clone() };
    assert_eq!(deepseek, defaults.providers[DEEPSEEK]);
    assert_eq!(Config { providers: defaults.providers.clone(), ..sample }, defaults);
}

#[test]
fn every_key_that_has_a_default_is_there() {
    let layer = file::parse(Path::new("dshd.toml"), &uncommented()).unwrap();
    let mut set = BTreeMap::new();
    keys::collect("", &layer.values, &mut set);
    for key in keys::flatten(&Config::default()).into_keys() {
        let other_provider =
            key.starts_with("providers.") && !key.starts_with("providers.deepseek-official.");
        if other_provider || key == "listen" || key == "mcp.servers" || key.contains(".models") {
            continue;
        }
        assert!(set.contains_key(&key), "{key} is missing");
    }
}

#[test]
fn every_key_that_has_none_is_shown_by_an_example() {
    let set = keys::flatten(&Config::default());
    for key in keys::known().into_iter().filter(|key| !set.contains_key(key)) {
        let shown = has_example(last(&key)) || SAMPLE.contains(&format!("\n#{} = ", last(&key)));
        assert!(shown, "{key} is missing");
    }
    let Ok(Value::Dict(_, model)) = Value::serialize(ModelConfig::default()) else { panic!("no table") };
    let Ok(Value::Dict(_, server)) = Value::serialize(McpServer::default()) else { panic!("no table") };
    let fields = model.keys().chain(server.keys()).map(String::as_str);
    for field in fields.chain(["unix", "tcp", "fd", "tls", "mode_max"]) {
        assert!(has_example(field), "{field} is missing");
    }
}

#[test]
fn as_it_is_it_changes_nothing() {
    let path = Path::new("dshd.toml");
    assert!(file::parse(path, SAMPLE).unwrap().values.is_empty());
    check_text(path, &uncommented(), &Environment::default()).unwrap();
}
