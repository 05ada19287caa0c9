//! From the arguments to an invocation; wrong usage in our words, with the nearest name.

use std::ffi::OsString;
use std::io::Write;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::stdio::StdioArgs;
use super::{Cli, Color, Command, Failure, Globals, exit};
use crate::config::{Environment, Profile};

/// A command with all that it needs.
#[derive(Debug)]
pub struct Invocation {
    /// What to do.
    pub command: Command,
    /// Flags and environment.
    pub globals: Globals,
}

/// What the arguments ask for.
#[derive(Debug)]
pub enum Parsed {
    /// A command.
    Run(Box<Invocation>),
    /// Help or the version, which has been printed.
    Told,
}

/// Wrong usage, and whether to say so in JSON.
#[derive(Debug)]
pub struct Refused {
    /// What is wrong.
    pub failure: Failure,
    /// `--json` was among the arguments.
    pub json: bool,
}

/// Parses the arguments, the program's name first. Help and version go to stdout here.
///
/// # Errors
/// [`Refused`] with exit code 64, or the failure to write help.
pub fn parse(args: impl IntoIterator<Item = OsString>, environment: Environment) -> Result<Parsed, Refused> {
    let args: Vec<OsString> = args.into_iter().collect();
    let json = args.iter().any(|arg| arg == "--json");
    let refuse = |failure| Refused { failure, json };
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return tell(&error).map(|()| Parsed::Told).map_err(refuse);
        }
        Err(error) => return Err(refuse(usage(&error))),
    };
    set_color(cli.global.color);
    let (command, profile) = command_of(cli.command, cli.profile.is_some(), cli.patch).map_err(refuse)?;
    let globals = Globals::new(cli.global, environment, &command, profile);
    Ok(Parsed::Run(Box::new(Invocation { command, globals })))
}

fn command_of(
    command: Option<Command>,
    sdk: bool,
    patches: Vec<std::path::PathBuf>,
) -> Result<(Command, Profile), Failure> {
    match (command, sdk) {
        (Some(command), false) => Ok((command, Profile::Standard)),
        (None, true) => Ok((Command::Stdio(StdioArgs { ignored_patches: patches }), Profile::Sdk)),
        (Some(_), true) => {
            Err(Failure::usage("--profile takes no subcommand").with_help("dshd --profile sdk"))
        }
        (None, false) => Err(Failure::usage("no command was given")
            .with_help(format!("dshd prompt TEXT, or one of: {} (dshd --help)", names().join(", ")))),
    }
}

fn names() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

fn set_color(color: Color) {
    let choice = match color {
        Color::Auto if std::env::var_os("TERM").is_some_and(|term| term == "dumb") => {
            anstream::ColorChoice::Never
        }
        Color::Auto => return,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

fn tell(error: &clap::Error) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    write!(out, "{}", error.render().ansi()).and_then(|()| out.flush()).map_err(super::output::stdout_failed)
}

/// clap's first paragraph as one sentence, and its suggestion as help.
fn usage(error: &clap::Error) -> Failure {
    let rendered = error.render().to_string();
    let paragraph: Vec<&str> =
        rendered.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let message = paragraph.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let next = usage_line(&rendered)
        .map_or_else(|| "dshd --help".to_owned(), |line| format!("usage: {line} (--help says more)"));
    let help = match suggestion(error) {
        Some(nearest) => format!("did you mean `{nearest}`? {next}"),
        None => next,
    };
    Failure::new(exit::USAGE, "usage", message).with_help(help)
}

fn usage_line(rendered: &str) -> Option<&str> {
    rendered.lines().find_map(|line| line.strip_prefix("Usage: "))
}

fn suggestion(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    kinds.into_iter().find_map(|kind| {
        let context = error.get(kind)?;
        if let ContextValue::Strings(names) = context {
            return names.first().cloned();
        }
        if let ContextValue::String(name) = context { Some(name.clone()) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Parsed, Refused> {
        let args = std::iter::once("dshd").chain(line.split_whitespace()).map(OsString::from);
        parse(args, Environment::default())
    }

    #[track_caller]
    fn refused(line: &str, message: &str, help: &str) {
        let refused = parsed(line).expect_err("the usage is wrong");
        assert_eq!(refused.failure.code, exit::USAGE);
        assert!(refused.failure.message.contains(message), "{:?}", refused.failure);
        assert!(
            refused.failure.help.as_deref().is_some_and(|text| text.contains(help)),
            "{:?}",
            refused.failure
        );
    }

    #[test]
    fn a_misspelt_command_or_flag_is_told_the_nearest() {
        refused("sesions", "unrecognized subcommand 'sesions'", "did you mean `sessions`?");
        refused("config chek", "'chek'", "did you mean `check`?");
        refused("status --jsn", "'--jsn'", "did you mean `--json`?");
    }

    #[test]
    fn what_is_missing_or_no_value_is_told_in_one_sentence() {
        refused("cancel", "<ID>", "usage: dshd cancel");
        refused("serve --listen foo", "expected unix:/path, tcp:host:port or tls:host:port", "--help");
        refused("", "no command was given", "dshd prompt TEXT");
        assert!(!parsed("cancel").unwrap_err().failure.message.contains('\n'));
    }

    #[test]
    fn wrong_usage_is_told_in_json_when_json_was_asked_for() {
        assert!(parsed("--json stats").unwrap_err().json);
        assert!(!parsed("stats").unwrap_err().json);
    }

    #[test]
    fn the_sdk_profile_is_stdio_and_takes_patches_but_no_command() {
        let Parsed::Run(invocation) = parsed("--profile sdk --patch a --patch b").unwrap() else {
            panic!("told")
        };
        assert_eq!(invocation.globals.flags.profile, Profile::Sdk);
        let Command::Stdio(args) = invocation.command else { panic!("it is stdio") };
        assert_eq!(args.ignored_patches.len(), 2);
        refused("--profile sdk serve", "takes no subcommand", "dshd --profile sdk");
        refused("--patch a serve", "--profile", "usage");
    }

    #[test]
    fn global_flags_stand_before_or_after_the_command() {
        for line in
            ["-H unix:/x --json status", "status -H unix:/x --json", "status --connect unix:/x --json"]
        {
            let Parsed::Run(invocation) = parsed(line).unwrap() else { panic!("told") };
            assert_eq!(invocation.globals.args.connect.as_deref(), Some("unix:/x"));
            assert!(invocation.globals.args.json);
        }
    }

    #[test]
    fn flags_of_serve_become_configuration() {
        let line = "serve -l tcp:127.0.0.1:0 -l /s --log-level debug --log-format json --data-dir /d";
        let Parsed::Run(invocation) = parsed(line).unwrap() else { panic!("told") };
        let flags = invocation.globals.flags;
        assert_eq!(
            flags.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["tcp:127.0.0.1:0", "unix:/s"]
        );
        assert_eq!(flags.log_level.as_deref(), Some("debug"));
        assert_eq!(flags.log_format, Some(crate::config::LogFormat::Json));
        assert_eq!(flags.data_dir.as_deref(), Some(std::path::Path::new("/d")));
    }

    #[test]
    fn the_definition_has_no_contradiction() {
        Cli::command().debug_assert();
    }
}
