//! Keys that take one of a few words.

use serde::{Deserialize, Serialize};

/// The wires that a provider may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// `{base}/chat/completions`.
    Chat,
    /// `{base}/v1/messages`.
    Anthropic,
    /// `{base}/responses`.
    Responses,
    /// A script; no network.
    Scripted,
}

/// What confines the programs that tools run. With full access nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxSetting {
    /// bubblewrap where it works, else Landlock; where neither does, no program runs.
    Auto,
    /// bubblewrap.
    Bwrap,
    /// Landlock and seccomp.
    Landlock,
    /// Nothing.
    Off,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}
