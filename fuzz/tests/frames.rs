//! Any bytes, cut anywhere, give the same frames, and no frame is longer than the limit.

use bytes::BytesMut;
use dshd::codec::{Frame, LineDecoder};
use tokio_util::codec::Decoder as _;

const LINE_BYTES_MAX: usize = 64;

fn decode(pieces: &[&[u8]]) -> Vec<Frame> {
    let mut decoder = LineDecoder::new(LINE_BYTES_MAX);
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

#[test]
fn frames() {
    bolero::check!().with_type::<(Vec<u8>, u8)>().for_each(|(bytes, cut)| {
        let (left, right) = bytes.split_at(usize::from(*cut).min(bytes.len()));
        let whole = decode(&[bytes]);
        assert_eq!(decode(&[left, right]), whole);
        for frame in whole {
            if let Frame::Line(line) = frame {
                assert!(line.len() <= LINE_BYTES_MAX && !line.contains(&b'\n'));
            }
        }
    });
}
