//! Routes, keys and defaults.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::config::Secret;

fn providers(config: &Config, variables: &[(&str, &str)]) -> Providers {
    let environment = Environment::of(variables.iter().copied());
    Providers::from_config(config, &environment, None, Profile::Standard)
}

fn route(provider: &str, model: &str) -> (String, String) {
    (provider.to_owned(), model.to_owned())
}

fn is_ready(providers: &Providers, name: &str) -> bool {
    providers.routes().iter().find(|route| route.provider == name).unwrap().ready
}

#[test]
fn without_a_key_the_default_route_is_scripted_and_with_one_deepseek() {
    let config = Config::default();
    assert_eq!(providers(&config, &[]).default_route(), route("scripted", "scripted"));
    assert_eq!(providers(&config, &[("OPENAI_API_KEY", "k")]).default_route(), route("scripted", "scripted"));
    assert_eq!(
        providers(&config, &[("DEEPSEEK_API_KEY", "k")]).default_route(),
        route("deepseek-official", "deepseek-flash")
    );
}

#[test]
fn a_configured_default_wins_and_is_never_replaced() {
    let config = Config {
        default_provider: Some("deepseek-official".to_owned()),
        default_model: Some("m".to_owned()),
        ..Config::default()
    };
    assert_eq!(providers(&config, &[]).default_route(), route("deepseek-official", "m"));
}

#[test]
fn a_configured_model_is_the_default_of_its_own_provider_only() {
    let mut config = Config { default_model: Some("m".to_owned()), ..Config::default() };
    let without_key = providers(&config, &[]);
    assert_eq!(without_key.default_route(), route("scripted", "scripted"));
    assert_eq!(without_key.default_model("deepseek-official").unwrap(), "m");
    let nameless = without_key.default_model("openai").unwrap_err().to_string();
    assert_eq!(
        nameless,
        "provider openai has no default model; help: name one, as in openai/MODEL, or set providers.openai.default_model"
    );
    config.providers.get_mut("openai").unwrap().models.insert("o".to_owned(), ModelConfig::default());
    assert_eq!(providers(&config, &[]).default_model("openai").unwrap(), "o");
}

#[test]
fn the_official_profile_never_falls_back_to_a_script() {
    let providers = Providers::from_config(&Config::default(), &Environment::default(), None, Profile::Sdk);
    assert_eq!(providers.default_route().0, "deepseek-official");
    providers.check("deepseek-official").unwrap();
    assert!(!is_ready(&providers, "deepseek-official"));
}

#[test]
fn a_route_that_is_unknown_or_has_no_key_says_what_to_do() {
    let providers = providers(&Config::default(), &[("DEEPSEEK_API_KEY", "k")]);
    providers.check("deepseek-official").unwrap();
    providers.check("scripted").unwrap();
    let unknown = providers.check("nope").unwrap_err().to_string();
    assert_eq!(unknown, "unknown provider nope; configured: anthropic, deepseek-official, openai, scripted");
    let keyless = providers.check("openai").unwrap_err().to_string();
    assert_eq!(
        keyless,
        "provider openai has no key: no key is set; help: dshd login openai, or set OPENAI_API_KEY"
    );
    assert!(is_ready(&providers, "scripted") && !is_ready(&providers, "openai"));
}

#[test]
fn a_server_without_any_key_setting_needs_none() {
    let mut config = Config::default();
    let local =
        ProviderConfig { base_url: Some("http://127.0.0.1:1/v1".to_owned()), ..ProviderConfig::default() };
    config.providers.insert("local".to_owned(), local);
    providers(&config, &[]).check("local").unwrap();
}

#[test]
fn keys_that_others_can_read_are_refused_and_no_script_plays_instead() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("credentials.toml");
    let mut credentials = Credentials::default();
    credentials.set("deepseek-official", Secret::new("k").unwrap());
    credentials.write(&path).unwrap();
    let providers = |environment: &Environment| {
        Providers::from_config(&Config::default(), environment, Some(&path), Profile::Standard)
    };
    providers(&Environment::default()).check("deepseek-official").unwrap();

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let refused = providers(&Environment::default());
    assert_eq!(refused.default_route().0, "deepseek-official");
    let error = refused.check("deepseek-official").unwrap_err().to_string();
    assert!(error.contains("mode 0640") && error.contains("chmod 600"), "{error}");

    let guarded = dir.path().to_str().unwrap();
    providers(&Environment::of([("CREDENTIALS_DIRECTORY", guarded)])).check("deepseek-official").unwrap();
}

#[test]
fn a_broken_file_of_keys_stops_nobody_who_has_a_key_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("credentials.toml");
    fs::write(&path, "[keys]\nopenai = k\n").unwrap();
    let environment = Environment::of([("DEEPSEEK_API_KEY", "k")]);
    let providers = Providers::from_config(&Config::default(), &environment, Some(&path), Profile::Standard);
    providers.check("deepseek-official").unwrap();
    let error = providers.check("openai").unwrap_err().to_string();
    assert!(error.contains("is not a file of keys"), "{error}");
}

#[test]
fn what_models_can_do_is_configured_and_has_defaults() {
    let providers = providers(&Config::default(), &[]);
    let flash = providers.abilities("deepseek-official", "deepseek-flash");
    assert_eq!((flash.context_window, flash.max_output, flash.thinking), (1_000_000, Some(384_000), true));
    assert_eq!(providers.abilities("deepseek-official", "else"), ModelConfig::default());
    assert_eq!(providers.retry_policy("openai").max, 5);
}
