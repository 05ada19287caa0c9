//! Before a TCP peer has authenticated: little time, few bytes, and no answer to whoever does not speak the protocol.
//!
//! A web page can send valid lines to a port, in the body of a POST. So the first byte must be `{` and the first
//! frame a request, or the connection is closed without a byte.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use jiff::Timestamp;
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;

use super::Connection;
use crate::auth::token::Held;
use crate::codec::{Frame, LineDecoder};
use crate::listener::{Permit, Terms};
use crate::protocol::{AuthenticateParams, Method};
use crate::rpc::{self, ErrorKind, Inbound, RpcError};

/// Awaits the first frame and judges it. `None`: the connection is to be closed.
pub(super) async fn authenticate<R>(
    connection: &Connection,
    frames: &mut FramedRead<R, LineDecoder>,
    permit: Option<&mut Permit>,
) -> Option<Held>
where
    R: AsyncRead + Unpin,
{
    let terms = permit.as_ref().and_then(|permit| permit.terms()).unwrap_or_else(|| Terms {
        deadline: Instant::now() + connection.service.shared.config.borrow().limits.preauth_time,
        evicted: CancellationToken::new(),
    });
    let failed = || permit.as_ref().map_or(Duration::ZERO, |permit| permit.failed());
    let peer = &connection.peer.label;
    let first = tokio::select! {
        biased;
        // Before the eviction: who has said it already when its turn comes is heard.
        first = tokio::time::timeout_at(terms.deadline, first_line(frames)) => first,
        () = terms.evicted.cancelled() => {
            tracing::debug!(peer, "a peer that did not authenticate made room for another");
            return None;
        }
    };
    let Ok(first) = first else {
        failed();
        tracing::info!(peer, "a peer did not authenticate in time");
        return None;
    };
    let Some(Inbound::Request(request)) = first.map(|line| rpc::parse(&line)) else {
        failed();
        tracing::info!(peer, "a peer does not speak the protocol");
        return None;
    };
    let admitted = if Method::from_name(&request.method) == Some(Method::Authenticate) {
        admit(connection, request.params.as_deref())
    } else {
        tracing::warn!(peer, "a peer did not authenticate");
        Err(refusal("authenticate first: the first request over TCP must be authenticate"))
    };
    if admitted.is_err() {
        let delay = failed();
        tokio::select! {
            biased;
            () = terms.evicted.cancelled() => return None,
            () = tokio::time::sleep_until(terms.deadline.min(Instant::now() + delay)) => {}
        }
    }
    let line = match &admitted {
        Ok(_) => rpc::response(Some(&request.id), Ok(&Empty {})),
        Err(error) => rpc::response::<Empty>(Some(&request.id), Err(error)),
    };
    // A peer that is gone already needs no answer.
    let _ = connection.outbound.reply(line).await;
    admitted.ok()
}

#[derive(serde::Serialize)]
struct Empty {}

fn admit(connection: &Connection, params: Option<&serde_json::value::RawValue>) -> Result<Held, RpcError> {
    let peer = &connection.peer.label;
    let params: AuthenticateParams = rpc::parse_params(params)?;
    match connection.service.tokens.authenticate(&params.token, Timestamp::now()) {
        Ok(admitted) => {
            tracing::info!(peer, token = admitted.name, scope = %admitted.scope, "authenticated");
            Ok(connection.service.tokens.hold(admitted))
        }
        Err(error) => {
            tracing::warn!(peer, %error, "a token was refused");
            Err(refusal("the token is not accepted; make one with dshd token create"))
        }
    }
}

fn refusal(message: &str) -> RpcError {
    RpcError::new(ErrorKind::Unauthenticated, message)
}

/// The first line; `None` as soon as the peer can't be one of ours, or has left.
async fn first_line<R: AsyncRead + Unpin>(frames: &mut FramedRead<R, LineDecoder>) -> Option<Bytes> {
    let first = poll_fn(|context| match Pin::new(&mut *frames).poll_next(context) {
        Poll::Ready(frame) => Poll::Ready(frame),
        Poll::Pending if may_begin_request(frames.read_buffer()) => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    });
    match first.await {
        Some(Ok(Frame::Line(line))) if may_begin_request(&line) => Some(line),
        Some(Ok(Frame::Line(_) | Frame::TooLong) | Err(_)) | None => None,
    }
}

/// Whether the first byte that is not blank is `{`, or has not come yet.
fn may_begin_request(bytes: &[u8]) -> bool {
    let bytes = bytes.trim_ascii_start();
    let bytes = match bytes.strip_prefix(b"\xEF\xBB\xBF") {
        Some(rest) => rest.trim_ascii_start(),
        None if b"\xEF\xBB\xBF".starts_with(bytes) => b"",
        None => bytes,
    };
    bytes.first().is_none_or(|first| *first == b'{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_with_a_brace_after_blanks_and_a_mark() {
        for good in
            [&b""[..], b" \r\n", b"{", b"  {\"id\"", b"\xEF", b"\xEF\xBB", b"\xEF\xBB\xBF", b"\xEF\xBB\xBF {"]
        {
            assert!(may_begin_request(good), "{good:?}");
        }
        for bad in [&b"G"[..], b"POST / HTTP/1.1", b"[", b"\x16\x03\x01", b"\xEF\xBB\xBFx", b"\n\nx"] {
            assert!(!may_begin_request(bad), "{bad:?}");
        }
    }
}
