//! The units that are shipped, and where they go.

use std::path::{Path, PathBuf};

use super::super::{Failure, Globals, exit};
use crate::config::Listen;

/// What the shipped units call the program.
const SHIPPED_PROGRAM: &str = "/usr/bin/dshd";

/// The machine's user of the service.
pub(super) const SYSUSERS: &str = "/etc/sysusers.d/dshd.conf";

/// What the shipped sockets listen on.
const SHIPPED_TCP: &str = "ListenStream=127.0.0.1:7433";
const SHIPPED_SOCKET: &str = "ListenStream=/run/dshd/dshd.sock";
const SHIPPED_USER_SOCKET: &str = "ListenStream=%t/dshd/dshd.sock";

/// A file to write.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Whose service manager it is, and where that looks for units.
#[derive(Debug)]
pub(super) struct Manager {
    is_users: bool,
    directory: PathBuf,
}

impl Manager {
    /// The machine's, or the user's.
    ///
    /// # Errors
    /// When the user has no home.
    pub(super) fn of(user: bool, globals: &Globals) -> Result<Self, Failure> {
        if !user {
            return Ok(Self { is_users: false, directory: "/etc/systemd/system".into() });
        }
        let environment = &globals.environment;
        let base = environment
            .absolute("XDG_CONFIG_HOME")
            .or_else(|| environment.absolute("HOME").map(|home| home.join(".config")))
            .ok_or_else(|| {
                Failure::new(
                    exit::CONFIG,
                    "config",
                    "no place for units: neither HOME nor XDG_CONFIG_HOME is set",
                )
            })?;
        Ok(Self { is_users: true, directory: base.join("systemd/user") })
    }

    /// A command for it.
    pub(super) fn systemctl<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let user = self.is_users.then_some("--user");
        ["systemctl"].into_iter().chain(user).chain(words).map(str::to_owned).collect()
    }

    /// All that an installation may have written.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let units = ["dshd.socket", "dshd-tcp.socket", "dshd.service"];
        let mut files: Vec<PathBuf> = units.map(|name| self.directory.join(name)).into();
        if !self.is_users {
            files.push(SYSUSERS.into());
        }
        files
    }

    fn unit(&self, name: &str, text: String) -> Unit {
        Unit { path: self.directory.join(name), text }
    }
}

/// The units for a program, and the names of those that start it.
///
/// # Errors
/// An address that is named twice.
pub(super) fn installed(
    manager: &Manager,
    program: &Path,
    listen: &[Listen],
) -> Result<(Vec<Unit>, Vec<String>), Failure> {
    let (service, socket, shipped) = if manager.is_users {
        (
            include_str!("../../../systemd/user/dshd.service"),
            include_str!("../../../systemd/user/dshd.socket"),
            SHIPPED_USER_SOCKET,
        )
    } else {
        (
            include_str!("../../../systemd/dshd.service"),
            include_str!("../../../systemd/dshd.socket"),
            SHIPPED_SOCKET,
        )
    };
    listen.iter().try_for_each(check)?;
    let unix = only(listen.iter().filter_map(|one| one.unix.as_ref()), "unix:")?;
    let tcp = only(listen.iter().filter_map(|one| one.tcp.as_ref()), "tcp:")?;
    let socket = match unix {
        Some(path) => socket.replace(shipped, &format!("ListenStream={}", path.display())),
        None => socket.to_owned(),
    };
    let service = service.replace(SHIPPED_PROGRAM, &program.display().to_string());
    let mut units = vec![manager.unit("dshd.socket", socket)];
    let mut start = vec!["dshd.socket".to_owned()];
    let service = match tcp {
        Some(address) => {
            let text = include_str!("../../../systemd/dshd-tcp.socket");
            units.push(
                manager
                    .unit("dshd-tcp.socket", text.replace(SHIPPED_TCP, &format!("ListenStream={address}"))),
            );
            start.push("dshd-tcp.socket".to_owned());
            // A service gets the sockets that it names.
            service.replace("Sockets=dshd.socket", "Sockets=dshd.socket dshd-tcp.socket")
        }
        None => service,
    };
    units.push(manager.unit("dshd.service", service));
    if !manager.is_users {
        let text = include_str!("../../../packaging/sysusers.d/dshd.conf").to_owned();
        units.push(Unit { path: SYSUSERS.into(), text });
    }
    Ok((units, start))
}

/// Whether a socket unit can say it: an absolute path without what systemd expands, or an IP address and a port.
fn check(listen: &Listen) -> Result<(), Failure> {
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@:[]".contains(c));
    let shown = listen.to_string();
    let fits = match (&listen.unix, &listen.tcp) {
        (Some(path), _) => path.is_absolute() && path.to_str().is_some_and(is_plain),
        (None, Some(address)) => address.parse::<std::net::SocketAddr>().is_ok(),
        (None, None) => false,
    };
    if fits {
        return Ok(());
    }
    Err(Failure::usage(format!("a socket unit can't listen on {shown:?}"))
        .with_help("--listen unix:/absolute/path, or --listen tcp:127.0.0.1:7433 (an IP address, no name)"))
}

fn only<T>(mut all: impl Iterator<Item = T>, kind: &str) -> Result<Option<T>, Failure> {
    let first = all.next();
    if all.next().is_some() {
        return Err(Failure::usage(format!("--listen takes one {kind} address"))
            .with_help("add more to the socket unit: systemctl edit dshd.socket"));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(is_users: bool) -> Manager {
        Manager { is_users, directory: "/units".into() }
    }

    fn text<'a>(units: &'a [Unit], name: &str) -> &'a str {
        &units.iter().find(|unit| unit.path.ends_with(name)).expect("it is written").text
    }

    #[test]
    fn the_units_start_this_program_where_they_are_told() {
        for is_users in [false, true] {
            let listen = [Listen::unix("/run/x.sock"), Listen::tcp("127.0.0.1:9")];
            let (units, start) = installed(&manager(is_users), Path::new("/opt/dshd"), &listen).unwrap();
            assert_eq!(start, ["dshd.socket", "dshd-tcp.socket"]);
            let service = text(&units, "dshd.service");
            assert!(service.contains("\nExecStart=/opt/dshd serve\n") && !service.contains(SHIPPED_PROGRAM));
            assert!(service.contains("\nSockets=dshd.socket dshd-tcp.socket\n"), "{service}");
            assert!(text(&units, "dshd.socket").contains("\nListenStream=/run/x.sock\n"));
            assert!(text(&units, "dshd-tcp.socket").contains("\nListenStream=127.0.0.1:9\n"));
            assert_eq!(units.iter().any(|unit| unit.path.ends_with("dshd.conf")), !is_users);
        }
    }

    #[test]
    fn an_address_that_a_unit_can_not_say_is_refused() {
        for listen in [
            Listen::unix("relative.sock"),
            Listen::unix("/run/%h.sock"),
            Listen::unix("/run/x\nExecStart=/bin/sh"),
            Listen::tcp("localhost:7433"),
            Listen::tcp("127.0.0.1:7433\nExecStart=/bin/sh"),
        ] {
            let error = installed(&manager(false), Path::new("/d"), &[listen]).unwrap_err();
            assert!(error.message.starts_with("a socket unit can't listen on"), "{}", error.message);
        }
    }

    #[test]
    fn without_an_address_they_listen_where_clients_look() {
        let (units, start) = installed(&manager(true), Path::new("/opt/dshd"), &[]).unwrap();
        assert_eq!(start, ["dshd.socket"]);
        assert!(text(&units, "dshd.socket").contains("\nListenStream=%t/dshd/dshd.sock\n"));
        assert!(
            installed(&manager(true), Path::new("/d"), &[Listen::unix("/a"), Listen::unix("/b")]).is_err()
        );
    }
}
