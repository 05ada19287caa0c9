//! `dshd config`: shows, checks and starts the configuration.

mod init;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use figment::value::Value;
use serde::Serialize;

use self::init::InitArgs;
use super::{Failure, Globals, exit, output};
use crate::config::{self, CredentialsError, Loaded, Paths, Row, Source};
use crate::telemetry;

/// Arguments of `dshd config`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd config show --sources
  dshd config check ./dshd.toml
  dshd config init --provider local --base-url http://127.0.0.1:11434/v1")]
pub struct ConfigArgs {
    /// What to do
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Print the configuration in force, secrets masked
    Show {
        /// Say where each value comes from
        #[arg(long)]
        sources: bool,
    },
    /// Check a file, or all that would be read
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print where your configuration file is; with --json where everything is
    Path,
    /// Print one value
    Get {
        /// The key, as log.level
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Write a configuration file to start from
    Init(InitArgs),
}

pub(super) fn run(args: &ConfigArgs, globals: &Globals) -> Result<u8, Failure> {
    match &args.action {
        ConfigAction::Show { sources } => show(*sources, globals),
        ConfigAction::Check { file } => check(file.as_deref(), globals),
        ConfigAction::Path => path(globals),
        ConfigAction::Get { key } => get(key, globals),
        ConfigAction::Init(args) => init::run(args, globals),
    }
}

#[derive(Serialize)]
struct ShowDocument<'a> {
    schema: &'static str,
    files: &'a [PathBuf],
    values: Vec<ValueDocument<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct ValueDocument<'a> {
    key: &'a str,
    value: &'a Value,
    source: &'a Source,
    secret: bool,
}

impl<'a> From<&'a Row> for ValueDocument<'a> {
    fn from(row: &'a Row) -> Self {
        Self { key: &row.key, value: &row.value, source: &row.source, secret: row.secret }
    }
}

fn show(sources: bool, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let rows = config::rows(&loaded)?;
    if globals.args.json {
        let document = ShowDocument {
            schema: "dshd.config/1",
            files: &loaded.paths.files,
            values: rows.iter().map(ValueDocument::from).collect(),
            warnings: &loaded.warnings,
        };
        output::print_json(&document)?;
    } else {
        output::print(&lines(&rows, sources))?;
    }
    Ok(exit::OK)
}

/// The rows as TOML, sources and secrets as comments.
fn lines(rows: &[Row], sources: bool) -> String {
    let texts: Vec<String> = rows.iter().map(line).collect();
    let width = texts.iter().map(|text| text.chars().count()).filter(|width| *width <= 72).max().unwrap_or(0);
    let mut lines = String::new();
    for (row, text) in rows.iter().zip(texts) {
        lines.push_str(&text);
        if sources {
            let gap = width.saturating_sub(text.chars().count());
            // Writing to a text cannot fail.
            let _ = write!(lines, "{:gap$}  # {}", "", row.source);
        }
        lines.push('\n');
    }
    lines
}

fn line(row: &Row) -> String {
    if row.secret {
        return format!("# {} {}", row.key, row.value.as_str().unwrap_or_default());
    }
    format!("{} = {}", row.key, config::toml(&row.value))
}

#[derive(Serialize)]
struct CheckDocument<'a> {
    schema: &'static str,
    ok: bool,
    files: Vec<&'a Path>,
    warnings: &'a [String],
}

/// Checks a file by itself, or all that would be read.
pub(super) fn check(file: Option<&Path>, globals: &Globals) -> Result<u8, Failure> {
    if let Some(file) = file {
        let file = globals.environment.cwd().join(file);
        let text = config::read_text(&file, Some("the FILE to check"))?;
        config::check_text(&file, &text, &globals.environment)?;
        return told(vec![&file], &[], globals);
    }
    let loaded = globals.load()?;
    told(loaded.paths.files.iter().map(PathBuf::as_path).collect(), &loaded.warnings, globals)
}

fn told(files: Vec<&Path>, warnings: &[String], globals: &Globals) -> Result<u8, Failure> {
    if globals.args.json {
        output::print_json(&CheckDocument { schema: "dshd.configCheck/1", ok: true, files, warnings })?;
    } else if !globals.args.quiet {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let names = if names.is_empty() { "no file; all is built in".to_owned() } else { names.join(", ") };
        output::print(&format!("ok: {names}\n"))?;
    }
    Ok(exit::OK)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PathDocument<'a> {
    schema: &'static str,
    config: Option<&'a Path>,
    system_config: Option<&'a Path>,
    credentials: Option<&'a Path>,
    files: &'a [PathBuf],
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<DataDocument<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DataDocument<'a> {
    data_dir: &'a Path,
    socket: &'a Path,
    tokens: &'a Path,
    logs: &'a Path,
}

/// Works with a broken configuration too, since its path is what mends it.
fn path(globals: &Globals) -> Result<u8, Failure> {
    let loaded = config::load(&globals.environment, &globals.flags);
    let fallback = Paths::new(&globals.environment);
    let paths = loaded.as_ref().map_or(&fallback, |loaded| &loaded.paths);
    if let Err(error) = &loaded {
        telemetry::say(&format!("warning: {error}"));
    }
    if globals.args.json {
        output::print_json(&PathDocument {
            schema: "dshd.configPath/1",
            config: paths.user_config.as_deref(),
            system_config: paths.system_config.as_deref(),
            credentials: paths.credentials.as_deref(),
            files: &paths.files,
            data: loaded.is_ok().then_some(DataDocument {
                data_dir: &paths.data_dir,
                socket: &paths.socket,
                tokens: &paths.tokens,
                logs: &paths.logs,
            }),
        })?;
        return Ok(exit::OK);
    }
    let user = paths.user_config.as_deref().ok_or_else(no_home)?;
    if !user.exists() && !globals.args.quiet {
        telemetry::say("note: it is not there yet; dshd config init writes one");
    }
    output::print(&format!("{}\n", user.display()))?;
    Ok(exit::OK)
}

/// There is no place for a file of the user's.
pub(super) fn no_home() -> Failure {
    Failure::new(
        exit::CONFIG,
        "config",
        "no place for configuration: neither HOME nor XDG_CONFIG_HOME is set",
    )
    .with_help("HOME=/path/to/home dshd config path")
}

#[derive(Serialize)]
struct GetDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    value: ValueDocument<'a>,
}

fn get(key: &str, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let rows = config::rows(&loaded)?;
    let Some(row) = rows.iter().find(|row| row.key == key) else {
        return table(key, &rows, &loaded, globals);
    };
    if globals.args.json {
        output::print_json(&GetDocument { schema: "dshd.configValue/1", value: row.into() })?;
    } else {
        let text = row.value.as_str().map_or_else(|| config::toml(&row.value), str::to_owned);
        output::print(&format!("{text}\n"))?;
    }
    Ok(exit::OK)
}

/// All values of a table; nothing of that name is an error with the nearest name.
fn table(key: &str, rows: &[Row], loaded: &Loaded, globals: &Globals) -> Result<u8, Failure> {
    let prefix = format!("{key}.");
    let below: Vec<Row> = rows.iter().filter(|row| row.key.starts_with(&prefix)).cloned().collect();
    if !below.is_empty() {
        if globals.args.json {
            let values = below.iter().map(ValueDocument::from).collect();
            let (files, warnings) = (&loaded.paths.files, &loaded.warnings);
            output::print_json(&ShowDocument { schema: "dshd.config/1", files, values, warnings })?;
        } else {
            output::print(&lines(&below, false))?;
        }
        return Ok(exit::OK);
    }
    if config::is_key(loaded, key) {
        let failure = Failure::new(exit::REFUSED, "not_set", format!("{key} is not set"));
        return Err(failure.with_help("all that is set: dshd config show"));
    }
    let failure = Failure::new(exit::REFUSED, "unknown_key", format!("there is no key {key}"));
    Err(failure.with_help(match config::nearest_key(loaded, key) {
        Some(nearest) => format!("did you mean `{nearest}`? dshd config get {nearest}"),
        None => "all keys: dshd config show".to_owned(),
    }))
}

impl From<CredentialsError> for Failure {
    fn from(error: CredentialsError) -> Self {
        Self::new(exit::CONFIG, "config", error.to_string()).with_help("dshd login status")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, value: impl Into<Value>, secret: bool) -> Row {
        Row { key: key.to_owned(), value: value.into(), source: Source::variable("DSHD_X"), secret }
    }

    #[test]
    fn the_configuration_is_shown_as_toml_that_can_be_read_again() {
        let rows = [row("limits.mailbox", 3, false), row("log.level", "a\"b", false)];
        let text = lines(&rows, true);
        assert_eq!(text, "limits.mailbox = 3  # DSHD_X\nlog.level = 'a\"b'   # DSHD_X\n");
        text.parse::<toml_edit::DocumentMut>().unwrap();
    }

    #[test]
    fn a_secret_is_a_comment() {
        assert_eq!(
            lines(&[row("providers.x.api_key", "set (sha256:ab12…)", true)], false),
            "# providers.x.api_key set (sha256:ab12…)\n"
        );
    }
}
