//! Which model a provider is asked for when nobody names one.

use super::{Config, DEEPSEEK, ProviderKind, SCRIPTED};

impl Config {
    /// The model of a provider when a client names none: the configured default of the default provider, its own
    /// default, the first of its models by name. None: it must be named.
    pub fn model_of(&self, provider: &str) -> Option<&str> {
        let config = self.providers.get(provider)?;
        let is_default = match &self.default_provider {
            Some(default) => default == provider,
            None => provider == DEEPSEEK,
        };
        let general = self.default_model.as_deref();
        let own = || config.default_model.as_deref();
        let listed = || general.filter(|model| config.models.contains_key(*model));
        let scripted = || (config.kind == ProviderKind::Scripted).then_some(SCRIPTED);
        let first = || config.models.keys().next().map(String::as_str);
        general.filter(|_| is_default).or_else(own).or_else(listed).or_else(scripted).or_else(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    #[test]
    fn the_general_default_is_the_default_providers_and_of_whoever_lists_it() {
        let mut config = Config { default_model: Some("m".to_owned()), ..Config::default() };
        assert_eq!(config.model_of(DEEPSEEK), Some("m"));
        assert_eq!(config.model_of("openai"), None);
        assert_eq!(config.model_of(SCRIPTED), Some(SCRIPTED));
        assert_eq!(config.model_of("nobody"), None);
        let openai = config.providers.get_mut("openai").unwrap();
        openai.models.insert("a".to_owned(), ModelConfig::default());
        assert_eq!(config.model_of("openai"), Some("a"));
        let openai = config.providers.get_mut("openai").unwrap();
        openai.models.insert("m".to_owned(), ModelConfig::default());
        assert_eq!(config.model_of("openai"), Some("m"));
        config.providers.get_mut("openai").unwrap().default_model = Some("own".to_owned());
        assert_eq!(config.model_of("openai"), Some("own"));
        config.default_provider = Some("openai".to_owned());
        assert_eq!(config.model_of("openai"), Some("m"));
        assert_eq!(config.model_of(DEEPSEEK), Some("deepseek-flash"));
    }
}
