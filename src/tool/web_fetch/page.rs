//! From a response's bytes to text, or to what they are instead.

use std::borrow::Cow;

use super::client::Fetched;
use super::html;
use crate::tool::kind;

/// The start by which HTML without a type is known.
const SNIFF_BYTES: usize = 1024;

/// The page's text. The error is what it is instead, in words.
pub(super) fn text(fetched: &Fetched) -> Result<String, &'static str> {
    let body = &fetched.body[..];
    if let Some(kind) = kind::binary(&body[..body.len().min(kind::SAMPLE_BYTES)]) {
        return Err(kind);
    }
    let text = decoded(body, &fetched.content_type);
    Ok(if is_html(&fetched.content_type, &text) { html::text(&text) } else { text.into_owned() })
}

/// The text of bytes: UTF-8, or the one other encoding that pages without it mostly have.
fn decoded<'a>(body: &'a [u8], content_type: &str) -> Cow<'a, str> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let lower = content_type.to_ascii_lowercase();
    let charset = lower.split("charset=").nth(1).map(|rest| rest.trim_matches(['"', '\'', ' ', ';']));
    let latin = matches!(charset, Some("iso-8859-1" | "latin1" | "windows-1252" | "us-ascii"));
    if latin && std::str::from_utf8(body).is_err() {
        return Cow::Owned(body.iter().map(|byte| char::from(*byte)).collect());
    }
    String::from_utf8_lossy(body)
}

fn is_html(content_type: &str, text: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media_type.is_empty() {
        let start = &text[..text.floor_char_boundary(SNIFF_BYTES)];
        let start = start.trim_start().to_ascii_lowercase();
        return start.starts_with("<!doctype html") || start.starts_with("<html");
    }
    matches!(media_type.as_str(), "text/html" | "application/xhtml+xml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, body: &[u8], expected: Result<&str, &str>) {
        let fetched = Fetched {
            url: String::new(),
            status: 200,
            content_type: content_type.to_owned(),
            body: body.to_vec(),
            truncated: false,
        };
        assert_eq!(text(&fetched).as_deref().map_err(|kind| *kind), expected);
    }

    #[test]
    fn html_is_reduced_and_other_text_stays_as_it_is() {
        check("text/html; charset=utf-8", b"<p>a &amp; b</p>", Ok("a & b"));
        check("", b"\n<!DOCTYPE html><p>a</p>", Ok("a"));
        check("text/plain", b"<p>a</p>", Ok("<p>a</p>"));
        check("application/json", br#"{"a": 1}"#, Ok(r#"{"a": 1}"#));
        check("application/octet-stream", b"plain after all", Ok("plain after all"));
        check("text/plain; charset=ISO-8859-1", b"gr\xFCn", Ok("grün"));
        check("text/plain", b"\xEF\xBB\xBFgr\xC3\xBCn", Ok("grün"));
        check("text/plain", b"gr\xFCn", Ok("gr\u{FFFD}n"));
    }

    #[test]
    fn what_is_no_text_is_refused_by_kind_whatever_it_is_called() {
        check("text/html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Err("a PNG image"));
        check("text/plain", b"a\0b", Err("binary data"));
        check("application/pdf", b"%PDF-1.7\n%\xE2\xE3\xCF\xD3", Err("a PDF document"));
    }
}
