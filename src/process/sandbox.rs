//! The sandbox: what programs that run for an agent may touch, and the means that hold them to it.
//!
//! A [`Sandbox`] is the daemon's: which means is configured, what stays hidden from every program. A [`Confinement`] is one
//! program's: what it may write, whether it reaches the network. docs/security.md says what each means holds and what it
//! can't.

mod bwrap;
pub(super) mod filter;
pub(super) mod landlock;
mod places;
mod probe;
mod secrets;
mod view;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::probe::{Backend, Why, available};

pub(super) use self::bwrap::{Bwrap, arguments as bwrap_arguments};
pub(super) use self::view::View;

use self::places::Places;
use crate::config::{Config, Loaded, SandboxSetting};
use crate::event::PermissionMode;

/// The sandbox of a configuration. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    setting: SandboxSetting,
    /// `tools.network`.
    network: bool,
    places: Arc<Places>,
}

/// How one program is confined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    setting: SandboxSetting,
    places: Arc<Places>,
    mode: PermissionMode,
    /// What it works on: always visible, and writable but in read-only mode.
    workspaces: Vec<PathBuf>,
    /// Visible, and not writable.
    shown: Vec<PathBuf>,
    network: bool,
}

/// What holds a program.
#[derive(Debug)]
pub(super) enum Hold {
    /// Nothing: that is what its mode, the configuration or an approval says.
    Nothing,
    /// Namespaces, made by bubblewrap.
    Bwrap(Bwrap, View),
    /// Landlock and seccomp, by our own supervisor.
    Landlock(View),
}

/// A program can't be confined as it must be, so it does not run.
#[derive(Debug, thiserror::Error)]
pub enum Unconfinable {
    /// No means works here.
    #[error(
        "programs don't run without a sandbox, and none works here: {0}; install bubblewrap, or set tools.sandbox = \
         \"off\" if the machine is a sandbox itself"
    )]
    Unavailable(#[from] Why),
    /// Its workspace is where secrets are.
    #[error("{} is hidden from programs, because {} is", .workspace.display(), .hidden.display())]
    Hidden {
        /// What it would work on.
        workspace: PathBuf,
        /// What no program may see.
        hidden: PathBuf,
    },
}

impl Sandbox {
    /// The sandbox of a loaded configuration: it knows where the daemon keeps its own.
    pub fn new(loaded: &Loaded) -> Self {
        Self::with_places(&loaded.config, Places::new(loaded))
    }

    /// One that hides nothing but what the configuration itself names.
    pub fn of_config(config: &Config) -> Self {
        Self::with_places(config, Places::default())
    }

    fn with_places(config: &Config, places: Places) -> Self {
        let tools = &config.tools;
        Self { setting: tools.sandbox, network: tools.network, places: Arc::new(places) }
    }

    /// How a program of a session is confined.
    pub fn confine(&self, mode: PermissionMode, workspace: &Path) -> Confinement {
        Confinement {
            setting: self.setting,
            places: self.places.clone(),
            mode,
            workspaces: vec![workspace.to_path_buf()],
            shown: Vec::new(),
            network: self.network,
        }
    }

    /// What the model is told of how its commands run. Finds out what works here at the first call.
    pub async fn told(&self, mode: PermissionMode, workspace: &Path) -> String {
        if mode == PermissionMode::FullAccess || self.setting == SandboxSetting::Off {
            return "Commands run without a sandbox.".to_owned();
        }
        let setting = self.setting;
        let network = if self.network { "on" } else { "off" };
        match probe::of_setting(setting).await {
            Ok(_) => {
                let writes = match mode {
                    PermissionMode::WorkspaceWrite if !self.writes_in(workspace) => {
                        "they write in $TMPDIR only, since keys are kept in the working directory (work below it); it is"
                    }
                    PermissionMode::ReadOnly => "they write in $TMPDIR only, which is",
                    PermissionMode::WorkspaceWrite | PermissionMode::FullAccess => {
                        "they write in the working directory and in $TMPDIR only; $TMPDIR is"
                    }
                };
                format!(
                    "Commands run in a sandbox: network {network}; {writes} each command's own and gone after it."
                )
            }
            Err(_) => "Commands don't run: no sandbox works on this machine.".to_owned(),
        }
    }
}

impl Confinement {
    /// The confinement of what is not confined.
    pub fn none() -> Self {
        Sandbox::of_config(&Config::default()).confine(PermissionMode::FullAccess, Path::new("/"))
    }

    /// With the network or without it, whatever `tools.network` says.
    #[must_use]
    pub fn network(self, network: bool) -> Self {
        Self { network, ..self }
    }

    /// Working on these instead.
    #[must_use]
    pub fn on(self, workspaces: Vec<PathBuf>) -> Self {
        Self { workspaces, ..self }
    }

    /// Seeing a directory, even where others get an empty one.
    #[must_use]
    pub fn showing(mut self, directory: PathBuf) -> Self {
        self.shown.push(directory);
        self
    }

    fn is_off(&self) -> bool {
        self.mode == PermissionMode::FullAccess || self.setting == SandboxSetting::Off
    }

    /// What must hold a program that runs in `directory`. Blocks on the disk, and at the first call on finding out what
    /// works here.
    pub(super) fn hold(&self, program: &Path, directory: &Path) -> Result<Hold, Unconfinable> {
        if self.is_off() {
            return Ok(Hold::Nothing);
        }
        let backend = probe::of_setting_now(self.setting)?;
        let writes = self.mode != PermissionMode::ReadOnly;
        let view = View::new(&self.places, &self.workspaces, writes, self.network)?;
        let view = view.showing(self.shown.iter().map(PathBuf::as_path).chain([program]));
        view.require_visible(directory)?;
        Ok(match backend {
            Backend::Bwrap => Hold::Bwrap(probe::bwrap()?, view),
            Backend::Landlock => Hold::Landlock(view),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(setting: SandboxSetting, mode: PermissionMode) -> Result<Hold, Unconfinable> {
        let mut config = Config::default();
        config.tools.sandbox = setting;
        let confinement = Sandbox::of_config(&config).confine(mode, Path::new("/"));
        confinement.hold(Path::new("bash"), Path::new("/"))
    }

    #[test]
    fn nothing_holds_a_program_when_its_mode_or_the_configuration_says_so() {
        for (setting, mode) in [
            (SandboxSetting::Auto, PermissionMode::FullAccess),
            (SandboxSetting::Off, PermissionMode::ReadOnly),
        ] {
            assert!(matches!(hold(setting, mode), Ok(Hold::Nothing)), "{setting:?} {mode:?}");
        }
    }

    /// This test program does not confine by being started anew.
    #[test]
    fn what_cannot_be_confined_does_not_run_and_each_reason_is_told() {
        let refused = hold(SandboxSetting::Auto, PermissionMode::WorkspaceWrite).unwrap_err().to_string();
        assert!(refused.contains("bwrap: ") && refused.contains("landlock: "), "{refused}");
        let refused = hold(SandboxSetting::Landlock, PermissionMode::ReadOnly).unwrap_err().to_string();
        assert!(!refused.contains("bwrap: ") && refused.contains("tools.sandbox = \"off\""), "{refused}");
    }

    #[tokio::test]
    async fn the_model_is_told_when_nothing_holds_its_commands() {
        let sandbox = Sandbox::of_config(&Config::default());
        let told = sandbox.told(PermissionMode::FullAccess, Path::new("/")).await;
        assert_eq!(told, "Commands run without a sandbox.");
        let told = sandbox.told(PermissionMode::WorkspaceWrite, Path::new("/")).await;
        assert_eq!(told, "Commands don't run: no sandbox works on this machine.");
    }
}
