//! Request ids: kept as the text they came in, so that `1`, `"1"` and 2^64 are all themselves.

use std::sync::Arc;

/// Longest id in bytes of JSON text.
pub(super) const ID_BYTES_MAX: usize = 1024;

/// A request's id: the JSON text of a string or an integer, echoed byte for byte. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// The id's JSON text, ready to be echoed.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// An id from JSON text, if that may be one. U+2028 and U+2029 are escaped.
    pub(super) fn from_json(raw: &str) -> Option<Self> {
        if raw.len() > ID_BYTES_MAX || !(raw.starts_with('"') || is_integer(raw)) {
            return None;
        }
        Some(Self::verbatim(raw))
    }

    /// An id that is refused but echoed: a number's text.
    pub(super) fn echo_of(raw: &str) -> Option<Self> {
        let is_number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        (is_number && raw.len() <= ID_BYTES_MAX).then(|| Self::verbatim(raw))
    }

    fn verbatim(raw: &str) -> Self {
        if raw.contains(['\u{2028}', '\u{2029}']) {
            return Self(raw.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029").into());
        }
        Self(Arc::from(raw))
    }
}

fn is_integer(raw: &str) -> bool {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
