//! From what the client says to what the user reads: an exit code, a sentence, a next step.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::discover::{DaemonFile, Missing, Target};
use super::{Failure, exit};
use crate::client::tls::TlsProblem;
use crate::client::{CallError, ConnectError, RpcError};
use crate::config::Loaded;

/// No daemon runs here.
pub(super) const NO_DAEMON: &str = "no_daemon";

/// Nothing was found on this machine.
pub(super) fn missing(missing: &Missing, loaded: &Loaded) -> Failure {
    let no_daemon = |message| Failure::new(exit::UNREACHABLE, NO_DAEMON, message);
    match missing {
        Missing::NoSocket(path) => {
            no_daemon(format!("no dshd is running for this user (no socket at {})", path.display()))
                .with_help("dshd serve")
        }
        Missing::Died(path) => {
            let last = DaemonFile::read(&loaded.paths.data_dir)
                .map_or_else(String::new, |file| format!("; last pid {}", file.pid));
            let message = format!(
                "dshd died without cleaning up (socket there, nobody listens{last}): {}",
                path.display()
            );
            no_daemon(message).with_help(format!("dshd serve   (log: {})", loaded.paths.logs.display()))
        }
        Missing::NotAllowed(path) => not_allowed(path),
    }
}

/// No connection to a place that was named or found.
pub(super) fn connect(target: &Target, error: ConnectError, loaded: &Loaded) -> Failure {
    let unreachable = |message: String| Failure::new(exit::UNREACHABLE, "unreachable", message);
    let check = format!("check the address {} (came from {})", target.address, target.origin);
    match error {
        ConnectError::NoSocket { path } => {
            let message = format!("no dshd is running there (no socket at {})", path.display());
            Failure::new(exit::UNREACHABLE, NO_DAEMON, message)
                .with_help(format!("dshd serve --listen {}, or {check}", target.address))
        }
        ConnectError::NobodyListens { path } => missing(&Missing::Died(path), loaded),
        ConnectError::NotAllowed { path } => not_allowed(&path),
        ConnectError::Refused { source } => call(target, source),
        ConnectError::Tls { ref problem, .. } => {
            let ours = matches!(problem, TlsProblem::NoTrust | TlsProblem::File { .. });
            let code = if ours { exit::USAGE } else { exit::UNREACHABLE };
            Failure::new(code, "tls", error.to_string()).with_help(tls_help(problem, target))
        }
        ConnectError::PathTooLong { .. } => {
            Failure::new(exit::USAGE, "usage", error.to_string()).with_help("use a shorter path")
        }
        ConnectError::TimedOut { .. } | ConnectError::Ssh { .. } | ConnectError::Io { .. } => {
            unreachable(error.to_string()).with_help(check)
        }
    }
}

/// What to do when there is no TLS.
fn tls_help(problem: &TlsProblem, target: &Target) -> String {
    match problem {
        TlsProblem::NoTrust => "pass --ca FILE (the ca.pem that dshd tls init has made there), or --pin sha256:… as dshd \
                                tls fingerprint prints it there"
            .to_owned(),
        TlsProblem::File { .. } => "mend the file, or name another with --ca".to_owned(),
        TlsProblem::WrongName { asked, .. } => format!(
            "connect by one of those names, or where the daemon runs: dshd tls renew --name {asked}, then reload it"
        ),
        TlsProblem::Expired { .. } => {
            "where the daemon runs: dshd tls renew, then reload it (SIGHUP); and see that the clocks are right".to_owned()
        }
        TlsProblem::UnknownCa => "pass the CA of that daemon with --ca FILE; it may have a new one".to_owned(),
        TlsProblem::OtherKey { .. } => {
            "compare with dshd tls fingerprint where the daemon runs; if nobody renewed its key, somebody is in between"
                .to_owned()
        }
        TlsProblem::NotTls | TlsProblem::Ended => format!(
            "is it an address without TLS (tcp:…), or another program's? check {} (came from {})",
            target.address, target.origin
        ),
        TlsProblem::NoProtocol | TlsProblem::Other(_) => {
            format!("check the address {} (came from {})", target.address, target.origin)
        }
    }
}

/// A request that has no result.
pub(super) fn call(target: &Target, error: CallError) -> Failure {
    match error {
        CallError::Rpc(error) => rpc(target, &error),
        CallError::Closed(detail) => Failure::new(
            exit::UNREACHABLE,
            "connection_lost",
            format!("the connection to {} ended: {detail}", target.address),
        )
        .with_help("dshd status"),
        CallError::NotDshd { got } => Failure::new(
            exit::UNREACHABLE,
            "not_dshd",
            format!("something answers at {} but it is not dshd (got {got:?})", target.address),
        )
        .with_help(format!("check --connect (came from {})", target.origin)),
        CallError::TimedOut(waited) => Failure::new(
            exit::UNREACHABLE,
            "unresponsive",
            format!("dshd at {} takes connections but gave no answer in {waited:?}", target.address),
        )
        .with_help("it may be stopped or overloaded: see its log, or try again"),
        CallError::Params(_) | CallError::Result { .. } => Failure::bug(error.to_string()),
    }
}

/// A refusal by the daemon.
pub(super) fn rpc(target: &Target, error: &RpcError) -> Failure {
    let code = match error.kind.as_str() {
        "session_not_found" => exit::NO_SESSION,
        "session_busy" => exit::BUSY,
        "unauthenticated" | "permission_denied" => exit::NOT_ALLOWED,
        "storage_failed" | "session_corrupt" => exit::STORAGE,
        "internal" => exit::BUG,
        "not_initialized" | "unknown_method" => exit::PROTOCOL,
        _ => exit::REFUSED,
    };
    let kind = if error.kind.is_empty() { "refused".to_owned() } else { error.kind.clone() };
    let mut failure = Failure::new(code, kind, sentence(&error.message));
    failure.help = error.help().or_else(|| help(target, error));
    failure
}

fn help(target: &Target, error: &RpcError) -> Option<String> {
    match error.kind.as_str() {
        "unauthenticated" if target.address.needs_token() => Some(
            "pass --token-file FILE or set DSHD_TOKEN; where the daemon runs, dshd token create NAME makes a token"
                .to_owned(),
        ),
        "session_not_found" => Some("dshd sessions".to_owned()),
        "session_busy" => Some("wait for it with --when-busy queue, tell it to the running turn with --when-busy steer, or dshd cancel its session".to_owned()),
        "shutting_down" => Some("the daemon is stopping; try again in a moment".to_owned()),
        _ => None,
    }
}

/// Errors are said in lower case and without a full stop.
pub(super) fn sentence(message: &str) -> String {
    let message = message.trim_end_matches('.');
    let mut chars = message.chars();
    match (chars.next(), chars.next()) {
        // A word in capitals is a name.
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(message.chars().skip(1)).collect()
        }
        (_, _) => message.to_owned(),
    }
}

/// The file system refuses a socket: whose it is, and how to become one of those who may.
fn not_allowed(path: &Path) -> Failure {
    let refused = |detail: &str| {
        let message = format!("not allowed to use {} ({detail})", path.display());
        Failure::new(exit::NOT_ALLOWED, "not_allowed", message)
    };
    let Ok(meta) = fs::metadata(path) else {
        return refused("its directory is closed to this user")
            .with_help("ask its owner, or run your own: dshd serve");
    };
    let owner = name("/etc/passwd", meta.uid());
    let group = name("/etc/group", meta.gid());
    let failure = refused(&format!("owned by {owner}:{group}, mode {:04o}", meta.mode() & 0o7777));
    if meta.mode() & 0o020 != 0 && meta.gid() != 0 {
        failure.with_help(format!("sudo usermod -aG {group} $USER, then log in again"))
    } else {
        failure.with_help(format!("only {owner} may use it; run your own: dshd serve"))
    }
}

/// The name of a user or group, else its number.
fn name(table: &str, id: u32) -> String {
    let table = fs::read_to_string(table).unwrap_or_default();
    let number = id.to_string();
    let found = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    found.unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::super::discover::Origin;
    use super::*;

    fn target(address: &str) -> Target {
        Target { address: address.parse().unwrap(), origin: Origin::Variable }
    }

    fn refused(kind: &str, message: &str) -> Failure {
        let error = RpcError { code: -1, kind: kind.to_owned(), message: message.to_owned(), data: None };
        rpc(&target("tcp:db:7420"), &error)
    }

    #[test]
    fn each_refusal_has_the_exit_code_of_the_table() {
        for (kind, code) in [
            ("session_not_found", 4),
            ("session_busy", 5),
            ("unauthenticated", 77),
            ("permission_denied", 77),
            ("storage_failed", 74),
            ("internal", 70),
            ("overloaded", 1),
        ] {
            assert_eq!(refused(kind, "x").code, code, "{kind}");
        }
    }

    #[test]
    fn a_sentence_begins_in_lower_case_and_has_no_full_stop() {
        assert_eq!(refused("x", "The daemon is stopping.").message, "the daemon is stopping");
        assert_eq!(refused("x", "TLS is missing").message, "TLS is missing");
    }

    #[test]
    fn who_answers_but_is_not_dshd_is_quoted_with_where_the_address_came_from() {
        let failure = call(&target("tcp:db:7420"), CallError::NotDshd { got: "HTTP/1.1 400".to_owned() });
        assert_eq!(
            failure.message,
            "something answers at tcp:db:7420 but it is not dshd (got \"HTTP/1.1 400\")"
        );
        assert_eq!(failure.help.as_deref(), Some("check --connect (came from DSHD_CONNECT)"));
    }

    #[test]
    fn the_owner_of_a_closed_socket_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        fs::write(&path, "").unwrap();
        let failure = not_allowed(&path);
        assert_eq!(failure.code, exit::NOT_ALLOWED);
        assert!(failure.message.contains("(owned by "), "{}", failure.message);
        assert!(failure.message.contains(", mode 06"), "{}", failure.message);
    }

    #[test]
    fn users_and_groups_have_names_or_numbers() {
        assert_eq!(name("/etc/passwd", 0), "root");
        assert_eq!(name("/nonexistent", 7), "7");
    }
}
