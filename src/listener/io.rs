//! One connection's stream, whichever way it came in.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A connected socket.
#[derive(Debug)]
pub enum Io {
    /// Of a Unix socket.
    Unix(UnixStream),
    /// Of TCP.
    Tcp(TcpStream),
    /// Of TCP, where TLS is spoken.
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! with_stream {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Io::Unix($stream) => $call,
            Io::Tcp($stream) => $call,
            Io::Tls($stream) => $call,
        }
    };
}

impl Io {
    /// Writes what the socket takes at once. Nothing, when that would have to be encrypted.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Tls(_) => Ok(0),
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        with_stream!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        with_stream!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_stream!(self, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
