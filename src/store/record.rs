//! A line of a log: an event's JSON, now and then the position known durable, and a checksum.
//!
//! `{…event…,"durable":12,"crc":"1a2b3c4d"}`: the checksum (CRC-32C, RFC 3720) is of all bytes before `,"crc"`. An
//! event's JSON never ends in a bare number, so `,"durable":` before the checksum is ours.

use std::io::Write as _;

use serde::{Deserialize, Serialize};

use super::Header;
use crate::event::{Epoch, Seq, SessionEvent};

/// The format that this version writes, and the newest that it reads.
pub(super) const VERSION: u64 = 1;

/// `,"crc":"xxxxxxxx"}`.
const CRC_BYTES: usize = 18;

/// Appends the line for `json`, newline included.
pub(super) fn seal(json: &[u8], durable: Option<Seq>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(json.strip_suffix(b"}").unwrap_or(json));
    // Writing to a Vec does not fail.
    if let Some(durable) = durable {
        let _ = write!(out, ",\"durable\":{durable}");
    }
    let crc = crc32c::crc32c(&out[start..]);
    let _ = writeln!(out, ",\"crc\":\"{crc:08x}\"}}");
}

/// A line whose checksum holds.
#[derive(Debug)]
pub(super) struct Record<'a> {
    body: &'a [u8],
    /// The position that was known durable when it was written.
    pub(super) durable: Option<Seq>,
}

impl<'a> Record<'a> {
    /// Checks a line, its newline taken off.
    pub(super) fn open(line: &'a [u8]) -> Option<Self> {
        let body = line.get(..line.len().checked_sub(CRC_BYTES)?)?;
        let crc = line[body.len()..].strip_prefix(b",\"crc\":\"")?.strip_suffix(b"\"}")?;
        if crc32c::crc32c(body) != hex_of(crc)? {
            return None;
        }
        let digits = body.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (rest, number) = body.split_at(body.len() - digits);
        match rest.strip_suffix(b",\"durable\":") {
            Some(body) if digits > 0 => {
                let durable = std::str::from_utf8(number).ok()?.parse().ok().map(Seq);
                Some(Self { body, durable })
            }
            _ => Some(Self { body, durable: None }),
        }
    }

    /// The JSON that was sealed.
    pub(super) fn json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.body.len() + 1);
        json.extend_from_slice(self.body);
        json.push(b'}');
        json
    }

    /// The event's position: our encoder writes `type` and then `seq`.
    pub(super) fn seq(&self) -> Option<Seq> {
        const MARK: &[u8] = b",\"seq\":";
        let at = memchr::memmem::find(self.body, MARK)? + MARK.len();
        let digits = self.body[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&self.body[at..at + digits]).ok()?.parse().ok().map(Seq)
    }

    /// The life that it opens, if it is a `session/opened`.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        if !self.body.starts_with(b"{\"type\":\"session/opened\"") {
            return None;
        }
        SessionEvent::decode(&self.json()).ok()?.body.opened_epoch()
    }
}

/// The number of eight digits as [`seal`] writes them; `from_str_radix` would take a sign and capitals as well.
fn hex_of(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u32::from(value))
    })
}

/// The first line of a log.
#[derive(Debug, Serialize, Deserialize)]
struct FirstLine {
    #[serde(rename = "type")]
    kind: String,
    version: u64,
    #[serde(flatten)]
    header: Header,
}

/// Why a first line is none of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// A newer format.
    Version(u64),
    /// Unreadable.
    Damaged,
}

/// The line for a header, newline included.
pub(super) fn seal_header(header: &Header, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let first = FirstLine { kind: "session".to_owned(), version: VERSION, header: header.clone() };
    seal(&serde_json::to_vec(&first)?, None, out);
    Ok(())
}

/// Reads a first line, its newline taken off.
pub(super) fn open_header(line: &[u8]) -> Result<Header, HeaderError> {
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    let record = Record::open(line).ok_or(HeaderError::Damaged)?;
    let json = record.json();
    let version: Version = serde_json::from_slice(&json).map_err(|_| HeaderError::Damaged)?;
    if version.version > VERSION {
        return Err(HeaderError::Version(version.version));
    }
    let first: FirstLine = serde_json::from_slice(&json).map_err(|_| HeaderError::Damaged)?;
    Ok(first.header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_comes_back_byte_for_byte() {
        for json in [
            r#"{"type":"x","seq":3,"data":{"a":1}}"#,
            r#"{"type":"x","seq":4,"data":{},"surfaceOp":"append"}"#,
        ] {
            for durable in [None, Some(Seq(17))] {
                let mut line = Vec::new();
                seal(json.as_bytes(), durable, &mut line);
                let record = Record::open(line.strip_suffix(b"\n").unwrap()).unwrap();
                assert_eq!((record.json(), record.durable), (json.as_bytes().to_vec(), durable));
                assert!(record.seq().is_some());
            }
        }
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let mut line = Vec::new();
        seal(br#"{"type":"x","seq":3,"data":{"a":1}}"#, Some(Seq(1)), &mut line);
        line.pop();
        for at in 0..line.len() {
            for flip in 1..=255 {
                let mut damaged = line.clone();
                damaged[at] ^= flip;
                assert!(Record::open(&damaged).is_none(), "byte {at} ^ {flip}");
            }
        }
    }
}
