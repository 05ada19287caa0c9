//! Frames from and to a daemon: one line each, split off a byte stream and told apart. No tasks, no state.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use super::error::{CallError, RpcError};

/// The longest frame taken from a daemon, in bytes: the longest message of a model with room for its escapes.
pub(super) const LINE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// A line buffer larger than this is given back after its line, in bytes.
const LINE_BYTES_KEPT: usize = 1024 * 1024;

/// Something that a daemon tells without having been asked.
#[derive(Clone, Debug)]
pub struct Notification {
    /// `session.event`, `session.status`, `server.draining`, …
    pub method: Cow<'static, str>,
    /// The parameters as they came, byte for byte.
    pub params: Box<RawValue>,
}

/// A frame, told apart.
#[derive(Debug)]
pub(super) enum Frame {
    /// The answer to a request of ours.
    Reply(u64, Result<Box<RawValue>, RpcError>),
    /// A notification.
    Notification(Notification),
    /// An error that belongs to no request: why the daemon is about to close.
    Refusal(RpcError),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct ErrorBody {
    code: i64,
    message: String,
    data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

impl From<ErrorBody> for RpcError {
    fn from(body: ErrorBody) -> Self {
        let kind = body.data.as_ref().and_then(|data| serde_json::from_str::<Kind>(data.get()).ok());
        Self {
            code: body.code,
            kind: kind.map_or_else(String::new, |kind| kind.kind),
            message: body.message,
            data: body.data,
        }
    }
}

impl Frame {
    /// Reads a line. `None`: it is no frame of this protocol.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let envelope: Envelope<'_> = serde_json::from_slice(line).ok()?;
        if let Some(method) = envelope.method {
            let params = envelope.params.unwrap_or(RawValue::NULL).to_owned();
            return Some(Self::Notification(Notification { method: intern(method), params }));
        }
        let id = envelope.id.and_then(|id| id.get().parse().ok());
        match (id, envelope.result, envelope.error) {
            (Some(id), _, Some(error)) => Some(Self::Reply(id, Err(error.into()))),
            (Some(id), Some(result), None) => Some(Self::Reply(id, Ok(result.to_owned()))),
            (None, None, Some(error)) => Some(Self::Refusal(error.into())),
            (Some(_), None, None) | (None, _, _) => None,
        }
    }
}

/// The names that come often cost no allocation.
fn intern(method: Cow<'_, str>) -> Cow<'static, str> {
    const KNOWN: [&str; 6] = [
        "session.event",
        "session.status",
        "session.closed",
        "server.draining",
        "subagent.started",
        "subagent.finished",
    ];
    match KNOWN.iter().find(|known| **known == method) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(method.into_owned()),
    }
}

/// Writes a request as a line.
pub(super) fn request<P: Serialize + ?Sized>(
    id: u64,
    method: &str,
    params: &P,
) -> Result<Vec<u8>, CallError> {
    #[derive(Serialize)]
    struct Request<'a, P: ?Sized> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a P,
    }
    let mut line = serde_json::to_vec(&Request { jsonrpc: "2.0", id, method, params })
        .map_err(|error| CallError::Params(error.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

/// Reads the next line into `line`, without its end. `false`: the stream has ended and nothing was left.
/// Not cancel safe: what was read stays in `line`.
///
/// # Errors
/// What the stream says, and [`io::ErrorKind::InvalidData`] for a line over [`LINE_BYTES_MAX`].
pub(super) async fn read_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    line: &mut Vec<u8>,
) -> io::Result<bool> {
    line.clear();
    line.shrink_to(LINE_BYTES_KEPT);
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(!line.is_empty());
        }
        let (part, used, ended) = match memchr::memchr(b'\n', chunk) {
            Some(end) => (&chunk[..end], end + 1, true),
            None => (chunk, chunk.len(), false),
        };
        if line.len() + part.len() > LINE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is longer than 128 MiB"));
        }
        line.extend_from_slice(part);
        reader.consume(used);
        if ended {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_known_by_its_id() {
        let Some(Frame::Reply(7, Ok(result))) = Frame::parse(br#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#)
        else {
            panic!("no reply");
        };
        assert_eq!(result.get(), r#"{"a":1}"#);
    }

    #[test]
    fn an_error_keeps_its_code_its_kind_and_all_of_its_data() {
        let line = br#"{"id":7,"error":{"code":-32005,"message":"busy","data":{"kind":"session_busy","sessionId":"s"}}}"#;
        let Some(Frame::Reply(7, Err(error))) = Frame::parse(line) else { panic!("no reply") };
        assert_eq!(
            (error.code, error.kind.as_str(), error.message.as_str()),
            (-32005, "session_busy", "busy")
        );
        assert_eq!(error.data.unwrap().get(), r#"{"kind":"session_busy","sessionId":"s"}"#);
    }

    #[test]
    fn a_notification_keeps_the_bytes_of_its_params() {
        let line = br#"{"method":"session.event","params":{"n": 1.50}}"#;
        let Some(Frame::Notification(note)) = Frame::parse(line) else { panic!("no notification") };
        assert!(matches!(note.method, Cow::Borrowed("session.event")));
        assert_eq!(note.params.get(), r#"{"n": 1.50}"#);
    }

    #[test]
    fn an_error_without_id_is_why_the_daemon_closes() {
        let line = br#"{"id":null,"error":{"code":-32003,"message":"no","data":{"kind":"unauthenticated","help":"ask"}}}"#;
        let Some(Frame::Refusal(error)) = Frame::parse(line) else { panic!("no refusal") };
        assert_eq!(error.help().as_deref(), Some("ask"));
    }

    #[test]
    fn what_is_no_frame_is_none() {
        for line in ["HTTP/1.1 400 Bad Request", "[]", "{}", "7", r#"{"id":"x","result":{}}"#, r#"{"id":1}"#]
        {
            assert!(Frame::parse(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[tokio::test]
    async fn lines_are_split_and_a_last_one_needs_no_end() {
        let mut reader: &[u8] = b"one\n\ntwo";
        let mut line = Vec::new();
        let mut seen = Vec::new();
        while read_line(&mut reader, &mut line).await.unwrap() {
            seen.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(seen, ["one", "", "two"]);
    }
}
