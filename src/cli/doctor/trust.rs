//! Models, keys, tokens and certificates.

use std::fs;
use std::path::Path;

use jiff::Timestamp;

use super::super::Globals;
use super::super::models::check;
use super::place::private;
use super::{Check, Grade};
use crate::auth::token::TokenBook;
use crate::config::{Credentials, ProviderConfig};
use crate::config::{KeyPlace, Loaded, ProviderKind, SCRIPTED, api_key};
use crate::listener::{Tls, WARN_BEFORE};
use crate::provider::registry::Providers;

/// Where distributions keep the certificates that everybody trusts.
const ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Asks the model that is asked when a client names none.
pub(super) async fn model(globals: &Globals, loaded: &Loaded) -> Check {
    const NAME: &str = "model";
    let providers = Providers::of(loaded);
    let (provider, model) = providers.default_route();
    if provider == SCRIPTED && loaded.config.default_provider.as_deref() != Some(SCRIPTED) {
        let text = "no key is set, so a script answers and no model";
        return Check::warn(NAME, text, "dshd login deepseek-official, or export DEEPSEEK_API_KEY=…");
    }
    let shown = format!("{provider}/{model}");
    match check::one(&providers, &provider, &model, globals).await {
        Ok(()) => Check::ok(NAME, format!("{shown} answers")),
        Err(why) => Check::fail(NAME, format!("{shown}: {why}"), "dshd models --check; keys: dshd login"),
    }
}

/// Files of secrets, and whether they can be read.
pub(super) fn credentials(loaded: &Loaded, fix: bool) -> Vec<Check> {
    const NAME: &str = "credentials";
    let mut checks = Vec::new();
    let login = loaded.paths.credentials.as_deref().filter(|path| path.exists());
    let stored = match login.map(Credentials::read).transpose() {
        Ok(stored) => stored.unwrap_or_default(),
        Err(error) => {
            checks.push(Check::fail(NAME, error.to_string(), "dshd login writes it anew"));
            Credentials::default()
        }
    };
    let mut keyed = Vec::new();
    for (name, provider) in &loaded.config.providers {
        let place = login.unwrap_or(Path::new(""));
        match api_key(name, provider, &loaded.environment, (&stored, place)) {
            Ok(Some(source)) => {
                keyed.push(name.as_str());
                let guarded = loaded.environment.absolute("CREDENTIALS_DIRECTORY");
                if let KeyPlace::File(path) = &source.place
                    && !guarded.is_some_and(|directory| path.starts_with(directory))
                {
                    checks.push(unused_when_loose(private(NAME, path, 0o600, fix)));
                }
            }
            Ok(None) => {}
            Err(error) => {
                checks.push(Check::fail(NAME, error.to_string(), format!("mend it, or: dshd login {name}")));
            }
        }
    }
    checks.extend(login.map(|path| unused_when_loose(private(NAME, path, 0o600, fix))));
    checks.retain(|check| check.status != Grade::Ok || check.text.contains("is 0600 now"));
    if checks.is_empty() {
        let text =
            if keyed.is_empty() { "no keys".to_owned() } else { format!("keys for {}", keyed.join(", ")) };
        checks.push(Check::ok(NAME, text));
    }
    checks.push(tokens(&loaded.paths.tokens, fix));
    checks
}

/// Keys in a file that others can read are refused.
fn unused_when_loose(check: Check) -> Check {
    match check.status {
        Grade::Warn => {
            Check { status: Grade::Fail, text: format!("{}: its keys are not used", check.text), ..check }
        }
        Grade::Ok | Grade::Fail => check,
    }
}

fn tokens(path: &Path, fix: bool) -> Check {
    const NAME: &str = "tokens";
    if !path.exists() {
        return Check::ok(NAME, "none; TCP admits nobody");
    }
    let check = private(NAME, path, 0o600, fix);
    match TokenBook::new(path).list() {
        Ok(tokens) if check.status == Grade::Ok => {
            Check::ok(NAME, format!("{} in {}", tokens.len(), check.text))
        }
        Ok(_) => check,
        Err(error) => Check::fail(NAME, error.to_string(), "mend the file, or remove it and create anew"),
    }
}

/// What is wrong with the certificates that are served.
fn served(loaded: &Loaded) -> Vec<Check> {
    const NAME: &str = "certificates";
    let entries = loaded.config.listen.iter().filter_map(|listen| listen.tls.as_ref());
    let told = entries.filter_map(|tls| {
        let ends = Tls::load(tls, &loaded.paths.data_dir).and_then(|tls| tls.ends_at());
        let left = match ends {
            Ok(end) => end?.duration_since(Timestamp::now()),
            Err(error) => {
                return Some(Check::fail(NAME, error.to_string(), "dshd tls init, or mend [[listen]] tls"));
            }
        };
        if left.is_negative() {
            let text = "the one that is served has expired, so that no client accepts it";
            Some(Check::fail(NAME, text, "dshd tls renew, then reload"))
        } else if left < WARN_BEFORE {
            let text = format!("the one that is served ends in {} days", left.as_hours() / 24);
            Some(Check::warn(NAME, text, "dshd tls renew, then reload"))
        } else {
            None
        }
    });
    told.collect()
}

/// What connections to models trust.
pub(super) fn certificates(loaded: &Loaded) -> Vec<Check> {
    const NAME: &str = "certificates";
    let mut checks = Vec::new();
    for (name, provider) in &loaded.config.providers {
        let Some(path) = &provider.ca_file else { continue };
        let shown = path.display();
        match fs::read_to_string(path) {
            Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => {}
            Ok(_) => {
                let text = format!("{shown} holds no certificate in PEM");
                checks.push(Check::fail(NAME, text, format!("mend providers.{name}.ca_file")));
            }
            Err(error) => {
                let help = format!("mend providers.{name}.ca_file");
                checks.push(Check::fail(NAME, format!("{shown}: {error}"), help));
            }
        }
    }
    checks.extend(served(loaded));
    let environment = &loaded.environment;
    let named = environment.get("SSL_CERT_FILE").or_else(|| environment.get("SSL_CERT_DIR"));
    let roots = named.into_iter().chain(ROOTS).find(|path| Path::new(path).exists());
    let needs = |provider: &ProviderConfig| {
        provider.kind != ProviderKind::Scripted
            && provider.base_url.as_deref().is_none_or(|url| url.starts_with("https:"))
    };
    match roots {
        Some(roots) if checks.is_empty() => checks.push(Check::ok(NAME, format!("trusted ones in {roots}"))),
        None if loaded.config.providers.values().any(needs) => {
            let text = "no trusted certificates on this machine: no model is reached over https";
            checks.push(Check::warn(NAME, text, "install ca-certificates, or set SSL_CERT_FILE"));
        }
        Some(_) | None => {}
    }
    checks
}
