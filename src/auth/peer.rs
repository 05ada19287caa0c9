//! Who is at the other end of a connection, as the kernel tells it, and which local users may use the daemon.
//!
//! The listeners make a [`PeerInfo`] for every connection; everything above reads it.

use std::fmt;
use std::net::SocketAddr;

use crate::event::PermissionMode;

/// How a peer came in and what the kernel knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A Unix socket; the credentials are those of the process that connected.
    Unix {
        /// Its user.
        uid: u32,
        /// Its process, where the kernel tells.
        pid: Option<i32>,
    },
    /// TCP.
    Tcp {
        /// Its address.
        address: SocketAddr,
    },
    /// Our own standard input and output.
    Stdio,
}

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// How it came in.
    pub kind: PeerKind,
    /// How logs and `server/status` name it.
    pub label: String,
    /// The highest permission mode that its way in allows.
    pub mode_max: PermissionMode,
}

impl PeerInfo {
    /// A peer of this kind.
    pub fn new(kind: PeerKind) -> Self {
        let mode_max = match kind {
            PeerKind::Unix { .. } | PeerKind::Stdio => PermissionMode::FullAccess,
            PeerKind::Tcp { .. } => PermissionMode::WorkspaceWrite,
        };
        Self { kind, label: kind.to_string(), mode_max }
    }

    /// The same, as the address where it came in is configured (`[[listen]] mode_max`).
    #[must_use]
    pub fn up_to(mut self, mode_max: Option<PermissionMode>) -> Self {
        self.mode_max = mode_max.unwrap_or(self.mode_max);
        self
    }

    /// The same, which came in by TLS.
    #[must_use]
    pub fn by_tls(mut self) -> Self {
        if let PeerKind::Tcp { address } = self.kind {
            self.label = format!("tls:{address}");
        }
        self
    }

    /// Whether it must authenticate before anything else.
    pub fn must_authenticate(&self) -> bool {
        match self.kind {
            PeerKind::Tcp { .. } => true,
            PeerKind::Unix { .. } | PeerKind::Stdio => false,
        }
    }
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, pid: Some(pid) } => write!(f, "unix:uid={uid},pid={pid}"),
            Self::Unix { uid, pid: None } => write!(f, "unix:uid={uid}"),
            Self::Tcp { address } => write!(f, "tcp:{address}"),
            Self::Stdio => f.write_str("stdio"),
        }
    }
}

/// The user that this process runs as.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a local user may use the daemon of `owner`: the owner itself, root, or one of `auth.allowed_uids`.
pub fn may_connect(uid: u32, owner: u32, allowed_uids: &[u32]) -> bool {
    uid == owner || uid == 0 || allowed_uids.contains(&uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_root_and_listed_users_may_connect_and_nobody_else() {
        for (uid, expected) in [(1000, true), (0, true), (1007, true), (1001, false), (65534, false)] {
            assert_eq!(may_connect(uid, 1000, &[1007]), expected, "uid {uid}");
        }
    }

    #[test]
    fn root_as_owner_admits_no_other_user() {
        assert!(!may_connect(1000, 0, &[]));
    }

    #[test]
    fn a_label_names_the_way_in() {
        let label = |kind| PeerInfo::new(kind).label;
        assert_eq!(label(PeerKind::Unix { uid: 7, pid: Some(12) }), "unix:uid=7,pid=12");
        assert_eq!(label(PeerKind::Unix { uid: 7, pid: None }), "unix:uid=7");
        assert_eq!(label(PeerKind::Tcp { address: ([127, 0, 0, 1], 80).into() }), "tcp:127.0.0.1:80");
        assert_eq!(label(PeerKind::Stdio), "stdio");
    }
}
