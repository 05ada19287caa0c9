//! JSON as models write it: borrowed where possible, raw where it is hot, and lenient where servers differ.
//!
//! Text of deltas stays a raw value until it is written into the one buffer that it is bound for, so a delta allocates
//! nothing. Lone surrogates become U+FFFD on the way in, since no API takes them back.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// A text that borrows from the input unless it holds escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A list that is short nearly always: the first item needs no allocation.
#[derive(Clone, Debug)]
pub(super) struct Few<T> {
    pub(super) first: Option<T>,
    pub(super) rest: Vec<T>,
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

/// Items of a list that are kept; more than any server sends at once.
const ITEMS_MAX: usize = 256;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FewVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let first = items.next_element()?;
                let mut rest = Vec::new();
                while rest.len() < ITEMS_MAX {
                    let Some(item) = items.next_element()? else { return Ok(Few { first, rest }) };
                    rest.push(item);
                }
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Few { first, rest })
            }
        }
        deserializer.deserialize_seq(FewVisitor(std::marker::PhantomData))
    }
}

/// Appends the text of a raw JSON string; `false` when the raw value is no string.
pub(super) fn unescape(raw: &str, out: &mut String) -> bool {
    let Some(mut rest) = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    while let Some(at) = memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (c, taken) = match rest.as_bytes().get(1) {
            Some(b'n') => ('\n', 2),
            Some(b't') => ('\t', 2),
            Some(b'r') => ('\r', 2),
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(&c @ (b'"' | b'\\' | b'/')) => (char::from(c), 2),
            Some(b'u') => match unicode_escape(rest) {
                Escape::Char(c, taken) => (c, taken),
                Escape::Lone | Escape::LoneHigh => (char::REPLACEMENT_CHARACTER, 6),
                Escape::Open | Escape::Invalid => return false,
            },
            Some(_) | None => return false,
        };
        out.push(c);
        rest = &rest[taken..];
    }
    out.push_str(rest);
    true
}

/// What a `\u` at the start of a text is.
enum Escape {
    /// A character, and the bytes that spell it.
    Char(char, usize),
    /// Half of a pair, without its other half: 6 bytes.
    Lone,
    /// The first half of a pair; what follows does not tell yet whether the second comes.
    LoneHigh,
    /// Cut before its end.
    Open,
    /// No escape.
    Invalid,
}

fn unicode_escape(text: &str) -> Escape {
    let unit = |text: &str| text.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let Some(first) = unit(text) else {
        let digits = text.as_bytes().get(2..).unwrap_or_default();
        let cut = digits.len() < 4 && digits.iter().all(u8::is_ascii_hexdigit);
        return if cut { Escape::Open } else { Escape::Invalid };
    };
    if let Some(c) = char::from_u32(first) {
        return Escape::Char(c, 6);
    }
    if first >= 0xDC00 {
        return Escape::Lone;
    }
    let rest = &text[6..];
    if rest.starts_with("\\u") && rest.len() >= 6 {
        return match unit(rest) {
            Some(second @ 0xDC00..=0xDFFF) => {
                let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                char::from_u32(code).map_or(Escape::Lone, |c| Escape::Char(c, 12))
            }
            Some(_) | None => Escape::Lone,
        };
    }
    if rest.is_empty() || rest == "\\" || rest.starts_with("\\u") { Escape::LoneHigh } else { Escape::Lone }
}

/// Copies JSON text in fragments and replaces the escapes of lone surrogates. Everything else stays byte for byte.
/// At most one escape pair is held back between two fragments.
#[derive(Debug, Default)]
pub(super) struct SurrogateFilter {
    held: String,
}

impl SurrogateFilter {
    /// Copies a fragment.
    pub(super) fn push(&mut self, fragment: &str, out: &mut String) {
        if self.held.is_empty() {
            let copied = copy(fragment, out);
            self.held.push_str(&fragment[copied..]);
        } else {
            self.held.push_str(fragment);
            let copied = copy(&self.held, out);
            self.held.drain(..copied);
        }
    }

    /// Copies what was held back.
    pub(super) fn finish(&mut self, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        match unicode_escape(&held) {
            Escape::LoneHigh => {
                out.push_str("\\ufffd");
                out.push_str(&held[6..]);
            }
            Escape::Char(..) | Escape::Lone | Escape::Open | Escape::Invalid => out.push_str(&held),
        }
    }
}

/// Copies until the text may not end here; returns how far.
fn copy(text: &str, out: &mut String) -> usize {
    let mut from = 0;
    let mut at = 0;
    while let Some(found) = memchr(b'\\', &text.as_bytes()[at..]) {
        at += found;
        let rest = &text[at..];
        match rest.as_bytes().get(1) {
            Some(b'u') => match unicode_escape(rest) {
                Escape::Char(_, taken) => at += taken,
                Escape::Lone => {
                    out.push_str(&text[from..at]);
                    out.push_str("\\ufffd");
                    at += 6;
                    from = at;
                }
                Escape::Invalid => at += 2,
                Escape::LoneHigh | Escape::Open => break,
            },
            Some(byte) if byte.is_ascii() => at += 2,
            Some(_) => at += 1,
            None => break,
        }
    }
    let end = if memchr(b'\\', &text.as_bytes()[at..]).is_some() { at } else { text.len() };
    out.push_str(&text[from..end]);
    end
}

/// Makes JSON readable that no strict parser takes: bytes that are no UTF-8 and lone surrogates become U+FFFD.
pub(super) fn repaired(data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len());
    let mut filter = SurrogateFilter::default();
    filter.push(&String::from_utf8_lossy(data), &mut out);
    filter.finish(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(raw: &str) -> Option<String> {
        let mut out = String::new();
        unescape(raw, &mut out).then_some(out)
    }

    fn filtered(fragments: &[&str]) -> String {
        let mut out = String::new();
        let mut filter = SurrogateFilter::default();
        for fragment in fragments {
            filter.push(fragment, &mut out);
        }
        filter.finish(&mut out);
        out
    }

    #[test]
    fn a_lone_surrogate_becomes_the_replacement_character() {
        for (raw, expected) in [
            (r#""a\ud99cb""#, "a\u{fffd}b"),
            (r#""\udc00""#, "\u{fffd}"),
            (r#""\ud83d\ud83d\ude42""#, "\u{fffd}🙂"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
        ] {
            assert_eq!(text_of(raw).as_deref(), Some(expected), "{raw}");
        }
    }

    #[test]
    fn what_is_no_string_has_no_text() {
        for raw in ["{}", "[]", "1", "\""] {
            assert_eq!(text_of(raw), None, "{raw}");
        }
    }

    #[test]
    fn arguments_keep_every_byte_but_lone_surrogates() {
        let cases = [
            (r#"{"a":"\ud99c"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"a":"\\ud99c"}"#, r#"{"a":"\\ud99c"}"#),
            (r#"{"a":"\ud83d\ude42\u00E9\n那"}"#, r#"{"a":"\ud83d\ude42\u00E9\n那"}"#),
            (r#"{"a":"\ud83d\ud83d\ude42"}"#, r#"{"a":"\ufffd\ud83d\ude42"}"#),
            (r#"{"a":"\ud83d"#, r#"{"a":"\ufffd"#),
            (r#"{"a":"\ud83d\u12"#, r#"{"a":"\ufffd\u12"#),
            (r#"{"a":"\u12"#, r#"{"a":"\u12"#),
            (r#"{"a":"\"#, r#"{"a":"\"#),
            (r"\那\uzz", r"\那\uzz"),
        ];
        for (input, expected) in cases {
            assert_eq!(filtered(&[input]), expected, "{input}");
            let chars: Vec<String> = input.chars().map(String::from).collect();
            let fragments: Vec<&str> = chars.iter().map(String::as_str).collect();
            assert_eq!(filtered(&fragments), expected, "{input} by characters");
        }
    }

    #[test]
    fn what_no_parser_takes_is_made_readable() {
        let repaired = repaired(b"{\"a\":\"\\ud800\xff\"}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&repaired).unwrap()["a"], "\u{fffd}\u{fffd}");
    }

    proptest! {
        #[test]
        fn texts_are_read_as_serde_reads_them(text in ".*") {
            let raw = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(text_of(&raw), Some(text));
        }

        #[test]
        fn escaped_texts_are_read_as_serde_reads_them(text in ".*") {
            let mut raw = String::from("\"");
            for unit in text.encode_utf16() {
                let _ = std::fmt::Write::write_fmt(&mut raw, format_args!("\\u{unit:04x}"));
            }
            raw.push('"');
            prop_assert_eq!(text_of(&raw), Some(text));
        }
    }
}
