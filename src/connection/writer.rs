//! The writer task: the only one that writes to a connection's stream.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::outbound::{Frame, Outbound};

/// What one write gathers at most before the task yields.
const BATCH_BYTES: usize = 64 * 1024;

/// How often a peer that says nothing more is asked whether it still reads.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);

/// Lines below this are gathered by copying; larger ones are written where they are.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// Why a connection's write side ended other than by closing the queue.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The peer took no byte for too long.
    #[error("the peer took no byte for {} s", .limit.as_secs())]
    Stuck {
        /// How long it might.
        limit: Duration,
        /// Lines that waited.
        lines: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// The stream failed.
    #[error("the stream failed")]
    Io(#[from] io::Error),
}

/// Writes what is queued until the queue is closed and empty, then ends the stream. `progress_max`: how long the peer
/// may take no byte (`limits.write_progress`); none for stdio, whose peer may pause as long as it likes. `input_over`: the
/// peer says nothing more, so that it may be gone.
///
/// # Errors
/// [`WriteError`]; the queue is discarded then.
pub(super) async fn write_all<W>(
    mut io: W,
    outbound: &Outbound,
    progress_max: Option<Duration>,
    input_over: &CancellationToken,
) -> Result<(), WriteError>
where
    W: AsyncWrite + Unpin,
{
    let mut writer = Writer { io: &mut io, outbound, progress_max, input_over };
    let result = writer.write_queued().await;
    if result.is_err() {
        outbound.discard();
    }
    result
}

struct Writer<'a, W> {
    io: &'a mut W,
    outbound: &'a Outbound,
    progress_max: Option<Duration>,
    input_over: &'a CancellationToken,
}

impl<W: AsyncWrite + Unpin> Writer<'_, W> {
    async fn write_queued(&mut self) -> Result<(), WriteError> {
        let mut batch = Vec::new();
        let mut gathered = Vec::new();
        while self.take(&mut batch).await? {
            self.write_batch(&batch, &mut gathered).await?;
            self.outbound.written(&mut batch);
            let more = self.outbound.lag().lines > 0;
            if !more && gathered.capacity() > COPY_BYTES_MAX {
                // An idle connection holds no buffer.
                gathered = Vec::new();
            }
            within(self.progress_max, self.outbound, self.io.flush()).await?;
            if more {
                tokio::task::yield_now().await;
            }
        }
        within(self.progress_max, self.outbound, self.io.shutdown()).await
    }

    /// Waits for lines. Meanwhile a peer that has closed both ways is found out: only a write tells that it is gone, and
    /// an empty one is enough where the system knows (Unix sockets, reset TCP).
    async fn take(&mut self, batch: &mut Vec<Frame>) -> Result<bool, WriteError> {
        loop {
            let probe = async {
                self.input_over.cancelled().await;
                tokio::time::sleep(PROBE_INTERVAL).await;
            };
            tokio::select! {
                biased;
                open = self.outbound.take(batch, BATCH_BYTES) => return Ok(open),
                () = probe => {}
            }
            within(self.progress_max, self.outbound, self.io.write(&[])).await?;
        }
    }

    /// One write for neighbouring small lines; a large line is written without copying it.
    async fn write_batch(&mut self, batch: &[Frame], gathered: &mut Vec<u8>) -> Result<(), WriteError> {
        if let [only] = batch {
            return self.write(&only.line).await;
        }
        gathered.clear();
        for frame in batch {
            if frame.line.len() > COPY_BYTES_MAX {
                self.write(gathered).await?;
                gathered.clear();
                self.write(&frame.line).await?;
            } else {
                gathered.extend_from_slice(&frame.line);
            }
        }
        self.write(gathered).await
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let written = within(self.progress_max, self.outbound, self.io.write(bytes)).await?;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            self.outbound.moved();
            bytes = &bytes[written..];
        }
        Ok(())
    }
}

async fn within<T>(
    limit: Option<Duration>,
    outbound: &Outbound,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, WriteError> {
    let Some(limit) = limit else { return Ok(work.await?) };
    if let Ok(result) = tokio::time::timeout(limit, work).await {
        return Ok(result?);
    }
    let lag = outbound.lag();
    Err(WriteError::Stuck { limit, lines: lag.lines, bytes: lag.bytes })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::AsyncReadExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    async fn write(io: impl AsyncWrite + Unpin, outbound: &Outbound) -> Result<(), WriteError> {
        write_all(io, outbound, Some(LIMIT), &CancellationToken::new()).await
    }

    async fn queue(outbound: &Outbound, lines: &[&'static str]) {
        for line in lines {
            outbound.reply(Bytes::from_static(line.as_bytes())).await.unwrap();
        }
    }

    #[tokio::test]
    async fn lines_are_written_in_order_and_the_stream_ends_after_the_last() {
        let outbound = Outbound::new(1 << 20);
        let (ours, mut theirs) = tokio::io::duplex(64);
        queue(&outbound, &["one\n", "two\n"]).await;
        outbound.close();
        let mut read = String::new();
        let (written, _) = tokio::join!(write(ours, &outbound), theirs.read_to_string(&mut read));
        written.unwrap();
        assert_eq!(read, "one\ntwo\n");
    }

    #[tokio::test]
    async fn large_lines_keep_their_place_between_small_ones() {
        let outbound = Outbound::new(1 << 20);
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let large = "L".repeat(COPY_BYTES_MAX + 1);
        queue(&outbound, &["a\n"]).await;
        outbound.reply(Bytes::from(large.clone())).await.unwrap();
        queue(&outbound, &["b\n", "c\n"]).await;
        outbound.close();
        let mut read = String::new();
        let (written, _) = tokio::join!(write(ours, &outbound), theirs.read_to_string(&mut read));
        written.unwrap();
        assert_eq!(read, format!("a\n{large}b\nc\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_no_byte_is_cut() {
        let outbound = Outbound::new(1 << 20);
        let (ours, _theirs) = tokio::io::duplex(4);
        queue(&outbound, &["more than four\n"]).await;
        let result = write(ours, &outbound).await;
        assert!(matches!(result, Err(WriteError::Stuck { lines: 1, bytes: 15, .. })), "{result:?}");
        assert_eq!(outbound.lag().lines, 0);
    }

    /// A killed client of a Unix socket whose turn says nothing for a while held its place among the connections.
    #[tokio::test]
    async fn a_peer_that_is_gone_is_found_out_although_nothing_is_said() {
        let outbound = Outbound::new(1 << 20);
        let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        drop(theirs);
        let input_over = CancellationToken::new();
        input_over.cancel();
        let written = write_all(ours, &outbound, Some(LIMIT), &input_over);
        let result = tokio::time::timeout(LIMIT, written).await.unwrap();
        assert!(matches!(result, Err(WriteError::Io(_))), "{result:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_kept_while_bytes_move() {
        let outbound = Outbound::new(1 << 20);
        let (ours, mut theirs) = tokio::io::duplex(1);
        queue(&outbound, &["slow\n"]).await;
        outbound.close();
        let read = async {
            let mut read = Vec::new();
            let mut byte = [0];
            while theirs.read(&mut byte).await.unwrap() > 0 {
                read.push(byte[0]);
                tokio::time::sleep(LIMIT.saturating_sub(Duration::from_millis(1))).await;
            }
            read
        };
        let (written, read) = tokio::join!(write(ours, &outbound), read);
        written.unwrap();
        assert_eq!(read, b"slow\n");
    }
}
