//! Which means work on this machine: found out once, by using them.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::bwrap::{self, Bwrap};
use super::{filter, landlock};
use crate::config::{Config, SandboxSetting};
use crate::process::supervise;

/// What confines programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// bubblewrap: namespaces of their own.
    Bwrap,
    /// Landlock and seccomp.
    Landlock,
}

impl Backend {
    /// As it is written in `tools.sandbox`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bwrap => "bwrap",
            Self::Landlock => "landlock",
        }
    }
}

/// Why nothing confines programs, for each means that may be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Why(pub Vec<String>);

/// What confines programs under this configuration. Blocks at its first call, some milliseconds.
///
/// # Errors
/// Why nothing does; also where `tools.sandbox` is `"off"`.
pub fn available(config: &Config) -> Result<Backend, Why> {
    of_setting_now(config.tools.sandbox)
}

/// The same for one setting, without blocking the caller's thread.
pub(super) async fn of_setting(setting: SandboxSetting) -> Result<Backend, Why> {
    tokio::task::spawn_blocking(move || of_setting_now(setting))
        .await
        .unwrap_or_else(|error| Err(Why(vec![format!("looking for a sandbox failed: {error}")])))
}

/// The same, blocking at its first call.
pub(super) fn of_setting_now(setting: SandboxSetting) -> Result<Backend, Why> {
    let allowed: &[Backend] = match setting {
        SandboxSetting::Auto => &[Backend::Bwrap, Backend::Landlock],
        SandboxSetting::Bwrap => &[Backend::Bwrap],
        SandboxSetting::Landlock => &[Backend::Landlock],
        SandboxSetting::Off => return Err(Why(vec!["tools.sandbox is \"off\"".to_owned()])),
    };
    let mut why = Vec::new();
    for backend in allowed {
        let usable = match backend {
            Backend::Bwrap => bwrap().map(drop),
            Backend::Landlock => landlock(),
        };
        match usable {
            Ok(()) => return Ok(*backend),
            Err(error) => why.extend(error.0),
        }
    }
    Err(Why(why))
}

/// bubblewrap, if it does here what we need of it.
pub(super) fn bwrap() -> Result<Bwrap, Why> {
    static PROBED: OnceLock<Result<Bwrap, String>> = OnceLock::new();
    let probed = PROBED.get_or_init(|| {
        let found = probe_bwrap();
        match &found {
            Ok(bwrap) => tracing::info!(program = %bwrap.0.display(), "bubblewrap can confine commands"),
            Err(error) => tracing::info!(error, "bubblewrap can't confine commands"),
        }
        found
    });
    probed.clone().map_err(|error| Why(vec![format!("bwrap: {error}")]))
}

fn landlock() -> Result<(), Why> {
    static PROBED: OnceLock<Result<(), String>> = OnceLock::new();
    let probed = PROBED.get_or_init(|| {
        supervised()?;
        landlock::probe()?;
        filter::landlock(false).map(drop)
    });
    probed.clone().map_err(|error| Why(vec![format!("landlock: {error}")]))
}

fn supervised() -> Result<(), String> {
    let missing = "this program is not dshd itself, which confines by being started anew";
    if supervise::is_enabled() { Ok(()) } else { Err(missing.to_owned()) }
}

fn probe_bwrap() -> Result<Bwrap, String> {
    supervised()?;
    let program = find("bwrap").ok_or("not installed (no bwrap in PATH)")?;
    let bwrap = Bwrap(program);
    let mut command = Command::new(&bwrap.0);
    command.args(bwrap::probe_arguments()).env_clear().stdin(Stdio::null());
    let output = command.output().map_err(|error: io::Error| format!("cannot start it: {error}"))?;
    if output.status.success() {
        return Ok(bwrap);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("it ended without a word");
    Err(said.trim_start_matches("bwrap: ").to_owned())
}

/// A program in the daemon's own PATH.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|directory| directory.join(name));
    found.into_iter().find(|path| path.is_absolute() && path.is_file())
}
