//! Frames out: one compact line each, ended by `\n`, without U+2028 and U+2029.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{ErrorKind, RequestId, RpcError};
use crate::event::escape_line_separators;

/// The reply to a request. `id` is none only where the request's own could not be read.
pub fn response<T: Serialize>(id: Option<&RequestId>, outcome: Result<&T, &RpcError>) -> Bytes {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.map_or("null", RequestId::as_json).as_bytes());
    let head = out.len();
    match outcome {
        Ok(result) => {
            out.extend_from_slice(b",\"result\":");
            if let Err(error) = serde_json::to_writer(&mut out, result) {
                out.truncate(head);
                write_error(&mut out, &unwritable(&error));
            }
        }
        Err(error) => write_error(&mut out, error),
    }
    out.extend_from_slice(b"}\n");
    Bytes::from(escape_line_separators(out))
}

/// A notification.
///
/// # Errors
/// When the parameters can't be written as JSON: our bug.
pub fn notification<T: Serialize>(method: &str, params: &T) -> Result<Bytes, RpcError> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    serde_json::to_writer(&mut out, method).map_err(|error| unwritable(&error))?;
    out.extend_from_slice(b",\"params\":");
    serde_json::to_writer(&mut out, params).map_err(|error| unwritable(&error))?;
    out.extend_from_slice(b"}\n");
    Ok(Bytes::from(escape_line_separators(out)))
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: i32,
    message: &'a str,
    data: Data<'a>,
}

struct Data<'a> {
    kind: ErrorKind,
    facts: &'a [(&'static str, Box<RawValue>)],
}

impl Serialize for Data<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(Some(self.facts.len() + 1))?;
        map.serialize_entry("kind", self.kind.as_text())?;
        for (name, value) in self.facts {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn write_error(out: &mut Vec<u8>, error: &RpcError) {
    let data = Data { kind: error.kind, facts: error.facts() };
    let body = ErrorBody { code: error.kind.code().number(), message: &error.message, data };
    out.extend_from_slice(b",\"error\":");
    // Strings and raw values always can be written, and a Vec always takes them.
    let _ = serde_json::to_writer(out, &body);
}

fn unwritable(error: &serde_json::Error) -> RpcError {
    RpcError::new(ErrorKind::Internal, format!("the result could not be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_line_without_separators() {
        let id = RequestId::from_json("\"a\u{2028}\"");
        let line = response(id.as_ref(), Ok(&"x\u{2029}\n"));
        assert_eq!(&line[..], b"{\"jsonrpc\":\"2.0\",\"id\":\"a\\u2028\",\"result\":\"x\\u2029\\n\"}\n");
    }

    #[test]
    fn an_error_carries_kind_and_facts() {
        let error = RpcError::new(ErrorKind::SessionBusy, "busy").with("sessionId", &"s").with("sinceMs", &7);
        let line = response::<()>(None, Err(&error));
        assert_eq!(
            std::str::from_utf8(&line).unwrap(),
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32005,\"message\":\"busy\",\"data\":\
             {\"kind\":\"session_busy\",\"sessionId\":\"s\",\"sinceMs\":7}}}\n"
        );
    }
}
