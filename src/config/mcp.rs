//! MCP servers in configuration: what makes one usable, and the file of them that a workspace may have.

use std::collections::BTreeMap;
use std::path::Path;

use figment::value::Value;
use serde::Deserialize as _;

use super::check::{Checked, Refusal, SIZE_MAX, at_least, at_most, positive, refuse};
use super::{ByteSize, Config, ConfigError, McpServer, Source, file, keys};

/// Longest name of a server, so that its tools' names have room.
const NAME_BYTES_MAX: usize = 32;

/// Checks one server of the configuration.
pub(super) fn server(name: &str, server: &McpServer) -> Checked {
    let table = keys::join(&["mcp", "servers", name]);
    let key = |field: &str| keys::child(&table, field);
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_plain {
        let reason =
            format!("a server's name has 1 to {NAME_BYTES_MAX} of the characters a-z, A-Z, 0-9, _ and -");
        return refuse(table, reason);
    }
    match (&server.command, &server.url) {
        (Some(command), None) if command.is_empty() => return refuse(key("command"), "is empty"),
        (Some(_), None) => only_with("url", &key("headers"), server.headers.is_empty())?,
        (None, Some(url)) => {
            address(&key("url"), url)?;
            only_with("command", &key("args"), server.args.is_empty())?;
            only_with("command", &key("env"), server.env.is_empty())?;
            only_with("command", &key("cwd"), server.cwd.is_none())?;
            only_with("command", &key("writable"), server.writable.is_empty())?;
            only_with("command", &key("network"), server.network.is_none())?;
        }
        // One that is switched off need not say what it was.
        (None, None) if !server.enabled => {}
        (None, None) | (Some(_), Some(_)) => {
            return refuse(table, "a server has exactly one of `command` and `url`");
        }
    }
    positive(&key("timeout"), server.timeout)?;
    positive(&key("start_timeout"), server.start_timeout)?;
    at_least(&key("result_bytes"), server.result_bytes, ByteSize(1))?;
    at_most(&key("result_bytes"), server.result_bytes, SIZE_MAX)
}

fn only_with(other: &str, key: &str, unset: bool) -> Checked {
    if unset { Ok(()) } else { refuse(key, format!("goes with `{other}` only")) }
}

fn address(key: &str, url: &str) -> Checked {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    if url.starts_with("${") || rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')) {
        return Ok(());
    }
    refuse(key, format!("expected http:// or https:// and a host, got \"{url}\""))
}

/// Checks one server that came from elsewhere than a configuration file. What is wrong, in a sentence.
///
/// # Errors
/// The key and what is wrong with its value.
pub fn check_mcp_server(name: &str, one: &McpServer) -> Result<(), String> {
    server(name, one).map_err(|Refusal { key, reason }| format!("`{key}`: {reason}"))
}

/// Reads a workspace's `.dshd/mcp.toml`: the tables `[mcp.servers.NAME]` of a configuration file, and nothing else.
///
/// # Errors
/// [`ConfigError`], naming key, file and line.
pub fn workspace_mcp_servers(path: &Path, text: &str) -> Result<BTreeMap<String, McpServer>, ConfigError> {
    let layer = file::parse(path, text)?;
    let mut leaves = BTreeMap::new();
    keys::collect("", &layer.values, &mut leaves);
    if let Some(key) = leaves.into_keys().find(|key| !key.starts_with("mcp.servers.")) {
        let origin = layer.origins.get(&key).cloned().unwrap_or(Source::Default);
        let reason = "a workspace's file holds tables [mcp.servers.NAME] only".to_owned();
        return Err(ConfigError::Value { key, origin, reason });
    }
    // Its types were checked by `parse`.
    let config = Config::deserialize(&Value::from(layer.values.clone())).unwrap_or_default();
    for (name, one) in &config.mcp.servers {
        server(name, one).map_err(|Refusal { key, reason }| {
            let origin = layer.origins.get(&key).cloned().unwrap_or(Source::Default);
            ConfigError::Value { key, origin, reason }
        })?;
    }
    Ok(config.mcp.servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, expected: &str) -> ConfigError {
        let error = workspace_mcp_servers(Path::new("/w/.dshd/mcp.toml"), text).expect_err("it is wrong");
        assert_eq!(error.to_string(), expected);
        error
    }

    #[test]
    fn a_workspaces_file_names_servers_as_a_configuration_file_does() {
        let text = "[mcp.servers.git]\ncommand = \"git-mcp\"\nargs = [\"-v\"]\ntimeout = \"5s\"\n";
        let servers = workspace_mcp_servers(Path::new("/w/.dshd/mcp.toml"), text).unwrap();
        assert_eq!(servers["git"].command.as_deref(), Some("git-mcp"));
        assert_eq!(servers["git"].timeout.as_secs(), 5);
    }

    #[test]
    fn an_unknown_key_is_told_with_the_nearest() {
        let error = refused(
            "[mcp.servers.git]\ncomand = \"git-mcp\"\n",
            "/w/.dshd/mcp.toml:2: unknown key `mcp.servers.git.comand`",
        );
        assert_eq!(error.help().as_deref(), Some("did you mean `mcp.servers.git.command`?"));
    }

    #[test]
    fn a_workspace_sets_servers_and_nothing_else() {
        refused(
            "[tools]\nenv = [\"SECRET\"]\n",
            "/w/.dshd/mcp.toml:2: `tools.env`: a workspace's file holds tables [mcp.servers.NAME] only",
        );
        refused(
            "mcp.trusted_workspaces = [\"/\"]\n",
            "/w/.dshd/mcp.toml:1: `mcp.trusted_workspaces`: \
             a workspace's file holds tables [mcp.servers.NAME] only",
        );
    }

    #[test]
    fn a_server_is_a_program_or_an_address() {
        refused(
            "[mcp.servers.x]\nargs = []\n",
            "/w/.dshd/mcp.toml:1: `mcp.servers.x`: a server has exactly one of `command` and `url`",
        );
        refused(
            "[mcp.servers.x]\ncommand = \"x\"\nheaders = { a = \"b\" }\n",
            "/w/.dshd/mcp.toml:3: `mcp.servers.x.headers`: goes with `url` only",
        );
        refused(
            "[mcp.servers.x]\nurl = \"x.org\"\n",
            "/w/.dshd/mcp.toml:2: `mcp.servers.x.url`: expected http:// or https:// and a host, got \"x.org\"",
        );
        refused(
            "[mcp.servers.\"a.b\"]\ncommand = \"x\"\n",
            "/w/.dshd/mcp.toml:1: `mcp.servers.\"a.b\"`: \
             a server's name has 1 to 32 of the characters a-z, A-Z, 0-9, _ and -",
        );
    }
}
