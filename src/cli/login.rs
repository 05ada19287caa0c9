//! `dshd login`: stores a provider's key where daemon and editors find it.

mod secret;

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::config::no_home;
use super::{Failure, Globals, exit, output};
use crate::config::{Credentials, DEEPSEEK, Loaded, ProviderKind, Secret, Source, api_key};
use crate::telemetry;

/// Longest key.
const KEY_BYTES_MAX: u64 = 16 << 10;

/// Arguments of `dshd login`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "EXAMPLES:
  dshd login
  dshd login deepseek-official --key-stdin <<<\"$DEEPSEEK_API_KEY\"
  dshd login status"
)]
pub struct LoginArgs {
    /// The provider; deepseek means deepseek-official
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,
    /// Read the key from stdin
    #[arg(long)]
    pub key_stdin: bool,
    /// What else to do
    #[command(subcommand)]
    pub action: Option<LoginAction>,
}

/// What else `dshd login` does.
#[derive(Debug, Subcommand)]
pub enum LoginAction {
    /// Say which providers have a key, and from where
    Status,
    /// Remove a stored key
    Logout {
        /// The provider
        #[arg(value_name = "PROVIDER")]
        provider: Option<String>,
    },
}

pub(super) fn run(args: &LoginArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let path = loaded.paths.credentials.clone().ok_or_else(no_home)?;
    match &args.action {
        None => login(args, &loaded, &path, globals),
        Some(LoginAction::Status) => status(&loaded, &path, globals),
        Some(LoginAction::Logout { provider }) => logout(provider.as_deref(), &path, globals),
    }
}

fn full_name(provider: Option<&str>) -> &str {
    match provider {
        None | Some("deepseek") => DEEPSEEK,
        Some(name) => name,
    }
}

/// The provider, if a key can be of use to it.
fn provider_of<'a>(given: Option<&'a str>, loaded: &Loaded) -> Result<&'a str, Failure> {
    let name = full_name(given);
    match loaded.config.providers.get(name) {
        Some(provider) if provider.kind == ProviderKind::Scripted => {
            Err(Failure::usage(format!("provider {name} needs no key")).with_help("dshd login status"))
        }
        Some(_) => Ok(name),
        None => {
            let known: Vec<&str> = loaded.config.providers.keys().map(String::as_str).collect();
            Err(Failure::usage(format!("there is no provider {name}")).with_help(format!(
                "one of {}; a new one: dshd config init --provider {name}",
                known.join(", ")
            )))
        }
    }
}

#[derive(Serialize)]
struct LoginDocument<'a> {
    schema: &'static str,
    provider: &'a str,
    path: &'a Path,
    replaced: bool,
}

fn login(args: &LoginArgs, loaded: &Loaded, path: &Path, globals: &Globals) -> Result<u8, Failure> {
    let provider = provider_of(args.provider.as_deref(), loaded)?;
    let key = key(provider, args.key_stdin, globals.args.no_input)?;
    let mut credentials = Credentials::read(path)?;
    let replaced = credentials.set(provider, key);
    credentials.write(path)?;
    if globals.args.json {
        output::print_json(&LoginDocument { schema: "dshd.login/1", provider, path, replaced })?;
    }
    if !globals.args.quiet {
        telemetry::say(&format!("stored the key of {provider} in {}", path.display()));
        let variable = loaded.config.providers.get(provider).and_then(|one| one.api_key_env.as_deref());
        if let Some(name) = variable.filter(|name| loaded.environment.get(name).is_some()) {
            telemetry::say(&format!("note: {name} is set too, and wins where it is set"));
        }
    }
    Ok(exit::OK)
}

fn key(provider: &str, from_stdin: bool, no_input: bool) -> Result<Secret, Failure> {
    let text = if from_stdin {
        read_stdin()?
    } else if no_input || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage("there is nobody to ask for the key")
            .with_help(format!("dshd login {provider} --key-stdin <<<\"$KEY\"")));
    } else {
        secret::ask(&format!("key of {provider} (not shown): "))?
    };
    let key = Secret::new(&text)
        .ok_or_else(|| Failure::usage("the key is empty").with_help("dshd login status"))?;
    if key.expose().chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Failure::usage("the key has white space or control characters inside")
            .with_help("pass the key alone, on one line"));
    }
    Ok(key)
}

fn read_stdin() -> Result<zeroize::Zeroizing<String>, Failure> {
    let mut text = zeroize::Zeroizing::new(String::new());
    io::stdin().take(KEY_BYTES_MAX).read_to_string(&mut text).map_err(|error| {
        Failure::new(exit::REFUSED, "io", format!("cannot read the key from stdin: {error}"))
    })?;
    Ok(text)
}

#[derive(Serialize)]
struct StatusDocument<'a> {
    schema: &'static str,
    providers: Vec<ProviderDocument<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProviderDocument<'a> {
    provider: &'a str,
    needs_key: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    #[serde(skip)]
    variable: Option<&'a str>,
}

fn status(loaded: &Loaded, path: &Path, globals: &Globals) -> Result<u8, Failure> {
    let credentials = Credentials::read(path)?;
    let mut providers = Vec::new();
    for (name, provider) in &loaded.config.providers {
        let found = api_key(name, provider, &loaded.environment, (&credentials, path))?;
        let named = provider.api_key_env.is_some() || provider.api_key_file.is_some();
        providers.push(ProviderDocument {
            provider: name,
            needs_key: named && provider.kind != ProviderKind::Scripted,
            key: found.as_ref().map(|found| found.key.masked()),
            source: found.map(|found| found.place.into()),
            variable: provider.api_key_env.as_deref(),
        });
    }
    if globals.args.json {
        output::print_json(&StatusDocument { schema: "dshd.logins/1", providers })?;
    } else {
        output::print(&table(&providers))?;
    }
    Ok(exit::OK)
}

fn table(providers: &[ProviderDocument<'_>]) -> String {
    let width = providers.iter().map(|one| one.provider.len()).max().unwrap_or(0);
    let mut text = String::new();
    for one in providers {
        let state = match (&one.key, &one.source) {
            (Some(key), Some(source)) => format!("{key}  {source}"),
            (Some(_), None) | (None, _) if !one.needs_key => "needs no key".to_owned(),
            (Some(_), None) | (None, _) => {
                let or = one.variable.map_or_else(String::new, |name| format!(", or {name}"));
                format!("no key; dshd login {}{or}", one.provider)
            }
        };
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{:width$}  {state}", one.provider);
    }
    text
}

#[derive(Serialize)]
struct LogoutDocument<'a> {
    schema: &'static str,
    provider: &'a str,
    removed: bool,
    path: PathBuf,
}

fn logout(given: Option<&str>, path: &Path, globals: &Globals) -> Result<u8, Failure> {
    let provider = full_name(given);
    let mut credentials = Credentials::read(path)?;
    let removed = credentials.remove(provider);
    if removed {
        credentials.write(path)?;
    }
    if globals.args.json {
        let path = path.to_path_buf();
        output::print_json(&LogoutDocument { schema: "dshd.logout/1", provider, removed, path })?;
    } else if !globals.args.quiet {
        telemetry::say(&match (removed, credentials.providers().collect::<Vec<_>>().as_slice()) {
            (true, _) => format!("removed the key of {provider} from {}", path.display()),
            (false, []) => format!("no key of {provider} was stored"),
            (false, others) => {
                format!("no key of {provider} was stored; there is one of {}", others.join(", "))
            }
        });
    }
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Flags, load};

    fn loaded() -> Loaded {
        load(&Environment::of([("HOME", "/nowhere")]), &Flags::default()).unwrap()
    }

    #[test]
    fn deepseek_is_short_for_the_official_provider_and_the_default() {
        let loaded = loaded();
        assert_eq!(provider_of(None, &loaded).unwrap(), DEEPSEEK);
        assert_eq!(provider_of(Some("deepseek"), &loaded).unwrap(), DEEPSEEK);
        assert_eq!(provider_of(Some("openai"), &loaded).unwrap(), "openai");
    }

    #[test]
    fn a_provider_that_is_not_there_or_needs_no_key_is_refused() {
        let loaded = loaded();
        let failure = provider_of(Some("opnai"), &loaded).unwrap_err();
        assert_eq!(failure.code, exit::USAGE);
        assert!(failure.help.unwrap().contains("openai"));
        assert!(provider_of(Some("scripted"), &loaded).unwrap_err().message.contains("needs no key"));
    }

    #[test]
    fn without_a_terminal_the_flag_to_pass_is_named() {
        let failure = key("openai", false, true).unwrap_err();
        assert!(failure.help.unwrap().contains("--key-stdin"));
    }

    #[test]
    fn what_lacks_a_key_says_how_to_set_it() {
        let one = |provider, needs_key, key: Option<&str>, variable| ProviderDocument {
            provider,
            needs_key,
            key: key.map(str::to_owned),
            source: key.map(|_| Source::variable("K")),
            variable,
        };
        let providers = [
            one("a", true, Some("set (sha256:ab12…)"), Some("K")),
            one("openai", true, None, Some("OPENAI_API_KEY")),
            one("local", false, None, None),
        ];
        assert_eq!(
            table(&providers),
            "a       set (sha256:ab12…)  K\n\
             openai  no key; dshd login openai, or OPENAI_API_KEY\n\
             local   needs no key\n"
        );
    }
}
