//! What can go wrong between a client and a daemon, told apart so that each case has its own remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::tls::TlsProblem;
use crate::protocol::Method;

/// An error that the daemon answered with.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The JSON-RPC code.
    pub code: i64,
    /// The stable name that programs match on: `session_busy`, `invalid_params`, …; empty when none was sent.
    pub kind: String,
    /// One English sentence for a person.
    pub message: String,
    /// All of `data`, for the fields that belong to the kind.
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    /// Reads the fields of `data` that a caller knows.
    pub fn data<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.data.as_ref()?.get()).ok()
    }

    /// The next step that the daemon proposes.
    pub fn help(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Help {
            help: Option<String>,
        }
        self.data::<Help>()?.help
    }
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no socket at the path.
    #[error("there is no socket at {}", path.display())]
    NoSocket {
        /// Where it would be.
        path: PathBuf,
    },
    /// A socket is there, and nobody listens on it: its daemon died.
    #[error("nobody listens on {}", path.display())]
    NobodyListens {
        /// The socket.
        path: PathBuf,
    },
    /// The file system does not let us use the socket.
    #[error("not allowed to use {}", path.display())]
    NotAllowed {
        /// The socket.
        path: PathBuf,
    },
    /// The path does not fit into a socket address.
    #[error("the path {} has {bytes} bytes; a Unix socket's path has at most {max}", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        bytes: usize,
        /// The longest that the system takes, in bytes.
        max: usize,
    },
    /// No answer to the connect in time.
    #[error("no connection to {address} within {} ms", waited.as_millis())]
    TimedOut {
        /// Where to.
        address: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The daemon did not accept the token, or is none.
    #[error("{source}")]
    Refused {
        /// What it said.
        source: CallError,
    },
    /// There is no TLS with what answers, or it is not trusted.
    #[error("cannot connect to {address}: {problem}")]
    Tls {
        /// Where to.
        address: String,
        /// Why.
        problem: TlsProblem,
    },
    /// `ssh` could not be started.
    #[error("cannot run ssh: {source}")]
    Ssh {
        /// Why.
        source: io::Error,
    },
    /// Anything else that the system says.
    #[error("cannot connect to {address}: {source}")]
    Io {
        /// Where to.
        address: String,
        /// Why.
        source: io::Error,
    },
}

/// Why a request has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon refused it.
    #[error("{0}")]
    Rpc(RpcError),
    /// The connection ended first.
    #[error("the connection ended: {0}")]
    Closed(String),
    /// The peer does not speak this protocol.
    #[error("the peer is not dshd (got {got:?})")]
    NotDshd {
        /// The beginning of what it said.
        got: String,
    },
    /// No reply in the time that the caller gave.
    #[error("no reply within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The parameters can't be written as JSON; the caller's bug.
    #[error("the parameters cannot be written as JSON: {0}")]
    Params(String),
    /// The reply is not what the protocol says.
    #[error("the reply to {} cannot be read: {detail}", method.name())]
    Result {
        /// The method called.
        method: Method,
        /// What does not fit.
        detail: String,
    },
}

impl CallError {
    /// The error that the daemon answered with, if it did.
    pub fn rpc(&self) -> Option<&RpcError> {
        match self {
            Self::Rpc(error) => Some(error),
            Self::Closed(_)
            | Self::NotDshd { .. }
            | Self::TimedOut(_)
            | Self::Params(_)
            | Self::Result { .. } => None,
        }
    }
}
