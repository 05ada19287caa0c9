//! The one pass over a line before any JSON parser sees it: what raw values and derived structs don't check.

use std::borrow::Cow;

/// Arrays and objects nested deeper than this are no JSON for us.
pub(super) const DEPTH_MAX: usize = 128;

/// Why a line is not even looked at as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanError {
    /// Not UTF-8.
    Utf8,
    /// Nested deeper than [`DEPTH_MAX`].
    Depth,
}

/// Checks encoding and depth, and replaces escapes of lone surrogates by that of U+FFFD.
pub(super) fn scan(line: &[u8]) -> Result<Cow<'_, str>, ScanError> {
    let whole = std::str::from_utf8(line).map_err(|_| ScanError::Utf8)?;
    let bytes = whole.as_bytes();
    let (mut depth, mut at, mut lone) = (0_usize, 0, Vec::new());
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = skip_string(bytes, at + 1, &mut lone),
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(ScanError::Depth);
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            _ => at += 1,
        }
    }
    if lone.is_empty() {
        return Ok(Cow::Borrowed(whole));
    }
    let mut mended = whole.to_owned();
    for at in lone {
        mended.replace_range(at..at + 6, "\\ufffd");
    }
    Ok(Cow::Owned(mended))
}

/// Walks a string from behind its opening quote; returns the place behind its end. Notes lone surrogate escapes.
fn skip_string(bytes: &[u8], mut at: usize, lone: &mut Vec<usize>) -> usize {
    loop {
        let Some(stop) = memchr::memchr2(b'"', b'\\', &bytes[at..]).map(|found| at + found) else {
            return bytes.len();
        };
        if bytes[stop] == b'"' {
            return stop + 1;
        }
        at = match surrogate(bytes, stop) {
            Some(unit) if unit < 0xDC00 && surrogate(bytes, stop + 6).is_some_and(|low| low >= 0xDC00) => {
                stop + 12
            }
            Some(_) => {
                lone.push(stop);
                stop + 6
            }
            None => (stop + 2).min(bytes.len()),
        };
    }
}

/// The surrogate that an escape at `at` stands for, if it is one.
fn surrogate(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (0xD800..0xE000).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: &str) {
        assert_eq!(scan(input.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        check(r#"{"a":"\ud83d\ude42"}"#, r#"{"a":"\ud83d\ude42"}"#);
        check(r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#);
        check(r#"{"a":"x\ude42y"}"#, r#"{"a":"x\ufffdy"}"#);
        check(r#"{"a":"\ud83d\ud83d\ude42"}"#, r#"{"a":"\ufffd\ud83d\ude42"}"#);
        check(r#"{"a":"\\ud83d"}"#, r#"{"a":"\\ud83d"}"#);
        check(r#"{"a":"\D83D"}"#, r#"{"a":"\D83D"}"#);
        check(r#"{"a":"\uD99C"}"#, r#"{"a":"\ufffd"}"#);
    }

    #[test]
    fn depth_counts_outside_of_strings() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(scan(nested(DEPTH_MAX).as_bytes()).is_ok());
        assert_eq!(scan(nested(DEPTH_MAX + 1).as_bytes()), Err(ScanError::Depth));
        assert!(scan(format!("{{\"a\":\"{}\"}}", "[".repeat(1000)).as_bytes()).is_ok());
    }

    #[test]
    fn broken_ends_do_not_panic() {
        for text in ["\"", "\"\\", "\"\\u", "\"\\ud8", "\"\\ud800", "\"\\ud800\\", "\"\\ud800\\u"] {
            let _ = scan(text.as_bytes());
        }
        assert_eq!(scan(b"\xff"), Err(ScanError::Utf8));
    }
}
