//! Checks of one provider's values.

use std::time::Duration;

use super::check::{Checked, at_least, at_most, positive, refuse};
use super::{ModelConfig, ProviderConfig, ProviderKind, keys};

/// Most calls at once that a provider may be configured for.
const CONCURRENCY_MAX: usize = 4096;
/// Most headers of one provider, and most bytes of one value.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 8 * 1024;
/// Headers that belong to the transport.
const HEADERS_TAKEN: [&str; 7] =
    ["host", "content-length", "content-type", "transfer-encoding", "connection", "te", "upgrade"];

/// Checks a provider.
///
/// # Errors
/// The first value that can't be used.
pub(super) fn provider(name: &str, provider: &ProviderConfig) -> Checked {
    let key = |field: &str| keys::join(&["providers", name, field]);
    if name.is_empty() || name.contains('/') || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refuse(keys::join(&["providers", name]), "a provider's name has no `/` and no spaces");
    }
    match (&provider.kind, &provider.base_url) {
        (ProviderKind::Scripted, _) => {}
        (ProviderKind::Chat | ProviderKind::Anthropic | ProviderKind::Responses, None) => {
            return refuse(key("base_url"), "is missing; set it to where the provider is");
        }
        (ProviderKind::Chat | ProviderKind::Anthropic | ProviderKind::Responses, Some(url)) => {
            let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
                let reason = format!("expected http:// or https:// and a host, got \"{url}\"");
                return refuse(key("base_url"), reason);
            }
        }
    }
    if provider.script.is_some() && provider.kind != ProviderKind::Scripted {
        return refuse(key("script"), "only a provider of kind = \"scripted\" has a script");
    }
    if provider.default_model.as_deref().is_some_and(|model| model.trim().is_empty()) {
        return refuse(key("default_model"), "is empty; name a model, or take the key away");
    }
    let durations: [(&str, Duration); 5] = [
        ("connect_timeout", provider.connect_timeout),
        ("header_timeout", provider.header_timeout),
        ("idle_timeout", provider.idle_timeout),
        ("first_token_timeout", provider.first_token_timeout),
        ("queue_timeout", provider.queue_timeout),
    ];
    for (field, duration) in durations {
        positive(&key(field), duration)?;
    }
    at_most(&key("concurrency"), provider.concurrency, CONCURRENCY_MAX)?;
    headers(name, provider)?;
    provider.models.iter().try_for_each(|(model, abilities)| self::model(name, model, abilities))
}

fn headers(name: &str, provider: &ProviderConfig) -> Checked {
    at_most(&keys::join(&["providers", name, "headers"]), provider.headers.len(), HEADERS_MAX)?;
    for (header, value) in &provider.headers {
        let refuse = |reason: &str| refuse(keys::join(&["providers", name, "headers", header]), reason);
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if header.is_empty() || !header.chars().all(is_token) {
            return refuse("is no header's name: letters, digits and hyphens");
        }
        if HEADERS_TAKEN.contains(&header.to_ascii_lowercase().as_str()) {
            return refuse("belongs to the request itself and can't be set");
        }
        if value.len() > HEADER_BYTES_MAX || value.chars().any(char::is_control) || !value.is_ascii() {
            return refuse("its value is at most 8 KiB of printable ASCII");
        }
    }
    Ok(())
}

fn model(provider: &str, name: &str, abilities: &ModelConfig) -> Checked {
    let key = |field: &str| keys::join(&["providers", provider, "models", name, field]);
    at_least(&key("context_window"), abilities.context_window, 1)?;
    at_least(&key("max_output"), abilities.max_output.unwrap_or(1), 1)?;
    let prices = [
        ("price_input", abilities.price_input),
        ("price_cache_read", abilities.price_cache_read),
        ("price_cache_write", abilities.price_cache_write),
        ("price_output", abilities.price_output),
    ];
    for (field, price) in prices {
        if price.is_some_and(|price| !price.is_finite() || price < 0.0) {
            return refuse(key(field), "a price is 0 or more");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Config;
    use crate::config::check::check;

    #[track_caller]
    fn refused(change: impl FnOnce(&mut ProviderConfig), expected: &str) {
        let mut config = Config::default();
        let mut one = ProviderConfig { base_url: Some("http://h".to_owned()), ..ProviderConfig::default() };
        change(&mut one);
        config.providers.insert("local".to_owned(), one);
        let error = check(&config, &BTreeMap::new()).expect_err("the value is wrong").to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_provider_says_where_it_is() {
        refused(|one| one.base_url = None, "`providers.local.base_url`: is missing");
        refused(|one| one.base_url = Some("api.local".to_owned()), "expected http://");
        refused(
            |one| (one.kind, one.base_url) = (ProviderKind::Responses, None),
            "`providers.local.base_url`: is missing",
        );
    }

    #[test]
    fn waits_and_calls_at_once_have_bounds() {
        refused(|one| one.queue_timeout = Duration::ZERO, "`providers.local.queue_timeout`: more than 0s");
        refused(|one| one.concurrency = 1 << 20, "`providers.local.concurrency`: at most 4096");
        refused(|one| one.default_model = Some(" ".to_owned()), "`providers.local.default_model`: is empty");
    }

    #[test]
    fn a_header_has_a_name_and_a_value_that_http_knows() {
        let header = |name: &str, value: &str| {
            let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            move |one: &mut ProviderConfig| one.headers = headers
        };
        refused(header("x y", "1"), "is no header's name");
        refused(header("Host", "h"), "belongs to the request itself");
        refused(header("x", "a\nb"), "printable ASCII");
    }
}
