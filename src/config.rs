//! The daemon's configuration: every key with its unit and default. Loading, sources and messages: `config/`.

mod builtin;
mod check;
mod choice;
mod credentials;
mod environment;
mod error;
mod file;
mod keys;
mod layer;
mod listen;
mod load;
mod mcp;
mod paths;
mod price;
mod private_file;
mod provider_check;
mod reload;
mod route;
#[cfg(test)]
mod sample;
mod show;
mod unit;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::builtin::{DEEPSEEK, SCRIPTED};
pub use self::check::tls_needed;
pub use self::choice::{LogFormat, ProviderKind, SandboxSetting};
pub use self::credentials::{
    Credentials, CredentialsError, KeyPlace, KeySource, Secret, api_key, loose_secret,
};
pub use self::environment::Environment;
pub use self::error::{ConfigError, Source};
pub use self::file::read_text;
pub use self::load::{Flags, Loaded, Profile, check_text, load};
pub use self::mcp::{check_mcp_server, workspace_mcp_servers};
pub use self::paths::{Paths, tls_files};
pub use self::private_file::write_private;
pub use self::reload::{changed_but_fixed, reload};
pub use self::show::{Row, is_key, nearest_key, rows, toml};
pub use self::unit::{ByteSize, duration};

use crate::event::{AskPolicy, PermissionMode};

macro_rules! table {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident : $type:ty = $default:expr,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($field: $default,)* }
                }
            }
        )*
    };
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

table! {
    /// The whole configuration.
    Config {
        /// Where sessions, locks, logs and tokens are.
        data_dir: Option<PathBuf> = None,
        /// The route's provider when a client names none; `scripted` when no key is set.
        default_provider: Option<String> = None,
        /// The route's model when a client names none.
        default_model: Option<String> = None,
        /// Addresses to serve. Empty: the user's Unix socket.
        listen: Vec<Listen> = Vec::new(),
        /// Model providers by name; `deepseek-official`, `anthropic`, `openai` and `scripted` are built in.
        providers: BTreeMap<String, ProviderConfig> = builtin::providers(),
        /// Sessions.
        sessions: Sessions = Sessions::default(),
        /// Turns.
        turn: Turn = Turn::default(),
        /// Bounds.
        limits: Limits = Limits::default(),
        /// Stopping.
        shutdown: Shutdown = Shutdown::default(),
        /// What sessions are stored with.
        store: Store = Store::default(),
        /// The HTTP listener for health and metrics.
        metrics: Metrics = Metrics::default(),
        /// Tools.
        tools: Tools = Tools::default(),
        /// MCP servers.
        mcp: Mcp = Mcp::default(),
        /// The daemon's own log.
        log: Log = Log::default(),
        /// Who may connect.
        auth: Auth = Auth::default(),
        /// The client commands.
        client: Client = Client::default(),
    }

    /// One address to serve: exactly one of `unix`, `tcp` and `fd`.
    Listen {
        /// Path of a Unix socket.
        unix: Option<PathBuf> = None,
        /// `HOST:PORT`.
        tcp: Option<String> = None,
        /// Name of a socket that the service manager hands over (`FileDescriptorName=`).
        fd: Option<String> = None,
        /// Speak TLS, at a TCP address.
        tls: Option<ListenTls> = None,
        /// The highest permission mode that clients of this address may ask for; none: `full-access` at a Unix socket,
        /// `workspace-write` at TCP.
        mode_max: Option<PermissionMode> = None,
    }

    /// The certificate of an address, in PEM files; those that are not named are what `dshd tls init` makes.
    ListenTls {
        /// The certificate, and those that lead to its CA.
        cert: Option<PathBuf> = None,
        /// Its private key.
        key: Option<PathBuf> = None,
        /// Certificates of CAs: only clients with a certificate of one of them may connect.
        client_ca: Option<PathBuf> = None,
    }

    /// A model provider.
    ProviderConfig {
        /// The wire it speaks.
        kind: ProviderKind = ProviderKind::Chat,
        /// Where it is; the wire's path is added.
        base_url: Option<String> = None,
        /// Variable that holds the key.
        api_key_env: Option<String> = None,
        /// File that holds the key.
        api_key_file: Option<PathBuf> = None,
        /// The model when a client names this provider and no model.
        default_model: Option<String> = None,
        /// Headers that each request gets besides those of its wire, or instead of them. Their values are secrets.
        headers: BTreeMap<String, String> = BTreeMap::new(),
        /// PEM file of certificates that are trusted besides the system's.
        ca_file: Option<PathBuf> = None,
        /// Calls at once; the others wait in a queue. 0: any number.
        concurrency: usize = 0,
        /// Longest wait in that queue.
        #[serde(with = "duration")]
        queue_timeout: Duration = Duration::from_mins(10),
        /// `scripted`: the script file; none plays the built-in script.
        script: Option<PathBuf> = None,
        /// Speak HTTP/1.1 only.
        http1_only: bool = false,
        /// Split `<think>` tags out of the text.
        think_tags: bool = false,
        /// How often a failed call is made again.
        max_retries: u32 = 5,
        /// First pause before a retry; doubles up to 10 s, with full jitter.
        #[serde(with = "duration")]
        retry_base: Duration = Duration::from_millis(500),
        /// Longest wait for a connection.
        #[serde(with = "duration")]
        connect_timeout: Duration = Duration::from_secs(10),
        /// Longest wait for the response's header.
        #[serde(with = "duration")]
        header_timeout: Duration = Duration::from_mins(1),
        /// Longest silence in a stream; comments count as life.
        #[serde(with = "duration")]
        idle_timeout: Duration = Duration::from_mins(2),
        /// Longest wait for the first token; comments do not count.
        #[serde(with = "duration")]
        first_token_timeout: Duration = Duration::from_mins(10),
        /// What its models can do; a model that is not here is sent as named, with defaults.
        models: BTreeMap<String, ModelConfig> = BTreeMap::new(),
    }

    /// A model's window, abilities and prices.
    ModelConfig {
        /// Tokens that it reads.
        context_window: u64 = 128_000,
        /// Tokens that it writes at most in one answer; none: the provider's own default.
        max_output: Option<u64> = None,
        /// Offers tools.
        tools: bool = true,
        /// Thinks, and takes its wire's switch for it.
        thinking: bool = false,
        /// `anthropic`: decides by itself how much it thinks, and takes no budget.
        adaptive_thinking: bool = false,
        /// `responses`: gives summaries of what it thinks.
        reasoning_summary: bool = true,
        /// Takes `reasoning_effort`.
        reasoning_effort: bool = false,
        /// Takes `stream_options.include_usage`.
        stream_usage: bool = true,
        /// `chat`: calls the output limit `max_completion_tokens`, as OpenAI's newer models do.
        max_completion_tokens: bool = false,
        /// Takes `parallel_tool_calls`.
        parallel_tool_calls: bool = false,
        /// Takes images.
        images: bool = false,
        /// Price of a million input tokens, in the provider's currency.
        price_input: Option<f64> = None,
        /// Price of a million cached input tokens; none: as any input.
        price_cache_read: Option<f64> = None,
        /// Price of a million input tokens that are written to the cache; none: as any input.
        price_cache_write: Option<f64> = None,
        /// Price of a million output tokens.
        price_output: Option<f64> = None,
    }

    /// Sessions.
    Sessions {
        /// Report a turn that ended at the model's output limit as `ok`.
        max_tokens_as_success: bool = false,
        /// What agents may touch.
        permission_mode: PermissionMode = PermissionMode::WorkspaceWrite,
        /// Tokens that a session may use in all, its subagents counted in; none or 0: any number.
        budget_tokens: Option<u64> = None,
        /// What a session may cost in all, in the provider's currency, where prices are configured; none or 0: anything.
        budget_cost: Option<f64> = None,
        /// An idle session leaves memory after this.
        #[serde(with = "duration")]
        idle_unload: Duration = Duration::from_mins(10),
        /// Whether calls outside the mode are asked for.
        approval_policy: AskPolicy = AskPolicy::Ask,
        /// What nobody answers for so long is rejected.
        #[serde(with = "duration")]
        approval_timeout: Duration = Duration::from_mins(10),
        /// What is kept.
        retain: Retain = Retain::default(),
    }

    /// What is kept of sessions; beyond it whole sessions are deleted, longest idle first.
    Retain {
        /// Since the last change; 0: any.
        #[serde(with = "duration")]
        max_age: Duration = Duration::ZERO,
        /// Logs and blobs of all; 0: any.
        max_bytes: ByteSize = ByteSize(0),
    }

    /// Turns.
    Turn {
        /// Model calls in one turn.
        max_steps: u32 = 200,
        /// The identical call that brings a reminder.
        repeat_remind: u32 = 3,
        /// The identical call that stops the turn.
        repeat_stop: u32 = 8,
        /// Percent of the model's window less its output at which what was said is summarised.
        compact_at: u32 = 80,
        /// What the model gets of one `AGENTS.md`; 0: none is read.
        agent_instructions_bytes: ByteSize = ByteSize(32 * KIB),
        /// Text of one tool result that the model gets.
        tool_result_bytes: ByteSize = ByteSize(50 * KIB),
    }

    /// Bounds, each named for what it bounds.
    Limits {
        /// One line from a client.
        line_bytes: ByteSize = ByteSize(16 * MIB),
        /// Requests in flight on a connection.
        in_flight: usize = 32,
        /// Requests in flight on all connections.
        in_flight_total: usize = 1024,
        /// What waits to be written on a connection, of which 64 KiB is kept for small replies.
        outbound_bytes: ByteSize = ByteSize(MIB),
        /// What the kernel holds of a connection that is not sent yet; what is beyond it waits in `outbound_bytes`, where
        /// it is counted.
        socket_bytes: ByteSize = ByteSize(64 * KIB),
        /// Recent events that a session keeps in memory.
        feed_bytes: ByteSize = ByteSize(256 * KIB),
        /// Requests that wait for a session.
        mailbox: usize = 64,
        /// Sessions in memory.
        loaded_sessions: usize = 256,
        /// Subagents of one turn at once.
        subagents: usize = 8,
        /// Connections.
        connections: usize = 1024,
        /// Connections of one local user; 4 more are kept for the owner.
        connections_per_uid: usize = 64,
        /// Subscriptions of a connection.
        subscriptions: usize = 1024,
        /// A peer whose socket takes no byte for so long is closed.
        #[serde(with = "duration")]
        write_progress: Duration = Duration::from_secs(30),
        /// Time to authenticate.
        #[serde(with = "duration")]
        preauth_time: Duration = Duration::from_secs(10),
        /// Bytes read before authentication.
        preauth_bytes: ByteSize = ByteSize(8 * KIB),
        /// Connections that have not authenticated yet.
        preauth_connections: usize = 64,
        /// Those of one source: an IPv4 address, or an IPv6 network of 64 bits.
        preauth_per_source: usize = 8,
        /// Child processes of all tools.
        children: usize = 32,
        /// Background jobs of a session that run, and as many that have ended and can still be read.
        jobs: usize = 16,
        /// Bad frames in a row that end a connection.
        bad_frames: u32 = 100,
        /// One event.
        event_bytes: ByteSize = ByteSize(MIB),
        /// One message of a model.
        message_bytes: ByteSize = ByteSize(16 * MIB),
        /// One picture of a prompt or a tool.
        image_bytes: ByteSize = ByteSize(5 * MIB),
        /// Pictures that one request to a model carries; older ones are left out.
        request_image_bytes: ByteSize = ByteSize(20 * MIB),
    }

    /// Stopping.
    Shutdown {
        /// Running turns may take so long to finish.
        #[serde(with = "duration")]
        drain_timeout: Duration = Duration::from_secs(30),
        /// Then cancelled turns may take so long until their processes are killed.
        #[serde(with = "duration")]
        cancel_grace: Duration = Duration::from_secs(2),
    }

    /// What sessions are stored with.
    Store {
        /// Below so much free space of the data directory's file system no turn begins, and a running one ends at its next
        /// step; what is left is for the logs' ends. 0: turns run until the disk is full.
        reserve_bytes: ByteSize = ByteSize(64 * MIB),
    }

    /// The HTTP listener for health and metrics.
    Metrics {
        /// A loopback `HOST:PORT`, or `unix:/path`; none: there is no such listener.
        listen: Option<String> = None,
    }

    /// Tools.
    Tools {
        /// What holds commands, background jobs and MCP servers' programs to what their mode allows.
        sandbox: SandboxSetting = SandboxSetting::Auto,
        /// Let them reach the network.
        network: bool = false,
        /// Serve TCP although tools run without a sandbox.
        allow_unsandboxed_remote: bool = false,
        /// Longest run of a command that names no limit of its own.
        #[serde(with = "duration")]
        bash_timeout: Duration = Duration::from_mins(1),
        /// Longest run of a search; then it gives back what it has.
        #[serde(with = "duration")]
        search_timeout: Duration = Duration::from_secs(30),
        /// Files that `glob` lists.
        glob_paths: usize = 100,
        /// Lines that `grep` shows.
        grep_matches: usize = 250,
        /// Offer `web_fetch`.
        web_fetch: bool = false,
        /// Longest fetch, redirects included.
        #[serde(with = "duration")]
        web_fetch_timeout: Duration = Duration::from_secs(30),
        /// Bytes of a page that are read.
        web_fetch_bytes: ByteSize = ByteSize(5 * MIB),
        /// Addresses (`IP:PORT`) that `web_fetch` reaches although they are not public.
        web_fetch_allow: Vec<String> = Vec::new(),
        /// Start of a command's output that is kept.
        output_head_bytes: ByteSize = ByteSize(128 * KIB),
        /// End of a command's output that is kept.
        output_tail_bytes: ByteSize = ByteSize(128 * KIB),
        /// Largest file that `write` and `edit` take.
        edit_bytes: ByteSize = ByteSize(16 * MIB),
        /// A stream of a command's output in a file, when it is too long for memory or for the model.
        spool_bytes: ByteSize = ByteSize(16 * MIB),
        /// All such files; the oldest are removed first.
        spool_total_bytes: ByteSize = ByteSize(256 * MIB),
        /// Variables that tools see besides PATH, HOME, USER, LOGNAME, SHELL, LANG, LC_*, TERM, TZ and TMPDIR.
        env: Vec<String> = Vec::new(),
    }

    /// MCP servers: programs and addresses that offer more tools.
    Mcp {
        /// Workspaces whose `.dshd/mcp.toml` and `.mcp.json` are used whatever they say.
        trusted_workspaces: Vec<PathBuf> = Vec::new(),
        /// Tools that a model is offered in all, the built-in ones counted.
        max_tools: usize = 128,
        /// Servers that run at once.
        max_servers: usize = 32,
        /// A server that no session has asked for so long is stopped; it starts again when one does.
        #[serde(with = "duration")]
        idle_stop: Duration = Duration::from_mins(30),
        /// One message of a server; one that sends a longer one is started anew.
        message_bytes: ByteSize = ByteSize(16 * MIB),
        /// The servers by name.
        servers: BTreeMap<String, McpServer> = BTreeMap::new(),
    }

    /// An MCP server: exactly one of `command` and `url`. `${NAME}` and `${NAME:-default}` in `command`, `args`, `env`,
    /// `url` and `headers` are variables of the daemon's environment.
    McpServer {
        /// The program; it speaks MCP on its stdin and stdout.
        command: Option<String> = None,
        /// Its arguments.
        args: Vec<String> = Vec::new(),
        /// Variables that it sees besides those that tools see.
        env: BTreeMap<String, String> = BTreeMap::new(),
        /// Where it runs; without it in the workspace, or the home when it belongs to none.
        cwd: Option<PathBuf> = None,
        /// What it may change: as that of a session that works in its workspace, or in `cwd`.
        permission_mode: PermissionMode = PermissionMode::WorkspaceWrite,
        /// More directories that it may change.
        writable: Vec<PathBuf> = Vec::new(),
        /// Let it reach the network; none: as `tools.network` says.
        network: Option<bool> = None,
        /// The address of a server that speaks streamable HTTP.
        url: Option<String> = None,
        /// Headers of every request to it.
        headers: BTreeMap<String, String> = BTreeMap::new(),
        /// Longest call.
        #[serde(with = "duration")]
        timeout: Duration = Duration::from_mins(1),
        /// Longest wait of a step for the server's first list of tools.
        #[serde(with = "duration")]
        start_timeout: Duration = Duration::from_secs(10),
        /// Text of one result that the model gets.
        result_bytes: ByteSize = ByteSize(50 * KIB),
        /// Use it.
        enabled: bool = true,
    }

    /// The daemon's own log.
    Log {
        /// `error`, `warn`, `info`, `debug`, `trace`, or a tracing filter.
        level: String = "info".to_owned(),
        /// How stderr is written.
        format: LogFormat = LogFormat::Text,
        /// Daily files kept in `<data>/log`.
        files_kept: usize = 7,
        /// One of them; what a day logs beyond it is not written.
        file_bytes: ByteSize = ByteSize(64 * MIB),
    }

    /// Who may connect.
    Auth {
        /// Local users besides root and our own that may use the Unix sockets.
        allowed_uids: Vec<u32> = Vec::new(),
        /// The highest permission mode that any client may ask for.
        mode_max: PermissionMode = PermissionMode::FullAccess,
    }

    /// The client commands.
    Client {
        /// The daemon's address.
        connect: Option<String> = None,
        /// PEM file of the CAs that are trusted at a `tls:` address.
        ca: Option<PathBuf> = None,
        /// `sha256:…` of the public key that is trusted there: that of the certificate or of its CA.
        pin: Option<String> = None,
        /// PEM file of our own certificate, where the daemon asks for one.
        cert: Option<PathBuf> = None,
        /// PEM file of its private key.
        key: Option<PathBuf> = None,
        /// Start a daemon when none listens.
        autostart: bool = true,
    }
}
