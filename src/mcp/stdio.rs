//! MCP over a program's pipes: one JSON message a line. What is no message is passed over; what is too long ends the
//! connection, since nobody can say which answer was lost.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt as _;
use rmcp::RoleClient;
use rmcp::model::{ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::codec::{Decoder, FramedRead};

use super::line::Line;
use crate::shutdown::Scope;

/// Messages that wait to be written.
const OUTGOING_MAX: usize = 16;
/// A program that takes no message within this is given up.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// The transport.
pub(super) struct Stdio {
    lines: FramedRead<ChildStdout, Lines>,
    writer: Option<mpsc::Sender<Outgoing>>,
    line: Arc<Line>,
}

struct Outgoing {
    bytes: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl Stdio {
    /// Joins the pipes; the writer runs in the scope and lets go of stdin when the transport closes.
    pub(super) fn new(
        stdin: ChildStdin,
        stdout: ChildStdout,
        message_bytes: usize,
        line: &Arc<Line>,
        scope: &Scope,
    ) -> Self {
        let (writer, outgoing) = mpsc::channel(OUTGOING_MAX);
        scope.spawn(write(stdin, outgoing, Arc::clone(line)));
        Self {
            lines: FramedRead::new(stdout, Lines { max: message_bytes, scanned: 0 }),
            writer: Some(writer),
            line: Arc::clone(line),
        }
    }
}

/// Writes until the transport closes, the connection ends, or the program takes nothing.
async fn write(mut stdin: ChildStdin, mut outgoing: mpsc::Receiver<Outgoing>, line: Arc<Line>) {
    loop {
        let next = tokio::select! {
            biased;
            () = line.ended() => return,
            next = outgoing.recv() => next,
        };
        let Some(Outgoing { bytes, written }) = next else { return };
        let write = async {
            stdin.write_all(&bytes).await?;
            stdin.flush().await
        };
        let result = timeout(WRITE_MAX, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if let Err(error) = &result {
            line.end(format!("it does not read what is sent to it ({error})"));
        }
        // Nobody waits for a message of a call that was given up.
        let _ = written.send(result);
    }
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let bytes = serde_json::to_vec(&item).map(|mut bytes| {
            bytes.push(b'\n');
            bytes
        });
        let writer = self.writer.clone();
        async move {
            let closed = || io::Error::from(io::ErrorKind::NotConnected);
            let (written, done) = oneshot::channel();
            let outgoing = Outgoing { bytes: bytes?, written };
            writer.ok_or_else(closed)?.send(outgoing).await.map_err(|_| closed())?;
            done.await.map_err(|_| closed())?
        }
    }

    /// Cancel safe: what was read is kept by the framing.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            match self.lines.next().await? {
                Ok(bytes) => {
                    if let Some(message) = parse(&bytes) {
                        return Some(message);
                    }
                }
                Err(error) => {
                    self.line.end(error.to_string());
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer = None;
        Ok(())
    }
}

/// A message; an answer that is none becomes an error for whoever waits for it.
fn parse(line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    #[derive(Deserialize)]
    struct Envelope {
        id: Option<RequestId>,
        method: Option<IgnoredAny>,
    }
    if line.trim_ascii().is_empty() {
        return None;
    }
    let error = match serde_json::from_slice(line) {
        Ok(message) => return Some(message),
        Err(error) => error,
    };
    let start = String::from_utf8_lossy(&line[..line.len().min(200)]);
    tracing::debug!(%error, %start, "a server says what is no message");
    match serde_json::from_slice(line) {
        Ok(Envelope { id: Some(id), method: None }) => {
            let what = "the server's answer is not what MCP says an answer is";
            Some(JsonRpcMessage::error(ErrorData::internal_error(what, None), Some(id)))
        }
        Ok(Envelope { .. }) | Err(_) => None,
    }
}

/// Cuts at line ends.
struct Lines {
    max: usize,
    /// Bytes at the start that hold no line end.
    scanned: usize,
}

#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error("it sent a message of more than {max} bytes (mcp.message_bytes)")]
    TooLong { max: usize },
    #[error("reading from it failed: {0}")]
    Io(#[from] io::Error),
}

impl Decoder for Lines {
    type Item = BytesMut;
    type Error = LineError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<BytesMut>, LineError> {
        let end = memchr::memchr(b'\n', &buffer[self.scanned..]).map(|at| self.scanned + at);
        if end.unwrap_or(buffer.len()) > self.max {
            return Err(LineError::TooLong { max: self.max });
        }
        self.scanned = if end.is_some() { 0 } else { buffer.len() };
        Ok(end.map(|end| buffer.split_to(end + 1)))
    }

    /// A last line without an end is no message.
    fn decode_eof(&mut self, buffer: &mut BytesMut) -> Result<Option<BytesMut>, LineError> {
        let line = self.decode(buffer)?;
        if line.is_none() {
            buffer.clear();
            self.scanned = 0;
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(chunks: &[Vec<u8>], max: usize) -> Result<Vec<Vec<u8>>, LineError> {
        let (mut decoder, mut buffer, mut all) = (Lines { max, scanned: 0 }, BytesMut::new(), Vec::new());
        for chunk in chunks {
            buffer.extend_from_slice(chunk);
            while let Some(line) = decoder.decode(&mut buffer)? {
                all.push(line.to_vec());
            }
        }
        while let Some(line) = decoder.decode_eof(&mut buffer)? {
            all.push(line.to_vec());
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_bytes_are_split(
            chunks in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..9), 0..9)
        ) {
            let whole = chunks.concat();
            let expected: Vec<Vec<u8>> =
                whole.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(lines(&chunks, 1000).unwrap(), expected);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_an_error_before_its_end_comes() {
        assert!(matches!(lines(&[b"12345".to_vec()], 4), Err(LineError::TooLong { max: 4 })));
        assert_eq!(lines(&[b"1234\n".to_vec()], 4).unwrap(), [b"1234\n"]);
    }

    #[test]
    fn chatter_is_passed_over_and_a_wrong_answer_reaches_who_waits_for_it() {
        assert!(parse(b"starting up...\n").is_none());
        assert!(parse(b"\r\n").is_none());
        assert!(parse(b"[1,2]\n").is_none());
        let wrong = parse(br#"{"jsonrpc":"1.0","id":7,"result":3}"#);
        assert!(
            matches!(wrong, Some(JsonRpcMessage::Error(error)) if error.id == Some(RequestId::Number(7)))
        );
        let right = parse(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert!(matches!(right, Some(JsonRpcMessage::Response(_))));
    }
}
