//! Addresses as they are written on the command line: `unix:/path`, `tcp:host:port`, `tls:host:port`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Listen, ListenTls, Metrics};

impl Metrics {
    /// Where it listens, if it does.
    ///
    /// # Errors
    /// A sentence that says what is expected.
    pub fn address(&self) -> Result<Option<Listen>, String> {
        let Some(text) = self.listen.as_deref() else { return Ok(None) };
        let wrong = || format!("expected unix:/path or tcp:host:port, got \"{text}\"");
        if text.starts_with("tls:") {
            return Err(wrong());
        }
        let address = text
            .parse()
            .map_err(|reason: String| if reason.contains("tls:host:port") { wrong() } else { reason })?;
        Ok(Some(address))
    }
}

impl Listen {
    /// A Unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self { unix: Some(path.into()), ..Self::default() }
    }

    /// A TCP address, `HOST:PORT`.
    pub fn tcp(address: impl Into<String>) -> Self {
        Self { tcp: Some(address.into()), ..Self::default() }
    }

    /// A TCP address where TLS is spoken, with the certificate that `dshd tls init` has made.
    pub fn tls(address: impl Into<String>) -> Self {
        Self { tls: Some(ListenTls::default()), ..Self::tcp(address) }
    }

    /// Host and port of `HOST:PORT`, `[V6]:PORT` without its brackets.
    ///
    /// # Errors
    /// A sentence that says what is expected.
    pub fn split_tcp(address: &str) -> Result<(&str, u16), String> {
        let expected = || format!("expected HOST:PORT, as 127.0.0.1:7433 or [::1]:0, got \"{address}\"");
        let (host, port) = address.rsplit_once(':').ok_or_else(expected)?;
        let port = port.parse().map_err(|_| expected())?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(expected)?,
            None if host.contains(':') => return Err(expected()),
            None => host,
        };
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c == '/') {
            return Err(expected());
        }
        Ok((host, port))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text)) {
            if path.is_empty() {
                return Err("expected unix:/path, got no path".to_owned());
            }
            return Ok(Self::unix(path));
        }
        let expected = |_| format!("expected unix:/path, tcp:host:port or tls:host:port, got \"{text}\"");
        if let Some(address) = text.strip_prefix("tls:") {
            Self::split_tcp(address).map_err(expected)?;
            return Ok(Self::tls(address));
        }
        let address = text.strip_prefix("tcp:").unwrap_or(text);
        Self::split_tcp(address).map_err(expected)?;
        Ok(Self::tcp(address))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.unix, &self.tcp, &self.fd) {
            (Some(path), _, _) => write!(f, "unix:{}", path.display()),
            (None, Some(address), _) if self.tls.is_some() => write!(f, "tls:{address}"),
            (None, Some(address), _) => write!(f, "tcp:{address}"),
            (None, None, Some(name)) => write!(f, "fd:{name}"),
            (None, None, None) => f.write_str("nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let parsed = text.parse::<Listen>();
        match (parsed, expected) {
            (Ok(listen), Ok(expected)) => assert_eq!(listen.to_string(), expected),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (parsed, expected) => panic!("{text}: got {parsed:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn an_address_is_a_path_or_host_and_port() {
        check("unix:/run/dshd.sock", Ok("unix:/run/dshd.sock"));
        check("/run/dshd.sock", Ok("unix:/run/dshd.sock"));
        check("tcp:127.0.0.1:0", Ok("tcp:127.0.0.1:0"));
        check("tls:0.0.0.0:7433", Ok("tls:0.0.0.0:7433"));
        check("[::1]:7433", Ok("tcp:[::1]:7433"));
        check("localhost:7433", Ok("tcp:localhost:7433"));
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_forms() {
        for text in
            ["", "unix:", "tcp:", "tcp:host", "tcp:host:70000", "tcp:::1:80", "tls:x", "http://a:80", ":80"]
        {
            check(text, Err("expected unix:/path"));
        }
    }
}
