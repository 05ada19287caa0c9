//! How a command fails: an exit code, a kind for programs, a sentence and a next step for people.

use std::borrow::Cow;

use serde::Serialize;

use super::exit;
use crate::config::ConfigError;
use crate::telemetry::{self, TelemetryError};

/// Why a command failed. Told on stderr by `main` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The process's exit code, of [`exit`].
    pub code: u8,
    /// For programs, stable: `usage`, `config`, `unreachable`, or a `kind` of the wire.
    pub kind: Cow<'static, str>,
    /// One lower-case sentence without a full stop that names the thing and the value. Empty: nothing is told.
    pub message: String,
    /// What to do next, with a command that can be pasted.
    pub help: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: u8,
    kind: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
}

impl Failure {
    /// A failure without help.
    pub fn new(code: u8, kind: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code, kind: kind.into(), message: message.into(), help: None }
    }

    /// Adds the next step.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, "usage", message)
    }

    /// A bug of ours.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(exit::BUG, "internal", message)
    }

    /// The reader of stdout is gone; nobody is told.
    pub fn broken_pipe() -> Self {
        Self::new(exit::BROKEN_PIPE, "broken_pipe", "")
    }

    /// Writes it to stderr, as JSON when asked. The exit code.
    pub fn tell(&self, json: bool) -> u8 {
        if !self.message.is_empty() {
            telemetry::say(self.render(json).trim_end());
        }
        self.code
    }

    fn render(&self, json: bool) -> String {
        let help = self.help.as_deref();
        if json {
            let body = Body { code: self.code, kind: &self.kind, message: &self.message, help };
            if let Ok(line) = serde_json::to_string(&Document { error: body }) {
                return line + "\n";
            }
        }
        let mut text = format!("error: {}\n", self.message);
        if let Some(help) = help {
            text.push_str("help: ");
            text.push_str(help);
            text.push('\n');
        }
        text
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let help = error.help();
        Self { code: exit::CONFIG, kind: "config".into(), message: error.to_string(), help }
    }
}

impl From<TelemetryError> for Failure {
    fn from(error: TelemetryError) -> Self {
        let (code, kind) = match &error {
            TelemetryError::Filter { .. } => (exit::CONFIG, "config"),
            TelemetryError::Directory { .. } => (exit::STORAGE, "storage_failed"),
        };
        Self::new(code, kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_a_sentence_and_a_next_step() {
        let failure = Failure::usage("no text").with_help("dshd prompt TEXT");
        assert_eq!(failure.render(false), "error: no text\nhelp: dshd prompt TEXT\n");
    }

    #[test]
    fn programs_get_one_json_line_with_the_exit_code() {
        let failure = Failure::usage("no \"text\"").with_help("dshd prompt TEXT");
        assert_eq!(
            failure.render(true),
            "{\"error\":{\"code\":64,\"kind\":\"usage\",\"message\":\"no \\\"text\\\"\",\"help\":\"dshd prompt TEXT\"}}\n"
        );
    }
}
