//! `dshd config init`: a configuration file to start from.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::super::{Failure, Globals, exit, output};
use super::no_home;
use crate::config::{self, Config, Paths};
use crate::telemetry;

/// Every key with its default, commented.
const SAMPLE: &str = include_str!("../../../config/dshd.toml");

/// Arguments of `dshd config init`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd config init
  dshd config init --provider anthropic --model claude-sonnet-4-5
  dshd config init --provider local --base-url http://127.0.0.1:11434/v1 --model qwen3")]
pub struct InitArgs {
    /// Set up this provider and make it the default
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Where the provider is
    #[arg(long, value_name = "URL", requires = "provider")]
    pub base_url: Option<String>,
    /// The default model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Variable that holds the provider's key
    #[arg(long, value_name = "NAME", requires = "provider")]
    pub api_key_env: Option<String>,
    /// Replace a file that exists
    #[arg(long)]
    pub force: bool,
}

#[derive(Serialize)]
struct InitDocument<'a> {
    schema: &'static str,
    path: &'a std::path::Path,
}

pub(super) fn run(args: &InitArgs, globals: &Globals) -> Result<u8, Failure> {
    let path = place(globals)?;
    if path.exists() && !args.force {
        let message = format!("{} is there already", path.display());
        return Err(Failure::new(exit::REFUSED, "exists", message)
            .with_help("edit it, or replace it: dshd config init --force"));
    }
    let text = compose(args)?;
    config::check_text(&path, &text, &globals.environment)?;
    config::write_private(&path, &text).map_err(|error| {
        Failure::new(exit::REFUSED, "io", format!("cannot write {}: {error}", path.display()))
    })?;
    if globals.args.json {
        output::print_json(&InitDocument { schema: "dshd.configInit/1", path: &path })?;
    } else {
        output::print(&format!("{}\n", path.display()))?;
    }
    if !globals.args.quiet {
        telemetry::say("note: a daemon that runs reads it on SIGHUP, or after: dshd stop");
    }
    Ok(exit::OK)
}

/// `--config`, else the user's file.
fn place(globals: &Globals) -> Result<PathBuf, Failure> {
    match &globals.args.config {
        Some(path) => Ok(globals.environment.cwd().join(path)),
        None => Paths::new(&globals.environment).user_config.ok_or_else(no_home),
    }
}

fn compose(args: &InitArgs) -> Result<String, Failure> {
    let mut head = String::new();
    let quoted = |text: &str| toml_edit::Value::from(text).to_string();
    // Writing to a text cannot fail.
    if let Some(provider) = &args.provider {
        let _ = writeln!(head, "default_provider = {}", quoted(provider));
    }
    if let Some(model) = &args.model {
        let _ = writeln!(head, "default_model = {}", quoted(model));
    }
    if let Some(provider) = &args.provider {
        head.push_str(&provider_table(provider, args)?);
    }
    if !head.is_empty() {
        head.push('\n');
    }
    Ok(head + SAMPLE)
}

fn provider_table(provider: &str, args: &InitArgs) -> Result<String, Failure> {
    let built_in = Config::default().providers.contains_key(provider);
    if !built_in && args.base_url.is_none() {
        return Err(Failure::usage(format!(
            "provider {provider} is not built in, so where it is must be said"
        ))
        .with_help(format!("dshd config init --provider {provider} --base-url http://127.0.0.1:11434/v1")));
    }
    if args.model.is_none() && Config::default().model_of(provider).is_none() {
        return Err(Failure::usage(format!(
            "nobody knows which model provider {provider} has, so one must be said"
        ))
        .with_help(format!("add --model MODEL; dshd config init --provider {provider} --model …")));
    }
    let mut table = toml_edit::Table::new();
    if !built_in {
        table.insert("kind", toml_edit::value("chat"));
    }
    if let Some(url) = &args.base_url {
        table.insert("base_url", toml_edit::value(url));
    }
    if let Some(name) = &args.api_key_env {
        table.insert("api_key_env", toml_edit::value(name));
    }
    if table.is_empty() {
        return Ok(String::new());
    }
    let mut providers = toml_edit::Table::new();
    providers.set_implicit(true);
    providers.insert(provider, toml_edit::Item::Table(table));
    let mut document = toml_edit::DocumentMut::new();
    document.insert("providers", toml_edit::Item::Table(providers));
    Ok(format!("\n{document}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Environment, Flags, load};

    fn args(provider: Option<&str>, base_url: Option<&str>, model: Option<&str>) -> InitArgs {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        InitArgs {
            provider: owned(provider),
            base_url: owned(base_url),
            model: owned(model),
            api_key_env: None,
            force: false,
        }
    }

    #[test]
    fn a_local_server_is_set_up_and_loads() {
        let text =
            compose(&args(Some("openai-compatible"), Some("http://127.0.0.1:11434/v1"), Some("q"))).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dshd.toml");
        std::fs::write(&path, text).unwrap();
        let environment = Environment::of([("HOME", "/nowhere")]);
        let config = load(&environment, &Flags { config: Some(path), ..Flags::default() }).unwrap().config;
        assert_eq!(config.default_provider.as_deref(), Some("openai-compatible"));
        assert_eq!(config.default_model.as_deref(), Some("q"));
        let provider = &config.providers["openai-compatible"];
        assert_eq!(provider.base_url.as_deref(), Some("http://127.0.0.1:11434/v1"));
        assert_eq!(provider.api_key_env, None);
    }

    #[test]
    fn without_flags_all_is_commented() {
        let text = compose(&args(None, None, None)).unwrap();
        config::check_text(Path::new("/x"), &text, &Environment::default()).unwrap();
        assert!(text.parse::<toml_edit::DocumentMut>().unwrap().is_empty());
    }

    #[test]
    fn a_provider_that_is_not_built_in_needs_its_place() {
        let failure = compose(&args(Some("local"), None, None)).unwrap_err();
        assert_eq!(failure.code, exit::USAGE);
        assert!(compose(&args(Some("openai"), None, Some("m"))).is_ok());
    }

    #[test]
    fn a_provider_whose_model_nobody_knows_needs_one_named() {
        let failure = compose(&args(Some("openai"), None, None)).unwrap_err();
        assert_eq!(failure.code, exit::USAGE);
        assert!(compose(&args(Some("deepseek-official"), None, None)).is_ok());
    }
}
