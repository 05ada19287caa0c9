//! The providers that are there without configuration, and what `--profile sdk` changes.

use std::collections::BTreeMap;

use super::layer::Layer;
use super::{ModelConfig, ProviderConfig, ProviderKind, Source};

/// The provider of the official route.
pub const DEEPSEEK: &str = "deepseek-official";
/// The provider that needs no key.
pub const SCRIPTED: &str = "scripted";

/// Its models; the first is the default.
const DEEPSEEK_MODELS: [&str; 3] = ["deepseek-flash", "deepseek-v4-flash", "deepseek-v4-pro"];

/// Requests in flight that an official SDK may count on.
const SDK_IN_FLIGHT: u64 = 1024;

pub(super) fn providers() -> BTreeMap<String, ProviderConfig> {
    let remote = |kind, base_url: &str, api_key_env: &str| ProviderConfig {
        kind,
        base_url: Some(base_url.to_owned()),
        api_key_env: Some(api_key_env.to_owned()),
        ..ProviderConfig::default()
    };
    let scripted = ProviderConfig { kind: ProviderKind::Scripted, ..ProviderConfig::default() };
    let deepseek = ProviderConfig {
        models: DEEPSEEK_MODELS.map(|name| (name.to_owned(), deepseek_model())).into(),
        ..remote(ProviderKind::Chat, "https://api.deepseek.com", "DEEPSEEK_API_KEY")
    };
    BTreeMap::from([
        (DEEPSEEK.to_owned(), deepseek),
        (
            "anthropic".to_owned(),
            remote(ProviderKind::Anthropic, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ),
        ("openai".to_owned(), remote(ProviderKind::Chat, "https://api.openai.com/v1", "OPENAI_API_KEY")),
        (SCRIPTED.to_owned(), scripted),
    ])
}

/// What DeepSeek's models can do, as documented in late 2026. Prices change too often to be built in.
fn deepseek_model() -> ModelConfig {
    ModelConfig {
        context_window: 1_000_000,
        max_output: Some(384_000),
        thinking: true,
        reasoning_effort: true,
        ..ModelConfig::default()
    }
}

/// Defaults under `--profile sdk` (PROTOCOL.md 9): the official runtime's route and wire.
pub(super) fn sdk_profile() -> Layer {
    let mut layer = Layer::default();
    layer.set_at("default_provider", DEEPSEEK, Source::Profile);
    layer.set_at("providers.deepseek-official.kind", "anthropic", Source::Profile);
    layer.set_at(
        "providers.deepseek-official.base_url",
        "https://api.deepseek.com/anthropic",
        Source::Profile,
    );
    layer.set_at("limits.in_flight", SDK_IN_FLIGHT, Source::Profile);
    layer
}
