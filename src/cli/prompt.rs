//! `dshd prompt`: sends a prompt, prints the answer.

use clap::Args;

use super::{Failure, Globals, exit};

/// Arguments of `dshd prompt`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd prompt \"Why does test_parse fail?\"
  git diff | dshd prompt --stdin \"Review this\"
  dshd prompt -c --json \"And now?\" | jq -r .type")]
pub struct PromptArgs {
    /// The prompt; `-` or nothing reads it from stdin
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// Go on with this session, or make it
    #[arg(long, short, value_name = "ID")]
    pub session: Option<String>,
    /// Go on with the last session of this directory
    #[arg(long = "continue", short, conflicts_with = "session")]
    pub last: bool,
    /// Work in this directory
    #[arg(long, short = 'C', value_name = "DIR")]
    pub cwd: Option<std::path::PathBuf>,
    /// The model, as MODEL or PROVIDER/MODEL [config: default_provider, default_model]
    #[arg(long, short, value_name = "MODEL")]
    pub model: Option<String>,
    /// How hard the model thinks
    #[arg(long, value_name = "LEVEL")]
    pub effort: Option<String>,
    /// What the agent may touch: read-only, workspace-write, full-access [config: sessions.permission_mode]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// What to do when the session is busy
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub when_busy: WhenBusy,
    /// Add stdin to the text, as a fenced block
    #[arg(long)]
    pub stdin: bool,
    /// Write the answer to this file too
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<std::path::PathBuf>,
    /// Print the session and leave when the prompt is safe
    #[arg(long, short)]
    pub detach: bool,
    /// The same key again gets the first outcome and starts nothing
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Show the model's reasoning
    #[arg(long)]
    pub thinking: bool,
    /// Never start a daemon [env: DSHD_AUTOSTART=0] [config: client.autostart]
    #[arg(long)]
    pub no_autostart: bool,
}

/// What to do when the session is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WhenBusy {
    /// Refuse, exit code 5.
    #[default]
    Reject,
    /// Wait as a turn of its own.
    Queue,
}

pub(super) async fn run(_args: PromptArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
