//! Checks that types alone do not make: ranges, addresses, values that must agree.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use super::paths::tls_files;
use super::{
    ByteSize, Config, ConfigError, Limits, Listen, SandboxSetting, Source, keys, mcp, provider_check,
};

/// Longest path of a Unix socket on Linux, without its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Bytes of a connection's outbound queue that are kept for small replies.
const OUTBOUND_RESERVE: ByteSize = ByteSize(64 << 10);
/// Largest size of any queue, line or event.
pub(super) const SIZE_MAX: ByteSize = ByteSize(1 << 30);
/// Largest count of anything that a limit bounds.
const COUNT_MAX: usize = 1 << 20;
/// Smallest line that a request of any method fits in.
const LINE_MIN: ByteSize = ByteSize(4 << 10);

/// The kernel takes no smaller buffer than about this.
const SOCKET_MIN: ByteSize = ByteSize(4 << 10);

/// A key and why its value can't be used.
pub(super) struct Refusal {
    pub(super) key: String,
    pub(super) reason: String,
}

pub(super) type Checked = Result<(), Refusal>;

pub(super) fn refuse(key: impl Into<String>, reason: impl Into<String>) -> Checked {
    Err(Refusal { key: key.into(), reason: reason.into() })
}

/// Checks a merged configuration.
///
/// # Errors
/// The first value that can't be used, with where it was set.
pub(super) fn check(config: &Config, sources: &BTreeMap<String, Source>) -> Result<(), ConfigError> {
    let checked = config
        .listen
        .iter()
        .try_for_each(|listen| address(listen, config))
        .and_then(|()| {
            config.providers.iter().try_for_each(|(name, one)| provider_check::provider(name, one))
        })
        .and_then(|()| default_provider(config))
        .and_then(|()| config.mcp.servers.iter().try_for_each(|(name, one)| mcp::server(name, one)))
        .and_then(|()| metrics_address(config))
        .and_then(|()| limits(&config.limits))
        .and_then(|()| counts(config))
        .and_then(|()| sizes(config))
        .and_then(|()| durations(config))
        .and_then(|()| config.tools.web_fetch_allow.iter().try_for_each(|address| fetchable(address)))
        .and_then(|()| log_filter(&config.log.level));
    checked.map_err(|refusal| ConfigError::Value {
        origin: origin(&refusal.key, sources),
        key: refusal.key,
        reason: refusal.reason,
    })
}

/// Where a key, or the first key below it, was set.
fn origin(key: &str, sources: &BTreeMap<String, Source>) -> Source {
    let below = || sources.iter().find(|(other, _)| other.starts_with(&format!("{key}.")));
    sources.get(key).or_else(|| below().map(|(_, source)| source)).cloned().unwrap_or(Source::Default)
}

fn address(listen: &Listen, config: &Config) -> Checked {
    match (&listen.unix, &listen.tcp, &listen.fd) {
        (Some(_), None, None) if listen.tls.is_some() => {
            refuse("listen", "`tls` is for a `tcp` address; a Unix socket is protected by the kernel")
        }
        (Some(path), None, None) => socket_path(path),
        (None, Some(address), None) => tcp(address, listen, config),
        (None, None, Some(name)) if !name.is_empty() && !name.contains([':', '/']) => Ok(()),
        (None, None, Some(_)) => {
            refuse("listen", "`fd` is a name that FileDescriptorName= gives, as \"dshd-tcp\"")
        }
        (_, _, _) => refuse("listen", "each address has exactly one of `unix`, `tcp` and `fd`"),
    }
}

/// Whoever can reach it reads it: so it stays on this machine.
fn metrics_address(config: &Config) -> Checked {
    const KEY: &str = "metrics.listen";
    let refused = |reason: String| Refusal { key: KEY.to_owned(), reason };
    match config.metrics.address().map_err(refused)? {
        Some(Listen { unix: Some(path), .. }) if !path.is_absolute() => refuse(
            KEY,
            format!("expected an absolute path, as unix:/run/dshd/metrics.sock, got {}", path.display()),
        ),
        Some(Listen { unix: Some(path), .. }) => {
            socket_path(&path).map_err(|refusal| Refusal { key: KEY.to_owned(), ..refusal })
        }
        Some(Listen { tcp: Some(address), .. }) if !is_loopback(&address) => {
            let reason = format!(
                "{address} is not a loopback address, and this listener knows no tokens; use 127.0.0.1:9464 or \
                 unix:/path, and let the scraper run here or come by ssh"
            );
            refuse(KEY, reason)
        }
        Some(_) | None => Ok(()),
    }
}

fn is_loopback(address: &str) -> bool {
    Listen::split_tcp(address)
        .is_ok_and(|(host, _)| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

fn socket_path(path: &Path) -> Checked {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let reason = format!(
            "the socket's path {} has {bytes} bytes, at most {SOCKET_PATH_BYTES_MAX} are possible; \
             choose a shorter one with --listen unix:/path or --data-dir",
            path.display()
        );
        return refuse("listen", reason);
    }
    Ok(())
}

fn tcp(address: &str, listen: &Listen, config: &Config) -> Checked {
    let (host, _) =
        Listen::split_tcp(address).map_err(|reason| Refusal { key: "listen".to_owned(), reason })?;
    let ip = host.parse::<IpAddr>().map(|ip| ip.to_canonical());
    let loopback = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
    if !loopback && listen.tls.is_none() {
        return refuse("listen", tls_needed(address, config.data_dir.as_deref()));
    }
    if config.tools.sandbox == SandboxSetting::Off && !config.tools.allow_unsandboxed_remote {
        let reason = format!(
            "tcp:{address}: with tools.sandbox = \"off\" whoever has a token has your account; \
             set tools.allow_unsandboxed_remote = true if you mean it"
        );
        return refuse("listen", reason);
    }
    Ok(())
}

/// What to do before an address is served that other machines reach. Names every line.
pub fn tls_needed(address: &str, data_dir: Option<&Path>) -> String {
    let (cert, key) = tls_files(data_dir.unwrap_or(Path::new("<data_dir>")));
    format!(
        "tcp:{address} can be reached from other machines, which could read along without TLS; run\n  \
         dshd tls init --name {}\n  dshd token create NAME > NAME.token\nand write\n  [[listen]]\n  tcp = \
         \"{address}\"\n  tls = {{ cert = \"{}\", key = \"{}\" }}\nor listen on 127.0.0.1 and come in by ssh",
        name_for(address),
        cert.display(),
        key.display(),
    )
}

/// The name that a certificate of an address would have.
fn name_for(address: &str) -> &str {
    let host = Listen::split_tcp(address).map_or("HOST", |(host, _)| host);
    if host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_unspecified()) { "HOST" } else { host }
}

fn default_provider(config: &Config) -> Checked {
    match &config.default_provider {
        Some(name) if !config.providers.contains_key(name) => {
            let known: Vec<&str> = config.providers.keys().map(String::as_str).collect();
            let nearest = keys::nearest(name, known.iter().copied())
                .map_or_else(String::new, |nearest| format!("; did you mean \"{nearest}\"?"));
            let reason = format!("no provider \"{name}\"; there are {}{nearest}", known.join(", "));
            refuse("default_provider", reason)
        }
        Some(name) if config.model_of(name).is_none() => {
            let reason = format!(
                "provider \"{name}\" is asked for no model; set default_model, or {}",
                keys::join(&["providers", name, "default_model"])
            );
            refuse("default_provider", reason)
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) fn at_least<T: PartialOrd + Copy + std::fmt::Display>(key: &str, value: T, least: T) -> Checked {
    if value < least { refuse(key, format!("at least {least}, got {value}")) } else { Ok(()) }
}

pub(super) fn at_most<T: PartialOrd + Copy + std::fmt::Display>(key: &str, value: T, most: T) -> Checked {
    if value > most { refuse(key, format!("at most {most}, got {value}")) } else { Ok(()) }
}

pub(super) fn positive(key: &str, duration: Duration) -> Checked {
    if duration.is_zero() { refuse(key, "more than 0s") } else { Ok(()) }
}

/// What one limit demands of another.
fn limits(limits: &Limits) -> Checked {
    if limits.in_flight > limits.in_flight_total {
        let reason =
            format!("at most limits.in_flight_total, {}, got {}", limits.in_flight_total, limits.in_flight);
        return refuse("limits.in_flight", reason);
    }
    if limits.outbound_bytes <= OUTBOUND_RESERVE {
        let reason =
            format!("more than the {OUTBOUND_RESERVE} kept for replies, got {}", limits.outbound_bytes);
        return refuse("limits.outbound_bytes", reason);
    }
    at_least("limits.line_bytes", limits.line_bytes, LINE_MIN)?;
    at_least("limits.socket_bytes", limits.socket_bytes, SOCKET_MIN)?;
    at_least("limits.event_bytes", limits.event_bytes, LINE_MIN)?;
    at_least("limits.request_image_bytes", limits.request_image_bytes, limits.image_bytes)?;
    at_least("limits.message_bytes", limits.message_bytes, limits.event_bytes)
}

fn counts(config: &Config) -> Checked {
    let limits = &config.limits;
    let counts = [
        ("limits.in_flight", limits.in_flight),
        ("limits.in_flight_total", limits.in_flight_total),
        ("limits.mailbox", limits.mailbox),
        ("limits.loaded_sessions", limits.loaded_sessions),
        ("limits.subagents", limits.subagents),
        ("limits.connections", limits.connections),
        ("limits.connections_per_uid", limits.connections_per_uid),
        ("limits.subscriptions", limits.subscriptions),
        ("limits.preauth_connections", limits.preauth_connections),
        ("limits.preauth_per_source", limits.preauth_per_source),
        ("limits.children", limits.children),
        ("limits.jobs", limits.jobs),
        ("limits.bad_frames", limits.bad_frames as usize),
        ("turn.max_steps", config.turn.max_steps as usize),
        ("mcp.max_tools", config.mcp.max_tools),
        ("mcp.max_servers", config.mcp.max_servers),
        ("tools.glob_paths", config.tools.glob_paths),
        ("tools.grep_matches", config.tools.grep_matches),
        ("log.files_kept", config.log.files_kept),
    ];
    for (key, count) in counts {
        at_least(key, count, 1)?;
        at_most(key, count, COUNT_MAX)?;
    }
    at_least("turn.compact_at", config.turn.compact_at, 10)?;
    at_most("turn.compact_at", config.turn.compact_at, 95)?;
    at_least("turn.repeat_remind", config.turn.repeat_remind, 2)?;
    at_least("turn.repeat_stop", config.turn.repeat_stop, config.turn.repeat_remind)
}

fn sizes(config: &Config) -> Checked {
    let limits = &config.limits;
    let sizes = [
        ("limits.line_bytes", limits.line_bytes),
        ("limits.outbound_bytes", limits.outbound_bytes),
        ("limits.socket_bytes", limits.socket_bytes),
        ("limits.feed_bytes", limits.feed_bytes),
        ("limits.preauth_bytes", limits.preauth_bytes),
        ("limits.event_bytes", limits.event_bytes),
        ("limits.message_bytes", limits.message_bytes),
        ("limits.image_bytes", limits.image_bytes),
        ("limits.request_image_bytes", limits.request_image_bytes),
        ("turn.tool_result_bytes", config.turn.tool_result_bytes),
        ("mcp.message_bytes", config.mcp.message_bytes),
        ("tools.web_fetch_bytes", config.tools.web_fetch_bytes),
        ("tools.output_head_bytes", config.tools.output_head_bytes),
        ("tools.output_tail_bytes", config.tools.output_tail_bytes),
        ("tools.edit_bytes", config.tools.edit_bytes),
        ("tools.spool_bytes", config.tools.spool_bytes),
    ];
    for (key, size) in sizes {
        at_least(key, size, ByteSize(1))?;
        at_most(key, size, SIZE_MAX)?;
    }
    at_least("tools.spool_total_bytes", config.tools.spool_total_bytes, config.tools.spool_bytes)?;
    at_most("turn.agent_instructions_bytes", config.turn.agent_instructions_bytes, SIZE_MAX)?;
    match config.sessions.budget_cost {
        Some(cost) if !(cost.is_finite() && cost >= 0.0) => {
            refuse("sessions.budget_cost", format!("{cost} is no amount; 0 is no budget"))
        }
        Some(_) | None => Ok(()),
    }
}

fn durations(config: &Config) -> Checked {
    positive("limits.write_progress", config.limits.write_progress)?;
    positive("limits.preauth_time", config.limits.preauth_time)?;
    positive("sessions.idle_unload", config.sessions.idle_unload)?;
    positive("sessions.approval_timeout", config.sessions.approval_timeout)?;
    positive("mcp.idle_stop", config.mcp.idle_stop)?;
    positive("tools.search_timeout", config.tools.search_timeout)?;
    positive("tools.web_fetch_timeout", config.tools.web_fetch_timeout)?;
    positive("tools.bash_timeout", config.tools.bash_timeout)
}

/// A name could be made to mean another address.
fn fetchable(address: &str) -> Checked {
    match address.parse::<std::net::SocketAddr>() {
        Ok(_) => Ok(()),
        Err(_) => refuse(
            "tools.web_fetch_allow",
            format!("expected IP:PORT such as \"127.0.0.1:8080\", got {address:?}"),
        ),
    }
}

fn log_filter(level: &str) -> Checked {
    match tracing_subscriber::EnvFilter::builder().parse(level) {
        Ok(_) => Ok(()),
        Err(error) => refuse("log.level", format!("\"{level}\" is no level and no filter: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Config), expected: &str) {
        let mut config = Config::default();
        change(&mut config);
        let error = check(&config, &BTreeMap::new()).expect_err("the value is wrong").to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn the_defaults_are_valid() {
        assert!(check(&Config::default(), &BTreeMap::new()).is_ok());
    }

    #[test]
    fn no_limit_is_zero_or_beyond_all_memory() {
        refused(|config| config.limits.mailbox = 0, "`limits.mailbox`: at least 1, got 0");
        refused(|config| config.limits.bad_frames = 0, "`limits.bad_frames`: at least 1");
        refused(|config| config.limits.feed_bytes = ByteSize(0), "`limits.feed_bytes`: at least 1B");
        refused(|config| config.limits.line_bytes = ByteSize(8 << 30), "`limits.line_bytes`: at most 1GiB");
        refused(
            |config| config.limits.write_progress = Duration::ZERO,
            "`limits.write_progress`: more than 0s",
        );
        refused(|config| config.turn.max_steps = 0, "`turn.max_steps`: at least 1");
    }

    #[test]
    fn the_outbound_queue_holds_more_than_its_reserve() {
        refused(
            |config| config.limits.outbound_bytes = ByteSize(64 << 10),
            "`limits.outbound_bytes`: more than the 64KiB kept for replies, got 64KiB",
        );
    }

    #[test]
    fn an_address_has_exactly_one_kind() {
        refused(|config| config.listen.push(Listen::default()), "exactly one of `unix`, `tcp` and `fd`");
        let both = Listen { unix: Some("/x".into()), ..Listen::tcp("127.0.0.1:0") };
        refused(move |config| config.listen.push(both), "exactly one of `unix`, `tcp` and `fd`");
        let unix = Listen { tls: Some(super::super::ListenTls::default()), ..Listen::unix("/x") };
        refused(move |config| config.listen.push(unix), "`tls` is for a `tcp` address");
        let unnamed = Listen { fd: Some(String::new()), ..Listen::default() };
        refused(move |config| config.listen.push(unnamed), "`fd` is a name");
    }

    #[test]
    fn an_address_that_the_world_could_reach_is_refused() {
        for address in ["0.0.0.0:0", "[::]:0", "192.168.0.7:7433", "[::ffff:10.0.0.1]:1", "example.org:1"] {
            let change = move |config: &mut Config| {
                config.tools.allow_unsandboxed_remote = true;
                config.listen.push(Listen::tcp(address));
            };
            refused(change, "can be reached from other machines");
        }
    }

    #[test]
    fn an_address_that_the_world_reaches_is_served_with_tls_and_the_lines_to_write_are_told() {
        let mut config = Config { listen: vec![Listen::tls("0.0.0.0:7433")], ..Config::default() };
        config.tools.allow_unsandboxed_remote = true;
        assert!(check(&config, &BTreeMap::new()).is_ok());
        let told = tls_needed("10.0.0.7:7433", Some(Path::new("/d")));
        for line in [
            "\n  dshd tls init --name 10.0.0.7\n",
            "\n  dshd token create NAME > NAME.token\n",
            "\n  [[listen]]\n  tcp = \"10.0.0.7:7433\"\n  tls = { cert = \"/d/tls/server.pem\", key = \"/d/tls/server.key\" }\n",
        ] {
            assert!(told.contains(line), "{told}");
        }
        assert!(tls_needed("0.0.0.0:1", None).contains("--name HOST"));
    }

    #[test]
    fn tcp_needs_a_word_while_tools_run_without_a_sandbox() {
        let off = |config: &mut Config| {
            config.tools.sandbox = SandboxSetting::Off;
            config.listen.push(Listen::tcp("127.0.0.1:0"));
        };
        refused(off, "allow_unsandboxed_remote = true");
        let mut config = Config { listen: vec![Listen::tcp("[::1]:0")], ..Config::default() };
        assert!(
            check(&config, &BTreeMap::new()).is_ok(),
            "there is a sandbox, or the start says that there is none"
        );
        off(&mut config);
        config.tools.allow_unsandboxed_remote = true;
        assert!(check(&config, &BTreeMap::new()).is_ok());
    }

    #[test]
    fn a_socket_path_that_no_socket_can_have_is_refused_with_a_remedy() {
        let path = format!("/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
        refused(move |config| config.listen.push(Listen::unix(path)), "choose a shorter one");
    }

    #[test]
    fn the_default_provider_must_exist() {
        refused(
            |config| config.default_provider = Some("deepseek-oficial".to_owned()),
            "did you mean \"deepseek-official\"?",
        );
    }

    #[test]
    fn the_default_provider_has_a_default_model() {
        refused(
            |config| config.default_provider = Some("openai".to_owned()),
            "set default_model, or providers.openai.default_model",
        );
        let mut config = Config { default_provider: Some("openai".to_owned()), ..Config::default() };
        config.default_model = Some("m".to_owned());
        assert!(check(&config, &BTreeMap::new()).is_ok());
    }

    #[test]
    fn what_may_be_fetched_is_allowed_by_address_and_port() {
        for wrong in ["localhost:80", "127.0.0.1", "*"] {
            refused(
                move |config| config.tools.web_fetch_allow.push(wrong.to_owned()),
                "`tools.web_fetch_allow`: expected IP:PORT",
            );
        }
    }

    #[test]
    fn metrics_are_told_on_this_machine_alone() {
        for (address, expected) in [
            ("0.0.0.0:9464", "`metrics.listen`: 0.0.0.0:9464 is not a loopback address"),
            ("example.org:9464", "is not a loopback address"),
            ("9464", "`metrics.listen`: expected unix:/path or tcp:host:port"),
            ("unix:relative.sock", "`metrics.listen`: expected an absolute path"),
        ] {
            refused(move |config| config.metrics.listen = Some(address.to_owned()), expected);
        }
        for address in ["127.0.0.1:0", "[::1]:9464", "localhost:9464", "unix:/run/dshd/metrics.sock"] {
            let mut config = Config::default();
            config.metrics.listen = Some(address.to_owned());
            assert!(check(&config, &BTreeMap::new()).is_ok(), "{address}");
        }
    }

    #[test]
    fn a_log_filter_that_is_none_is_refused() {
        refused(|config| config.log.level = "dshd=loud".to_owned(), "`log.level`");
    }

    #[test]
    fn the_origin_of_a_refused_value_is_told() {
        let config = Config { limits: Limits { mailbox: 0, ..Limits::default() }, ..Config::default() };
        let source = Source::File { path: "/etc/dshd/dshd.toml".into(), line: 7 };
        let sources = BTreeMap::from([("limits.mailbox".to_owned(), source)]);
        let error = check(&config, &sources).unwrap_err().to_string();
        assert_eq!(error, "/etc/dshd/dshd.toml:7: `limits.mailbox`: at least 1, got 0");
    }
}
