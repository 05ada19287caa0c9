//! `dshd doctor`: looks at everything that a daemon stands on, and says what is wrong and how to mend it. It starts nothing.

mod machine;
mod place;
mod trust;

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::{Failure, Globals, exit, output, reach, refusal};
use crate::config::{self, Config, Loaded};
use crate::protocol::{Empty, Method, Phase, StatusResult};

/// Arguments of `dshd doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd doctor
  dshd doctor --offline --json | jq '.checks[] | select(.status != \"ok\")'
  dshd doctor --fix")]
pub struct DoctorArgs {
    /// Ask no model
    #[arg(long)]
    pub offline: bool,
    /// Mend permissions, and remove a socket that nobody listens on; nothing else
    #[arg(long)]
    pub fix: bool,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Ok,
    Warn,
    Fail,
}

impl Grade {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    status: Grade,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

impl Check {
    fn ok(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, status: Grade::Ok, text: text.into(), help: None }
    }

    fn warn(name: &'static str, text: impl Into<String>, help: impl Into<String>) -> Self {
        Self { name, status: Grade::Warn, text: text.into(), help: Some(help.into()) }
    }

    fn fail(name: &'static str, text: impl Into<String>, help: impl Into<String>) -> Self {
        Self { status: Grade::Fail, ..Self::warn(name, text, help) }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    checks: &'a [Check],
    ok: usize,
    warnings: usize,
    failures: usize,
}

pub(super) async fn run(args: DoctorArgs, globals: &Globals) -> Result<u8, Failure> {
    let checks = match config::load(&globals.environment, &globals.flags) {
        Ok(loaded) => all(&args, globals, &loaded).await,
        Err(error) => {
            let help = error.help().unwrap_or_else(|| "dshd config check".to_owned());
            let mut checks = vec![Check::fail("config", error.to_string(), help)];
            checks.extend(machine::sandbox(&Config::default()).await);
            checks.push(machine::clock(None));
            checks
        }
    };
    let count = |grade| checks.iter().filter(|check| check.status == grade).count();
    let (ok, warnings, failures) = (count(Grade::Ok), count(Grade::Warn), count(Grade::Fail));
    if globals.args.json {
        let document = Document { schema: "dshd.doctor/1", checks: &checks, ok, warnings, failures };
        output::print_json(&document)?;
    } else {
        output::print(&text(&checks, (ok, warnings, failures)))?;
    }
    Ok(if failures == 0 { exit::OK } else { exit::REFUSED })
}

async fn all(args: &DoctorArgs, globals: &Globals, loaded: &Loaded) -> Vec<Check> {
    let mut checks = vec![configuration(loaded)];
    checks.extend(place::data(loaded, args.fix));
    checks.push(place::lock(loaded));
    checks.extend(place::sockets(loaded, args.fix));
    checks.push(daemon(globals, loaded).await);
    checks.extend(machine::sandbox(&loaded.config).await);
    if !args.offline {
        checks.push(trust::model(globals, loaded).await);
    }
    checks.extend(trust::credentials(loaded, args.fix));
    checks.extend(trust::certificates(loaded));
    checks.push(machine::limits(&loaded.config));
    checks.push(machine::clock(Some(&loaded.paths.data_dir)));
    checks
}

fn configuration(loaded: &Loaded) -> Check {
    // Files of secrets are looked at by themselves.
    let doubts: Vec<&str> = loaded
        .warnings
        .iter()
        .map(String::as_str)
        .filter(|text| !text.contains("others can read it"))
        .collect();
    if !doubts.is_empty() {
        return Check::warn("config", doubts.join("; "), "dshd config show --sources");
    }
    let files: Vec<String> = loaded.paths.files.iter().map(|path| path.display().to_string()).collect();
    Check::ok("config", if files.is_empty() { "no file, all defaults".to_owned() } else { files.join(", ") })
}

/// What a running daemon says of itself.
async fn daemon(globals: &Globals, loaded: &Loaded) -> Check {
    const NAME: &str = "daemon";
    let asked = async {
        let reached = reach::viewer(globals, loaded).await?;
        reached.call::<_, StatusResult>(Method::Status, &Empty {}).await
    };
    match asked.await {
        Ok(StatusResult { storage_failure: Some(reason), .. }) => {
            let help = "look at the disk, then restart: dshd stop";
            Check::fail(NAME, format!("storage failed, it only reads: {reason}"), help)
        }
        Ok(status) => {
            let phase = if status.phase == Phase::Ready { "ready" } else { "draining" };
            Check::ok(NAME, format!("{} {phase}, pid {}", status.version, status.pid))
        }
        Err(failure) if failure.kind == refusal::NO_DAEMON => Check::ok(NAME, "none runs; prompt starts one"),
        Err(failure) => {
            Check::fail(NAME, failure.message, failure.help.unwrap_or_else(|| "dshd status".to_owned()))
        }
    }
}

fn text(checks: &[Check], (ok, warnings, failures): (usize, usize, usize)) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let colour = match check.status {
            Grade::Ok => "32",
            Grade::Warn => "33",
            Grade::Fail => "31",
        };
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "\x1b[{colour}m{:4}\x1b[0m  {:width$}  {}",
            check.status.as_str(),
            check.name,
            super::escape::one_line(&check.text, usize::MAX)
        );
        if let Some(help) = &check.help {
            let _ = write!(text, " → help: {}", super::escape::one_line(help, usize::MAX));
        }
        text.push('\n');
    }
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "{ok} ok, {warnings} warning{}, {failures} failure{}",
        plural(warnings),
        plural(failures)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_trouble_and_its_remedy() {
        let checks = [Check::ok("config", "fine"), Check::warn("data", "mode 0755", "chmod 700 /d")];
        assert_eq!(
            text(&checks, (1, 1, 0)),
            "\x1b[32mok  \x1b[0m  config  fine\n\
             \x1b[33mwarn\x1b[0m  data    mode 0755 → help: chmod 700 /d\n\
             1 ok, 1 warning, 0 failures\n"
        );
    }
}
