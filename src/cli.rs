//! The command line: the definition of all commands and global flags, and the way to each. One file a subcommand,
//! which holds its arguments and its `run`. Called by `main` alone.
#![expect(clippy::doc_markdown, reason = "arguments' docs are shown as help, not as markdown")]

mod approve;
mod attach;
mod autostart;
mod cancel;
mod completions;
mod config;
mod connect;
mod discover;
mod doctor;
mod escape;
pub mod exit;
mod failure;
mod happening;
mod human;
mod listing;
mod log;
mod login;
mod man;
mod mcp;
mod models;
mod offline;
mod output;
mod parse;
mod printer;
mod prompt;
mod question;
mod reach;
mod refusal;
mod serve;
mod service;
mod sessions;
mod status;
mod stdio;
mod stop;
mod table;
mod tell;
mod tls;
mod token;
mod top;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::failure::Failure;
pub use self::parse::{Invocation, Parsed, Refused, parse};

use crate::auth::certificate::Pin;
use crate::config::{Environment, Flags, Loaded, Profile};

/// A daemon that holds coding agents: many clients, one warm runtime, nothing lost.
#[derive(Debug, Parser)]
#[command(
    name = "dshd",
    version,
    subcommand_required = false,
    disable_help_subcommand = true,
    after_long_help = "EXAMPLES:\n  dshd prompt \"Why does test_parse fail?\"\n  dshd serve --listen unix:/tmp/dshd.sock\n  dshd status --json"
)]
pub struct Cli {
    /// Serve stdio as an official SDK expects it of its runtime
    #[arg(long, value_enum, value_name = "NAME")]
    pub profile: Option<ProfileName>,
    /// Accepted for official SDKs and ignored
    #[arg(long, value_name = "FILE", requires = "profile")]
    pub patch: Vec<PathBuf>,
    /// Flags of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The profiles of `--profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileName {
    /// What official SDKs launch.
    Sdk,
}

/// When to write colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Flags that every command takes.
#[expect(clippy::doc_markdown, reason = "help texts are no Markdown")]
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// The daemon's address: unix:/path, tcp:host:port, tls:host:port, ssh:host [env: DSHD_CONNECT] [config: client.connect]
    #[arg(long, short_alias = 'H', global = true, value_name = "ADDR")]
    pub connect: Option<String>,
    /// File that holds the token for TCP [env: DSHD_TOKEN_FILE, or the token itself in DSHD_TOKEN]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file of the CA that is trusted at a tls: address [env: DSHD_CA] [config: client.ca]
    #[arg(long, global = true, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Public key that is trusted at a tls: address, as dshd tls fingerprint prints it [env: DSHD_PIN] [config: client.pin]
    #[arg(long, global = true, value_name = "sha256:…")]
    pub pin: Option<Pin>,
    /// One more configuration file, read last [env: DSHD_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where sessions, locks, logs and tokens are [env: DSHD_DATA_DIR] [config: data_dir]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Print JSON: a report as one document, a stream as one object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colours [env: NO_COLOR, CLICOLOR_FORCE]
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Print the result alone
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Say more on stderr; repeat for more [env: DSHD_LOG] [config: log.level]
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Never ask; a question is an error that names the flag to pass
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Longest time to wait, as 30s or 5m
    #[arg(long, global = true, value_name = "DUR", value_parser = crate::config::duration::parse)]
    pub timeout: Option<Duration>,
}

/// What dshd can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground
    Serve(serve::ServeArgs),
    /// Run the runtime in this process and serve stdin and stdout
    Stdio(stdio::StdioArgs),
    /// Join stdin and stdout with the daemon, bytes only
    Connect(connect::ConnectArgs),
    /// Send a prompt and print the answer
    #[command(aliases = ["run", "exec", "ask"])]
    Prompt(prompt::PromptArgs),
    /// Watch a session live, and talk to it, beside others
    Attach(attach::AttachArgs),
    /// List sessions
    #[command(visible_alias = "ls")]
    Sessions(sessions::SessionsArgs),
    /// Print a session's log
    Log(log::LogArgs),
    /// Cancel a session's turn
    Cancel(cancel::CancelArgs),
    /// Allow what a session's call asks for; list what waits
    Approve(approve::ApproveArgs),
    /// Reject what a session's call asks for
    Reject(approve::RejectArgs),
    /// Say how the daemon is
    Status(status::StatusArgs),
    /// Show what the daemon does, again and again
    Top(top::TopArgs),
    /// Stop the daemon; running turns may finish
    Stop(stop::StopArgs),
    /// Look at everything that a daemon stands on, and say how to mend it
    Doctor(doctor::DoctorArgs),
    /// Install the daemon as a service of systemd
    Service(service::ServiceArgs),
    /// List configured models
    Models(models::ModelsArgs),
    /// List MCP servers, and trust those of workspaces
    Mcp(mcp::McpArgs),
    /// Show, check and start the configuration
    Config(config::ConfigArgs),
    /// Store a provider's key
    #[command(visible_alias = "auth")]
    Login(login::LoginArgs),
    /// Manage the tokens of TCP clients
    Token(token::TokenArgs),
    /// Make, show and renew the certificate of TLS addresses
    Tls(tls::TlsArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual, or write its pages to a directory
    Man(man::ManArgs),
}

impl Command {
    /// Whether it is the daemon or a runtime of its own: it logs, and it has worker threads.
    pub fn is_daemon(&self) -> bool {
        match self {
            Self::Serve(args) => !args.check,
            Self::Stdio(_) => true,
            Self::Connect(_)
            | Self::Prompt(_)
            | Self::Attach(_)
            | Self::Sessions(_)
            | Self::Log(_)
            | Self::Cancel(_)
            | Self::Approve(_)
            | Self::Reject(_)
            | Self::Status(_)
            | Self::Top(_)
            | Self::Stop(_)
            | Self::Doctor(_)
            | Self::Service(_)
            | Self::Models(_)
            | Self::Mcp(_)
            | Self::Config(_)
            | Self::Login(_)
            | Self::Token(_)
            | Self::Tls(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}

/// What every command gets beside its own arguments.
#[derive(Clone, Debug)]
pub struct Globals {
    /// Global flags as given.
    pub args: GlobalArgs,
    /// The process's environment, read once.
    pub environment: Environment,
    /// What the flags say about configuration.
    pub flags: Flags,
}

impl Globals {
    /// Collects what the flags of all commands say about configuration.
    pub fn new(args: GlobalArgs, environment: Environment, command: &Command, profile: Profile) -> Self {
        let mut flags = Flags {
            config: args.config.clone(),
            data_dir: args.data_dir.clone(),
            profile,
            ..Flags::default()
        };
        if let Command::Serve(serve) = command {
            flags.listen.clone_from(&serve.listen);
            flags.log_level.clone_from(&serve.log_level);
            flags.log_format = serve.log_format.map(Into::into);
        }
        Self { args, environment, flags }
    }

    /// Loads the configuration for a client command, and warns of what is doubtful in it.
    ///
    /// # Errors
    /// With [`exit::CONFIG`] when a file or variable is wrong.
    pub fn load(&self) -> Result<Loaded, Failure> {
        let loaded = crate::config::load(&self.environment, &self.flags)?;
        for warning in &loaded.warnings {
            crate::telemetry::say(&format!("warning: {warning}"));
        }
        Ok(loaded)
    }
}

/// Runs a command that is a client or needs no daemon. The exit code.
///
/// # Errors
/// What went wrong, for the user.
pub async fn run(command: Command, globals: &Globals) -> Result<u8, Failure> {
    match command {
        Command::Connect(args) => connect::run(args, globals).await,
        Command::Prompt(args) => prompt::run(args, globals).await,
        Command::Attach(args) => attach::run(args, globals).await,
        Command::Sessions(args) => sessions::run(args, globals).await,
        Command::Log(args) => log::run(args, globals).await,
        Command::Cancel(args) => cancel::run(args, globals).await,
        Command::Approve(args) => approve::run(args, globals).await,
        Command::Reject(args) => approve::reject(args, globals).await,
        Command::Status(args) => status::run(args, globals).await,
        Command::Top(args) => top::run(args, globals).await,
        Command::Stop(args) => stop::run(args, globals).await,
        Command::Doctor(args) => doctor::run(args, globals).await,
        Command::Service(args) => service::run(args, globals).await,
        Command::Models(args) => models::run(args, globals).await,
        Command::Mcp(args) => mcp::run(args, globals).await,
        Command::Config(args) => config::run(&args, globals),
        Command::Login(args) => login::run(&args, globals),
        Command::Token(args) => token::run(args, globals).await,
        Command::Tls(args) => tls::run(args, globals),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Serve(args) => serve::check(&args, globals),
        Command::Stdio(_) => Err(Failure::bug("stdio was not run as a daemon")),
    }
}

/// Runs the daemon or a runtime of its own. The exit code.
///
/// # Errors
/// What ended it other than a request to stop.
pub async fn run_daemon(command: Command, loaded: Loaded, globals: &Globals) -> Result<u8, Failure> {
    match command {
        Command::Serve(args) => serve::run(args, loaded, globals).await,
        Command::Stdio(args) => stdio::run(args, loaded).await,
        Command::Connect(_)
        | Command::Prompt(_)
        | Command::Attach(_)
        | Command::Sessions(_)
        | Command::Log(_)
        | Command::Cancel(_)
        | Command::Approve(_)
        | Command::Reject(_)
        | Command::Status(_)
        | Command::Top(_)
        | Command::Stop(_)
        | Command::Doctor(_)
        | Command::Service(_)
        | Command::Models(_)
        | Command::Mcp(_)
        | Command::Config(_)
        | Command::Login(_)
        | Command::Token(_)
        | Command::Tls(_)
        | Command::Completions(_)
        | Command::Man(_) => Err(Failure::bug("a client command was run as a daemon")),
    }
}
