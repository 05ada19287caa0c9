//! `dshd prompt`: sends a prompt, prints the answer.

mod drive;
mod images;
mod outcome;
mod questions;
mod replace;
mod save;
pub(super) mod screen;
pub(super) mod session;
mod text;
pub(super) mod turn;

use clap::Args;

use self::drive::{Drive, Ended};
use self::screen::{Screen, Style};
use super::printer::Printer;
use super::reach::{self, Reached, Start};
use super::{Failure, Globals, exit, refusal};
use std::io::IsTerminal as _;

use crate::config::Loaded;
use crate::protocol::{Completion, ContentBlock, InitializeParams, Mode, PromptParams};
use crate::signal::SignalStream;

/// Arguments of `dshd prompt`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_long_help = "EXAMPLES:
  dshd prompt \"Why does test_parse fail?\"
  git diff | dshd prompt --stdin \"Review this\"
  dshd prompt -i before.png -i after.png \"What has changed?\"
  dshd prompt -c --json \"And now?\" | jq -r .type")]
pub struct PromptArgs {
    /// The prompt; `-` or nothing reads it from stdin
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// Go on with this session, or make it
    #[arg(long, short, value_name = "ID")]
    pub session: Option<String>,
    /// Go on with the last session of this directory
    #[arg(long = "continue", short = 'c', conflicts_with = "session")]
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
    #[arg(long, value_enum, value_name = "MODE", hide_possible_values = true)]
    pub mode: Option<PermissionMode>,
    /// What to do when the session is busy
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub when_busy: WhenBusy,
    /// Show the model this picture too (PNG, JPEG, GIF, WebP); may be given again
    #[arg(long = "image", short, value_name = "FILE")]
    pub images: Vec<std::path::PathBuf>,
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
    /// What to do when a call asks for more than the mode allows; ask needs a terminal
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub on_approval: OnApproval,
    /// Show the model's reasoning
    #[arg(long)]
    pub thinking: bool,
    /// Never start a daemon [env: DSHD_AUTOSTART=0] [config: client.autostart]
    #[arg(long)]
    pub no_autostart: bool,
}

/// What the agent may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PermissionMode {
    /// Nothing may change.
    ReadOnly,
    /// The workspace may change.
    WorkspaceWrite,
    /// Anything.
    FullAccess,
}

impl From<PermissionMode> for Mode {
    fn from(mode: PermissionMode) -> Self {
        match mode {
            PermissionMode::ReadOnly => Self::ReadOnly,
            PermissionMode::WorkspaceWrite => Self::WorkspaceWrite,
            PermissionMode::FullAccess => Self::FullAccess,
        }
    }
}

/// What to do when a call asks for more than the mode allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnApproval {
    /// Ask here.
    #[default]
    Ask,
    /// Reject; others who follow the session may still answer.
    Reject,
}

/// What to do when the session is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WhenBusy {
    /// Refuse, exit code 5.
    #[default]
    Reject,
    /// Wait as a turn of its own.
    Queue,
    /// Tell the running turn, before its next model call.
    Steer,
}

impl From<WhenBusy> for crate::protocol::WhenBusy {
    fn from(when: WhenBusy) -> Self {
        match when {
            WhenBusy::Reject => Self::Reject,
            WhenBusy::Queue => Self::Queue,
            WhenBusy::Steer => Self::Steer,
        }
    }
}

pub(super) async fn run(args: PromptArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let text = text::gather(&args)?;
    let mut content = images::blocks(&args.images, globals.environment.cwd())?;
    content.insert(0, ContentBlock::Text { text });
    let initialize = initialize(&args, globals)?;
    let start = Start::allowed(args.no_autostart, globals, &loaded);
    let reached = reach::daemon(globals, &loaded, start, &initialize).await;
    let mut reached = reached.map_err(|failure| outcome::with_key_hint(failure, &args, globals, &loaded))?;
    if start == Start::WhenNeeded && replace::is_due(&reached, &args, globals, &loaded).await {
        replace::stop(reached, &loaded).await?;
        reached = reach::daemon(globals, &loaded, start, &initialize).await?;
    }
    outcome::tell_key_trap(&reached, &args, globals, &loaded);
    let session = session::choose(&reached, &args, &initialize).await?;
    let prompt = PromptParams {
        session_id: session,
        content_blocks: content,
        when_busy: Some(args.when_busy.into()),
        idempotency_key: args.idempotency_key.clone().or_else(|| Some(uuid::Uuid::new_v4().to_string())),
    };
    follow(&mut reached, &prompt, &args, globals, &loaded).await
}

async fn follow(
    reached: &mut Reached,
    prompt: &PromptParams,
    args: &PromptArgs,
    globals: &Globals,
    loaded: &Loaded,
) -> Result<u8, Failure> {
    let mut signals = SignalStream::install()
        .map_err(|error| Failure::bug(format!("cannot listen for signals: {error}")))?;
    let printer = Printer::new();
    let screen = Screen::new(Style::of(globals, args.thinking));
    let mut drive = Drive::new(reached, &mut signals, &printer, screen, prompt);
    drive.asks = asks(args, globals);
    let ended = drive.run(prompt, globals.args.timeout).await;
    let result = match ended {
        Ended::Left => return Ok(outcome::left(&signals)),
        Ended::PipeClosed => Ok(exit::BROKEN_PIPE),
        Ended::TimedOut => outcome::goes_on(&mut drive, prompt, args, globals).await,
        Ended::Replied(_) if args.detach => outcome::goes_on(&mut drive, prompt, args, globals).await,
        Ended::Replied(prompted) => {
            if drive.turn.reason().is_none() {
                let read = drive.replay(&prompted).await;
                read.map_err(|error| refusal::call(&drive.reached.target, error))?;
            }
            outcome::settled(&mut drive, &prompted, prompt, args, loaded).await
        }
        Ended::Refused(error) => outcome::refused(&mut drive, prompt, error).await,
    };
    drop(drive);
    printer.finish().await?;
    result
}

/// Whether somebody is here who can be asked.
fn asks(args: &PromptArgs, globals: &Globals) -> bool {
    let on_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let quiet = globals.args.no_input || globals.args.json || globals.args.quiet || args.detach;
    args.on_approval == OnApproval::Ask && on_terminal && !quiet
}

/// What the sessions that this prompt makes are like.
fn initialize(args: &PromptArgs, globals: &Globals) -> Result<InitializeParams, Failure> {
    let cwd = globals.environment.cwd().join(args.cwd.as_deref().unwrap_or(std::path::Path::new("")));
    // A directory that is not there may be one of the daemon's machine.
    let cwd = cwd.canonicalize().unwrap_or(cwd);
    let cwd = cwd.into_os_string().into_string().map_err(|path| {
        Failure::usage(format!("the directory {} is not UTF-8", path.display()))
            .with_help("dshd prompt -C DIR")
    })?;
    let (provider, model) = match args.model.as_deref().map(|model| model.split_once('/').ok_or(model)) {
        Some(Ok((provider, model))) => (Some(provider.to_owned()), Some(model.to_owned())),
        Some(Err(model)) => (None, Some(model.to_owned())),
        None => (None, None),
    };
    Ok(InitializeParams {
        cwd: Some(cwd),
        provider,
        model,
        reasoning_effort: args.effort.clone(),
        permission_mode: args.mode.map(Into::into),
        completion: Some(if args.detach { Completion::Receipt } else { Completion::Settled }),
        deltas: Some(true),
        client: Some(reach::ourselves()),
        approvals: Some(asks(args, globals)),
        ..InitializeParams::default()
    })
}
