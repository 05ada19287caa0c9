//! What the index keeps of a session: little, since there are many.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::event::{PermissionMode, Seq, SessionId, Totals};
use crate::store::{Header, Place, Summary};

/// The beginning of a directory's name, which is enough to tell it from others.
pub(super) type Digest = [u64; 2];

/// Length and time of last change of a log, which tell whether what is known of it is still true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) length: u64,
    pub(super) changed_ns: i64,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let changed_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        Self { length: metadata.len(), changed_ns }
    }

    pub(super) fn changed_ms(self) -> u64 {
        u64::try_from(self.changed_ns / 1_000_000).unwrap_or(0)
    }
}

/// A log that was looked at.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) stamp: Stamp,
    /// When it was last written, which finds it in the list; the largest number: it is no log.
    updated_at: u64,
}

impl Known {
    pub(super) fn new(stamp: Stamp, updated_at: Option<u64>) -> Self {
        Self { stamp, updated_at: updated_at.unwrap_or(u64::MAX) }
    }

    pub(super) fn updated_at(&self) -> Option<u64> {
        Some(self.updated_at).filter(|updated_at| *updated_at < u64::MAX)
    }
}

/// What a line of the list says beside its place.
#[derive(Debug)]
pub(super) struct Entry {
    created_at: u64,
    /// Shared by all sessions of a directory.
    pub(super) cwd: Arc<str>,
    pub(super) parent: Option<SessionId>,
    title: Option<Box<str>>,
    /// One more than the last event; 0: there is none.
    events: u64,
    totals: Option<Box<Totals>>,
    mode: Option<PermissionMode>,
}

impl Entry {
    pub(super) fn new(summary: Summary, cwd: Arc<str>) -> Self {
        Self {
            created_at: summary.header.created_at,
            cwd,
            parent: summary.header.parent_session,
            title: summary.title.map(String::into_boxed_str),
            events: Seq::following(summary.last).0,
            totals: summary.totals.map(Box::new),
            mode: summary.mode,
        }
    }

    pub(super) fn summary(&self, place: &Place) -> Summary {
        let header = Header {
            id: place.id.clone(),
            created_at: self.created_at,
            cwd: self.cwd.as_ref().to_owned(),
            parent_session: self.parent.clone(),
        };
        Summary {
            header,
            title: self.title.as_deref().map(str::to_owned),
            updated_at: place.updated_at.0,
            last: self.events.checked_sub(1).map(Seq),
            totals: self.totals.as_deref().copied(),
            mode: self.mode,
        }
    }
}

/// The name of a session's directory.
pub(in crate::store::file) fn digest(id: &SessionId) -> [u8; 32] {
    Sha256::digest(id.as_str().as_bytes()).into()
}

pub(in crate::store::file) fn hex(name: &[u8; 32]) -> String {
    use std::fmt::Write as _;
    name.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn short(name: &[u8; 32]) -> Digest {
    let mut halves = name.chunks_exact(8).filter_map(|half| half.try_into().ok()).map(u64::from_be_bytes);
    [halves.next().unwrap_or(0), halves.next().unwrap_or(0)]
}

/// The number of a shelf by its directory's name.
pub(super) fn shelf(name: &str) -> Option<u8> {
    let is_hex = name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(name, 16).ok()).flatten()
}

/// A directory's name as bytes; none: it is none of ours.
pub(super) fn name(text: &str) -> Option<[u8; 32]> {
    let mut name = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in name.iter_mut().zip((0..64).step_by(2)) {
        *byte = shelf(&text[at..at + 2])?;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directorys_name_is_read_back() {
        let digest = digest(&SessionId::new("s").unwrap());
        assert_eq!(name(&hex(&digest)), Some(digest));
        assert_eq!(name("stray"), None);
        assert_eq!(name(&"z".repeat(64)), None);
        assert_eq!(name(&"+1".repeat(32)), None);
        assert_eq!((shelf("0f"), shelf("zz"), shelf("+1"), shelf("0")), (Some(15), None, None, None));
    }
}
