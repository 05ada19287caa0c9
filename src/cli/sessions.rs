//! `dshd sessions`: lists sessions, closes them.

use clap::Args;

use super::{Failure, Globals, exit};

/// Arguments of `dshd sessions`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd sessions
  dshd sessions --running --json
  dshd sessions close 3f9c")]
pub struct SessionsArgs {
    /// What to do; without it the sessions are listed
    #[command(subcommand)]
    pub action: Option<SessionsAction>,
    /// List all, however many
    #[arg(long, short)]
    pub all: bool,
    /// Only sessions of this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<std::path::PathBuf>,
    /// Only sessions that run
    #[arg(long)]
    pub running: bool,
    /// At most so many
    #[arg(short = 'n', value_name = "N", default_value_t = 50)]
    pub count: usize,
    /// Order of the list
    #[arg(long, value_enum, default_value_t, value_name = "BY")]
    pub sort: SortBy,
    /// Print no header
    #[arg(long)]
    pub no_header: bool,
}

/// What to do with sessions.
#[derive(Debug, clap::Subcommand)]
pub enum SessionsAction {
    /// End a session's agent; its log stays
    Close {
        /// The session
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SortBy {
    /// Newest first.
    #[default]
    Updated,
    /// Last made first.
    Created,
    /// By title.
    Title,
}

pub(super) async fn run(_args: SessionsArgs, _globals: &Globals) -> Result<u8, Failure> {
    Err(Failure::new(exit::REFUSED, "internal", "not built yet"))
}
