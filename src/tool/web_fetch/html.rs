//! HTML as readable text: words, headings, lists, links and preformatted blocks. One pass over the text without recursion:
//! a page may be anything, and it is never more than slow to read.

mod entity;

use std::fmt::Write as _;

/// Elements whose content nobody reads.
const HIDDEN: [&str; 9] =
    ["script", "style", "noscript", "template", "svg", "iframe", "object", "textarea", "select"];
/// Elements that stand on lines of their own.
const BLOCKS: [&str; 31] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "html",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "title",
    "tr",
    "ul",
    "caption",
];

/// The text of a page.
pub(super) fn text(html: &str) -> String {
    let mut reader = Reader { rest: html, no_more_tags: false };
    let mut writer = Writer::default();
    while let Some(piece) = reader.next() {
        match piece {
            Piece::Text(text) => writer.words(&entity::decoded(text)),
            Piece::Open { name, attributes } => writer.open(&name, attributes),
            Piece::Close(name) => writer.close(&name),
        }
    }
    writer.finish()
}

/// A piece of a page.
enum Piece<'a> {
    Text(&'a str),
    Open { name: String, attributes: &'a str },
    Close(String),
}

/// Splits a page. Every call takes something away from the rest.
struct Reader<'a> {
    rest: &'a str,
    /// No tag ends after here, which is looked for once.
    no_more_tags: bool,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Piece<'a>> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            if self.no_more_tags || !self.rest.starts_with('<') {
                return Some(Piece::Text(self.take_text(0)));
            }
            if let Some(comment) = self.rest.strip_prefix("<!--") {
                self.rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
                continue;
            }
            let after = self.rest.as_bytes().get(1).copied().unwrap_or_default();
            if !(after.is_ascii_alphabetic() || matches!(after, b'/' | b'!' | b'?')) {
                // A bare "<" is a character.
                return Some(Piece::Text(self.take_text(1)));
            }
            let Some(end) = self.rest.find('>') else {
                self.no_more_tags = true;
                continue;
            };
            let tag = &self.rest[1..end];
            self.rest = &self.rest[end + 1..];
            if let Some(piece) = self.tag(tag) {
                return Some(piece);
            }
        }
    }

    /// The text up to the next "<", at least `least` bytes.
    fn take_text(&mut self, least: usize) -> &'a str {
        let end = if self.no_more_tags { None } else { self.rest[least..].find('<').map(|at| at + least) };
        let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        text
    }

    fn tag(&mut self, tag: &'a str) -> Option<Piece<'a>> {
        let (closes, tag) = tag.strip_prefix('/').map_or((false, tag), |tag| (true, tag));
        let length = tag.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let name = tag[..length].to_ascii_lowercase();
        if name.is_empty() {
            // A declaration.
            return None;
        }
        if closes {
            return Some(Piece::Close(name));
        }
        let attributes = &tag[length..];
        if HIDDEN.contains(&name.as_str()) && !attributes.trim_end().ends_with('/') {
            self.skip(&name);
            return None;
        }
        Some(Piece::Open { name, attributes })
    }

    /// Passes over all up to the end of an element.
    fn skip(&mut self, name: &str) {
        let mut rest = self.rest;
        while let Some(at) = rest.find("</") {
            rest = &rest[at + 2..];
            let is_end = rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
            if is_end {
                self.rest = rest.find('>').map_or("", |end| &rest[end + 1..]);
                return;
            }
        }
        self.rest = "";
    }
}

/// The value of an attribute.
fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = attributes;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        let length =
            rest.find(|c: char| c.is_ascii_whitespace() || c == '=' || c == '/').unwrap_or(rest.len());
        if length == 0 && !rest.starts_with('=') {
            return None;
        }
        let (found, after) = rest.split_at(length);
        let Some(value) = after.trim_start().strip_prefix('=') else {
            rest = after;
            continue;
        };
        let value = value.trim_start();
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, after) = match quote {
            Some(quote) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            None => value.split_at(value.find(|c: char| c.is_ascii_whitespace()).unwrap_or(value.len())),
        };
        if found.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
}

/// Puts words on lines: spaces are joined, blocks begin lines, and there is never more than one empty line.
#[derive(Default)]
struct Writer {
    out: String,
    /// Line ends that are due before the next word.
    breaks: usize,
    space: bool,
    preformatted: usize,
    /// Where the open link leads, and where its text begins.
    link: Option<(String, usize)>,
}

impl Writer {
    fn words(&mut self, text: &str) {
        if self.preformatted > 0 {
            self.flush();
            self.out.push_str(text);
            return;
        }
        for (at, word) in text.split(char::is_whitespace).enumerate() {
            self.space |= at > 0;
            if !word.is_empty() {
                self.flush();
                self.out.push_str(word);
            }
        }
    }

    /// Writes the space or the line ends that are due.
    fn flush(&mut self) {
        let (breaks, space) = (std::mem::take(&mut self.breaks), std::mem::take(&mut self.space));
        if self.out.is_empty() {
            return;
        }
        if breaks > 0 {
            let there = self.out.bytes().rev().take_while(|byte| *byte == b'\n').count();
            (there..breaks).for_each(|_| self.out.push('\n'));
        } else if space && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
    }

    fn line(&mut self, breaks: usize) {
        self.breaks = self.breaks.max(breaks);
        self.space = false;
    }

    fn open(&mut self, name: &str, attributes: &str) {
        match name {
            "br" => self.line(1),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.line(2);
                self.flush();
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.out.push_str(&"#".repeat(level));
                self.space = true;
            }
            "li" => {
                self.line(1);
                self.flush();
                self.out.push('-');
                self.space = true;
            }
            "td" | "th" => self.space = true,
            "pre" => {
                self.line(2);
                self.preformatted += 1;
            }
            "a" => {
                let href = attribute(attributes, "href").map(|href| entity::decoded(href).into_owned());
                let leads = href.filter(|href| !href.starts_with('#') && !href.contains(char::is_whitespace));
                self.link = leads.map(|href| (href, self.out.len()));
            }
            "img" => {
                if let Some(alt) = attribute(attributes, "alt").filter(|alt| !alt.trim().is_empty()) {
                    self.words(&format!(" [{}] ", entity::decoded(alt)));
                }
            }
            "p" | "table" | "ul" | "ol" | "blockquote" | "title" => self.line(2),
            _ if BLOCKS.contains(&name) => self.line(1),
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "pre" => {
                self.preformatted = self.preformatted.saturating_sub(1);
                self.line(2);
            }
            "a" => {
                if let Some((href, from)) = self.link.take().filter(|(_, from)| self.out.len() > *from) {
                    let said = self.out[from..].trim();
                    if !said.is_empty() && said != href {
                        let _ = write!(self.out, " ({href})");
                    }
                }
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "p" | "table" | "ul" | "ol" | "blockquote"
            | "title" => {
                self.line(2);
            }
            _ if BLOCKS.contains(&name) => self.line(1),
            _ => {}
        }
    }

    fn finish(mut self) -> String {
        self.out.truncate(self.out.trim_end().len());
        self.out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(html: &str, expected: &str) {
        assert_eq!(text(html), expected);
    }

    #[test]
    fn words_headings_lists_and_links_are_kept() {
        check(
            "<html><head><title>The\n page</title><style>p{}</style></head><body>\
             <h2>First  part</h2><p>Some <b>bold</b>\n words&nbsp;&amp; <a href=\"/more?a=1&amp;b=2\">more</a>.</p>\
             <ul><li>one<li>two</li></ul>line<br>next<script>if (a < b) {}</script></body></html>",
            "The page\n\n## First part\n\nSome bold words & more (/more?a=1&b=2).\n\n- one\n- two\n\nline\nnext",
        );
        check("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc");
        check("<p>x</p><pre>  a\n    b &lt;c&gt;</pre><p>y", "x\n\n  a\n    b <c>\n\ny");
        check("<a href='#here'>here</a> <a href=https://x.y/>https://x.y/</a>", "here https://x.y/");
        check("a<img src=x alt=\"a dot\">b", "a [a dot] b");
    }

    #[test]
    fn what_is_no_html_does_no_harm() {
        check("", "");
        check("1 < 2 and 3 > 2", "1 < 2 and 3 > 2");
        check("a <b", "a <b");
        check("<!-- never ends", "");
        check("<script>never ends", "");
        check("<p <p>a", "a");
        check("<ScRiPt>x</sCrIpT >y", "y");
        check("a<!doctype html><?xml?>b", "ab");
        check("é<p>ü</é>", "é\n\nü");
        check("<a =>x</a>", "x");
    }

    #[test]
    fn what_repeats_a_million_times_is_read_in_one_pass() {
        for piece in
            ["<", "<a", "<a ", "</", "<!--", "<p>", "<a href=x>", "&", "&#", "<svg></", "<pre>", "< >"]
        {
            let page = piece.repeat(1 << 20);
            assert!(text(&page).len() <= page.len() + 16);
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_text(html in "(<[a-z/!\"'= ]{0,9}>?|&[a-z#0-9]{0,5};?|[a-zé \n]{0,5}){0,40}") {
            let text = text(&html);
            prop_assert!(!text.starts_with('\n') || html.contains("pre"));
        }
    }
}
