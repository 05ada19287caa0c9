//! How a connection is made, again and again.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::super::tls::TlsProblem;
use super::super::{Address, CallError, Client, ConnectError, ConnectOptions, Notifications};
use crate::protocol::{InitializeParams, InitializeResult, Method, VERSION};

type Dialled = Result<(Client, Notifications), DialError>;

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// There may be one later.
    #[error("{0}")]
    Later(String),
    /// Trying again can't help: another protocol, no such address, not allowed.
    #[error("{0}")]
    Never(String),
}

/// Makes connections that have said hello. Cheap to clone.
#[derive(Clone)]
pub struct Dial(Arc<dyn Fn() -> BoxFuture<'static, Dialled> + Send + Sync>);

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dial")
    }
}

impl Dial {
    /// To an address, saying `hello` there.
    pub fn address(address: Address, options: ConnectOptions, hello: InitializeParams) -> Self {
        let parts = Arc::new((address, options, hello));
        Self::by(move || {
            let parts = Arc::clone(&parts);
            Box::pin(async move {
                let (address, options, hello) = &*parts;
                let (client, notifications) =
                    Client::connect(address, options).await.map_err(|error| refused(&error))?;
                let said = client.call_within(options.timeout, Method::Initialize, hello).await;
                let said: InitializeResult = said.map_err(|error| greeting(&error))?;
                if said.protocol_version != VERSION {
                    let there = said.protocol_version;
                    return Err(DialError::Never(format!(
                        "dshd there speaks protocol {there}, not {VERSION}"
                    )));
                }
                Ok((client, notifications))
            })
        })
    }

    /// By a function of one's own, which also says hello.
    pub fn by(dial: impl Fn() -> BoxFuture<'static, Dialled> + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }

    pub(super) async fn dial(&self) -> Dialled {
        (self.0)().await
    }
}

fn refused(error: &ConnectError) -> DialError {
    match error {
        ConnectError::NoSocket { .. }
        | ConnectError::NobodyListens { .. }
        | ConnectError::TimedOut { .. }
        | ConnectError::Io { .. }
        | ConnectError::Tls { problem: TlsProblem::Ended, .. } => DialError::Later(error.to_string()),
        ConnectError::Tls { .. } => DialError::Never(error.to_string()),
        ConnectError::Refused { source } => greeting(source),
        ConnectError::NotAllowed { .. } | ConnectError::PathTooLong { .. } | ConnectError::Ssh { .. } => {
            DialError::Never(error.to_string())
        }
    }
}

/// What a refused hello means.
fn greeting(error: &CallError) -> DialError {
    match error {
        CallError::Closed(_) | CallError::TimedOut(_) => DialError::Later(error.to_string()),
        CallError::Rpc(refused)
            if matches!(refused.kind.as_str(), "shutting_down" | "overloaded" | "limit_exceeded") =>
        {
            DialError::Later(error.to_string())
        }
        CallError::Rpc(_) | CallError::NotDshd { .. } | CallError::Params(_) | CallError::Result { .. } => {
            DialError::Never(error.to_string())
        }
    }
}
