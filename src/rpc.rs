//! The JSON-RPC 2.0 envelope: ids, errors, encoding, the in-flight table; knows no method.
//!
//! In come requests, notifications and responses (the last two are never acted on); out go responses and
//! notifications. docs/protocol.md, sections 1 to 3; <https://www.jsonrpc.org/specification>.

mod encode;
mod envelope;
mod error;
mod flight;
mod id;
mod params;
mod scan;

pub use self::encode::{notification, response};
pub use self::envelope::{Inbound, Request, parse};
pub use self::error::{ErrorCode, ErrorKind, RpcError};
pub use self::flight::{Admission, InFlight, Slot};
pub use self::id::RequestId;
pub use self::params::parse_params;
