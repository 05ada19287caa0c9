//! Bytes into lines; knows no JSON.
//!
//! What the peer does wrong is an item, not an error: a line over the limit is reported once and skipped to its end
//! without being held. Used by `connection` and `client` through tokio-util's `FramedRead`, which is cancel safe.

use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio_util::codec::Decoder;

/// A byte order mark, skipped at the start of a line.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// A buffer larger than this is given back.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// And one of this size takes its place: without any, what follows is read in pieces of 64 bytes, each a system call.
const RENEWED_BYTES: usize = 8 * 1024;

/// What a peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line that is not blank, without its end.
    Line(Bytes),
    /// A line over the limit; skipped.
    TooLong,
}

/// Splits a stream at `\n` (docs/protocol.md, section 2).
#[derive(Debug)]
pub struct LineDecoder {
    line_bytes_max: usize,
    /// Bytes of the buffer that hold no line end.
    scanned: usize,
    skipping: bool,
}

impl LineDecoder {
    /// A decoder for lines of at most `line_bytes_max` bytes, their end not counted.
    #[must_use]
    pub fn new(line_bytes_max: usize) -> Self {
        Self { line_bytes_max, scanned: 0, skipping: false }
    }

    /// Changes the limit, for lines that are not complete yet.
    pub fn set_line_bytes_max(&mut self, line_bytes_max: usize) {
        self.line_bytes_max = line_bytes_max;
    }

    fn next_frame(&mut self, src: &mut BytesMut) -> Option<Frame> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &src[self.scanned..]).map(|at| self.scanned + at) else {
                return self.without_end(src);
            };
            self.scanned = 0;
            let line = src.split_to(end + 1).freeze();
            give_back(src, end);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if let Some(frame) = self.frame(line) {
                return Some(frame);
            }
        }
    }

    /// No line end in the buffer: wait for more, or begin to skip.
    fn without_end(&mut self, src: &mut BytesMut) -> Option<Frame> {
        let over = src.len() > self.line_bytes_max + BOM.len() + 1;
        if self.skipping || over {
            let first = !std::mem::replace(&mut self.skipping, true);
            self.scanned = 0;
            let skipped = src.len();
            src.clear();
            give_back(src, skipped);
            return first.then_some(Frame::TooLong);
        }
        self.scanned = src.len();
        None
    }

    /// The line without mark and end; `None` when it is blank.
    fn frame(&self, mut line: Bytes) -> Option<Frame> {
        if line.starts_with(BOM) {
            line.advance(BOM.len());
        }
        let end = line.strip_suffix(b"\n").map_or(line.len(), <[u8]>::len);
        line.truncate(end);
        let end = line.strip_suffix(b"\r").map_or(line.len(), <[u8]>::len);
        line.truncate(end);
        if line.trim_ascii().is_empty() {
            return None;
        }
        Some(if line.len() > self.line_bytes_max { Frame::TooLong } else { Frame::Line(line) })
    }
}

/// Lets go of memory that a line of `taken` bytes has made the buffer grow to. What is behind the line moves, unless it
/// is longer.
fn give_back(src: &mut BytesMut, taken: usize) {
    if taken.max(src.capacity()) > KEPT_BYTES_MAX && src.len() <= taken {
        let mut renewed = BytesMut::with_capacity(RENEWED_BYTES.max(src.len()));
        renewed.extend_from_slice(src);
        *src = renewed;
    }
}

impl Decoder for LineDecoder {
    type Item = Frame;
    type Error = io::Error;

    fn decode(&mut self, src: &mut BytesMut) -> io::Result<Option<Frame>> {
        Ok(self.next_frame(src))
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> io::Result<Option<Frame>> {
        if let Some(frame) = self.next_frame(src) {
            return Ok(Some(frame));
        }
        self.scanned = 0;
        let rest = src.split().freeze();
        Ok(if std::mem::take(&mut self.skipping) { None } else { self.frame(rest) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes bytes that arrive in pieces, then the end.
    fn decode(pieces: &[&[u8]], max: usize) -> Vec<Frame> {
        let mut decoder = LineDecoder::new(max);
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                frames.push(frame);
            }
        }
        while let Some(frame) = decoder.decode_eof(&mut buffer).unwrap() {
            frames.push(frame);
        }
        frames
    }

    fn line(text: &'static str) -> Frame {
        Frame::Line(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn line_ends_blank_lines_and_marks_are_taken_off() {
        let frames = decode(&[b"\xEF\xBB\xBFa\r\n\n \r\nb\n\n\nc"], 10);
        assert_eq!(frames, [line("a"), line("b"), line("c")]);
    }

    #[test]
    fn a_complete_line_behind_blank_ones_does_not_wait_for_more_bytes() {
        let mut decoder = LineDecoder::new(10);
        let mut buffer = BytesMut::from("\n\n\r\nx\n");
        assert_eq!(decoder.decode(&mut buffer).unwrap(), Some(line("x")));
    }

    #[test]
    fn a_long_line_is_told_once_and_is_not_held() {
        let mut decoder = LineDecoder::new(8);
        let mut buffer = BytesMut::new();
        let mut told = 0;
        for _ in 0..1000 {
            buffer.extend_from_slice(&[b'a'; 1000]);
            told += usize::from(decoder.decode(&mut buffer).unwrap() == Some(Frame::TooLong));
            assert!(buffer.is_empty() || told == 0);
        }
        buffer.extend_from_slice(b"\nok\n");
        assert_eq!(decoder.decode(&mut buffer).unwrap(), Some(line("ok")));
        assert_eq!(told, 1);
    }

    /// Without a buffer, what came after a long line was once read in pieces of 64 bytes.
    #[test]
    fn a_large_buffer_is_given_back_for_one_of_use() {
        let large = vec![b'a'; 4 * KEPT_BYTES_MAX];
        for (max, end) in [(100, &b""[..]), (100, b"\nnext"), (1 << 20, b"\n"), (1 << 20, b"\nnext")] {
            let mut decoder = LineDecoder::new(max);
            let mut buffer = BytesMut::with_capacity(large.len() + end.len());
            buffer.extend_from_slice(&large);
            buffer.extend_from_slice(end);
            decoder.decode(&mut buffer).unwrap();
            decoder.decode(&mut buffer).unwrap();
            assert!((RENEWED_BYTES..=KEPT_BYTES_MAX).contains(&buffer.capacity()), "{}", buffer.capacity());
            assert_eq!(buffer, end.strip_prefix(b"\n").unwrap_or_default());
        }
    }

    #[test]
    fn the_limit_counts_the_line_without_its_end() {
        assert_eq!(decode(&[b"12345678\r\n123456789\nx"], 8), [line("12345678"), Frame::TooLong, line("x")]);
    }

    #[test]
    fn a_carriage_return_is_the_only_thing_besides_the_newline_that_ends_a_line() {
        let text = "a\u{2028}b\u{85}c\u{b}d";
        assert_eq!(decode(&[text.as_bytes(), b"\n"], 100), [Frame::Line(Bytes::from(text))]);
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_frames(
            bytes in proptest::collection::vec(prop_oneof![4 => Just(b'a'), 1 => Just(b'\n'), 1 => Just(b'\r'), 1 => Just(b' ')], 0..80),
            cuts in proptest::collection::vec(0..80usize, 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(decode(&pieces, 6), decode(&[&bytes], 6));
        }
    }
}
