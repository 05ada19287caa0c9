//! Where a daemon is, as people write it: `unix:/path`, `tcp:host:port`, `tls:host:port`, `ssh:[user@]host`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A daemon's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// `host:port`, resolved at connect.
    Tcp(String),
    /// `host:port` where TLS is spoken.
    Tls(String),
    /// `[user@]host`: runs `ssh host dshd connect` there, so that no port is opened.
    Ssh(String),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No known scheme.
    #[error("{0:?} is no address: write unix:/path, tcp:host:port, tls:host:port or ssh:[user@]host")]
    Scheme(String),
    /// The path of a Unix socket is relative or empty.
    #[error("{0:?}: the path of a Unix socket is absolute, as in unix:/run/dshd/dshd.sock")]
    Path(String),
    /// No host or no port.
    #[error("{0:?} needs a host and a port, as in tcp:127.0.0.1:7433")]
    HostPort(String),
    /// No host, or one that ssh would take for an option.
    #[error("{0:?} needs a host, as in ssh:me@example.org")]
    Host(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let owned = || text.to_owned();
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(PathBuf::from(path))),
            Some(("unix", _)) => Err(AddressError::Path(owned())),
            Some(("tcp", rest)) if is_host_port(rest) => Ok(Self::Tcp(rest.to_owned())),
            Some(("tls", rest)) if is_host_port(rest) => Ok(Self::Tls(rest.to_owned())),
            Some(("tcp" | "tls", _)) => Err(AddressError::HostPort(owned())),
            Some(("ssh", host)) if is_ssh_host(host) => Ok(Self::Ssh(host.to_owned())),
            Some(("ssh", _)) => Err(AddressError::Host(owned())),
            Some(_) | None if text.starts_with('/') => Ok(Self::Unix(PathBuf::from(text))),
            Some(_) | None => Err(AddressError::Scheme(owned())),
        }
    }
}

fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0))
}

impl Address {
    /// Whether a token has to be shown there.
    pub fn needs_token(&self) -> bool {
        matches!(self, Self::Tcp(_) | Self::Tls(_))
    }
}

/// ssh takes a destination that begins with `-` for an option.
fn is_ssh_host(host: &str) -> bool {
    !host.is_empty()
        && !host.starts_with('-')
        && !host.contains(|c: char| c.is_whitespace() || c.is_control())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_port) => write!(f, "tcp:{host_port}"),
            Self::Tls(host_port) => write!(f, "tls:{host_port}"),
            Self::Ssh(host) => write!(f, "ssh:{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_was_written() {
        for text in [
            "unix:/run/dshd/dshd.sock",
            "tcp:127.0.0.1:7433",
            "tcp:[::1]:7433",
            "tls:db:7433",
            "ssh:me@db.example",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bare_absolute_path_is_a_unix_socket() {
        assert_eq!("/tmp/x.sock".parse(), Ok(Address::Unix("/tmp/x.sock".into())));
    }

    #[test]
    fn what_is_no_address_says_what_is_missing() {
        let error = |text: &str| text.parse::<Address>().unwrap_err();
        assert!(matches!(error("db:7433"), AddressError::Scheme(_)));
        assert!(matches!(error("unix:run/x"), AddressError::Path(_)));
        assert!(matches!(error("tcp:7433"), AddressError::HostPort(_)));
        assert!(matches!(error("tcp:db:0"), AddressError::HostPort(_)));
        assert!(matches!(error("ssh:"), AddressError::Host(_)));
        assert!(matches!(error("tls:db"), AddressError::HostPort(_)));
    }

    #[test]
    fn ssh_gets_no_option_for_a_host() {
        assert!(matches!("ssh:-oProxyCommand=x".parse::<Address>(), Err(AddressError::Host(_))));
    }
}
