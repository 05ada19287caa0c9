//! What a session has seen of files: their stamps when it read or wrote them. `read`, `write` and `edit` share it.
//!
//! A stamp also stands in the `meta` of their results, so that a session knows it again after a restart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// Files that a session remembers; the one that was seen longest ago is forgotten first.
const FILES_MAX: usize = 4096;

/// SHA-256 of a file's content.
pub(super) type Digest = [u8; 32];

/// A file's content at a time, as far as it can be told cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    size: u64,
    mtime_seconds: i64,
    mtime_nanos: u64,
    inode: u64,
    /// Of the content, when all of it was read.
    digest: Option<Digest>,
}

impl Stamp {
    /// The stamp of a file, without its content's digest.
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_seconds: stat.st_mtime,
            mtime_nanos: stat.st_mtime_nsec,
            inode: stat.st_ino,
            digest: None,
        }
    }

    /// The same with a digest.
    pub(super) fn with(self, digest: Option<Digest>) -> Self {
        Self { digest, ..self }
    }

    /// Whether a file with this stamp is in the place of one with the other, by its marks alone.
    pub(super) fn same_marks(&self, other: &Self) -> bool {
        self.with(None) == other.with(None)
    }

    /// Whether the content is what was seen: by its digest when both have one, else by the marks.
    fn same_content(&self, seen: &Self) -> bool {
        match (self.digest, seen.digest) {
            (Some(now), Some(then)) => now == then,
            (None | Some(_), None) | (None, Some(_)) => self.same_marks(seen),
        }
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}.{:09}-{}", self.size, self.mtime_seconds, self.mtime_nanos, self.inode)?;
        if let Some(digest) = &self.digest {
            f.write_str("-")?;
            for byte in digest {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// A text that is no stamp.
#[derive(Debug, thiserror::Error)]
#[error("not a file's stamp")]
pub(super) struct NoStamp;

impl FromStr for Stamp {
    type Err = NoStamp;

    fn from_str(text: &str) -> Result<Self, NoStamp> {
        let (size, rest) = text.split_once('-').ok_or(NoStamp)?;
        let (seconds, rest) = rest.split_once('.').ok_or(NoStamp)?;
        let (nanos, rest) = rest.split_once('-').ok_or(NoStamp)?;
        let (inode, digest) = rest.split_once('-').map_or((rest, None), |(inode, hex)| (inode, Some(hex)));
        Ok(Self {
            size: size.parse().map_err(|_| NoStamp)?,
            mtime_seconds: seconds.parse().map_err(|_| NoStamp)?,
            mtime_nanos: nanos.parse().map_err(|_| NoStamp)?,
            inode: inode.parse().map_err(|_| NoStamp)?,
            digest: digest.map(unhex).transpose()?,
        })
    }
}

fn unhex(hex: &str) -> Result<Digest, NoStamp> {
    let mut digest = Digest::default();
    if hex.len() != 2 * digest.len() || !hex.is_ascii() {
        return Err(NoStamp);
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).map_err(|_| NoStamp)?;
    }
    Ok(digest)
}

/// The digest of a whole content.
pub(super) fn digest(content: &[u8]) -> Digest {
    Sha256::digest(content).into()
}

/// What a call may do to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is as the session saw it.
    Unchanged,
    /// It is another than the session saw.
    Changed,
    /// The session has not seen it.
    Never,
}

/// The files that one session has seen.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    by_path: HashMap<PathBuf, (u64, Stamp)>,
    /// Counts what was seen, to know what was seen longest ago.
    clock: u64,
}

impl Observed {
    /// Notes a file, by its path without symbolic links.
    pub(super) fn note(&self, real: PathBuf, stamp: Stamp) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.clock += 1;
        let now = files.clock;
        files.by_path.insert(real, (now, stamp));
        if files.by_path.len() > FILES_MAX {
            // Half at once, so that the search for the oldest is rare.
            let mut times: Vec<u64> = files.by_path.values().map(|(time, _)| *time).collect();
            times.sort_unstable();
            let kept_from = times[times.len() / 2];
            files.by_path.retain(|_, (time, _)| *time >= kept_from);
        }
    }

    /// Compares a file, whose content was digested, to what was seen of it.
    pub(super) fn compare(&self, real: &Path, now: &Stamp) -> Seen {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match files.by_path.get(real) {
            None => Seen::Never,
            Some((_, seen)) if now.same_content(seen) => Seen::Unchanged,
            Some(_) => Seen::Changed,
        }
    }

    /// Takes what the `meta` of a logged result says of a file, if it says anything.
    pub(crate) fn replay(&self, meta: &RawValue) {
        if !meta.get().contains(r#""stamp":"#) {
            return;
        }
        let Ok(noted) = serde_json::from_str::<Noted>(meta.get()) else { return };
        if let Ok(stamp) = noted.stamp.parse() {
            self.note(noted.real_path.unwrap_or(noted.path), stamp);
        }
    }
}

/// The members of a result's `meta` that tell what was seen.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Noted {
    path: PathBuf,
    #[serde(default)]
    real_path: Option<PathBuf>,
    stamp: String,
}

/// What of a result's `meta` tells a later life of the session what was seen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Note {
    /// Where the path leads, when it leads elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    real_path: Option<String>,
    stamp: String,
}

impl Note {
    pub(super) fn of(place: &super::paths::Place, stamp: &Stamp) -> Self {
        let real_path = (place.real != place.shown).then(|| place.real.display().to_string());
        Self { real_path, stamp: stamp.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stamp(size: u64, content: Option<&str>) -> Stamp {
        Stamp {
            size,
            mtime_seconds: 1_796_078_479,
            mtime_nanos: 5,
            inode: 7,
            digest: content.map(|content| digest(content.as_bytes())),
        }
    }

    #[test]
    fn a_file_is_unchanged_by_its_content_and_without_one_by_its_marks() {
        let observed = Observed::default();
        let path = Path::new("/f");
        assert_eq!(observed.compare(path, &stamp(1, Some("a"))), Seen::Never);
        observed.note(path.to_owned(), stamp(1, Some("a")));
        assert_eq!(observed.compare(path, &stamp(1, Some("a"))), Seen::Unchanged);
        assert_eq!(observed.compare(path, &stamp(1, Some("b"))), Seen::Changed, "the same marks");
        let touched = Stamp { mtime_nanos: 6, inode: 8, ..stamp(1, Some("a")) };
        assert_eq!(observed.compare(path, &touched), Seen::Unchanged, "touched only");
        observed.note(path.to_owned(), stamp(1, None));
        assert_eq!(observed.compare(path, &stamp(1, Some("b"))), Seen::Unchanged);
        assert_eq!(observed.compare(path, &touched), Seen::Changed);
    }

    #[test]
    fn what_was_seen_longest_ago_is_forgotten_first() {
        let observed = Observed::default();
        for at in 0..=FILES_MAX {
            observed.note(PathBuf::from(format!("/{at}")), stamp(1, None));
        }
        assert_eq!(observed.compare(Path::new("/0"), &stamp(1, None)), Seen::Never);
        let last = format!("/{FILES_MAX}");
        assert_eq!(observed.compare(Path::new(&last), &stamp(1, None)), Seen::Unchanged);
    }

    #[test]
    fn a_logged_result_tells_what_was_seen() {
        let observed = Observed::default();
        let replay = |json: String| observed.replay(&RawValue::from_string(json).unwrap());
        let seen = stamp(1, Some("a"));
        replay(format!(r#"{{"path":"/f","offset":1,"stamp":"{seen}"}}"#));
        replay(format!(r#"{{"path":"/link","realPath":"/g","stamp":"{seen}"}}"#));
        replay(r#"{"path":"/h","stamp":"nonsense"}"#.to_owned());
        replay(r#"{"cwd":"/f"}"#.to_owned());
        for (path, expected) in
            [("/f", Seen::Unchanged), ("/g", Seen::Unchanged), ("/link", Seen::Never), ("/h", Seen::Never)]
        {
            assert_eq!(observed.compare(Path::new(path), &seen), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn a_stamp_is_read_as_it_was_written(
            size: u64, mtime_seconds: i64, mtime_nanos in 0..1_000_000_000_u64, inode: u64, digest: Option<Digest>
        ) {
            let stamp = Stamp { size, mtime_seconds, mtime_nanos, inode, digest };
            prop_assert_eq!(stamp.to_string().parse::<Stamp>().unwrap(), stamp);
        }

        #[test]
        fn no_text_makes_the_stamp_reader_panic(text in ".{0,80}") {
            let _ = text.parse::<Stamp>();
        }
    }
}
