//! Character references: `&amp;`, `&#233;`, `&#xE9;`.

use std::borrow::Cow;

/// The longest reference between `&` and `;`, in bytes.
const NAME_BYTES_MAX: usize = 10;

/// Those that pages have. What is not here stays as it is written.
const NAMED: [(&str, &str); 32] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("ensp", " "),
    ("emsp", " "),
    ("thinsp", " "),
    ("shy", ""),
    ("zwnj", ""),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("hellip", "…"),
    ("mdash", "—"),
    ("ndash", "–"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("bull", "•"),
    ("middot", "·"),
    ("times", "×"),
    ("rarr", "→"),
    ("larr", "←"),
    ("deg", "°"),
    ("euro", "€"),
    ("pound", "£"),
    ("sect", "§"),
];

/// A text with its references replaced.
pub(super) fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let window = &rest[1..rest.floor_char_boundary(NAME_BYTES_MAX + 2)];
        let found = window.find(';').and_then(|end| Some((end, character(&window[..end])?)));
        let taken = if let Some((end, character)) = &found {
            out.push_str(character);
            end + 2
        } else {
            out.push('&');
            1
        };
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn character(name: &str) -> Option<Cow<'static, str>> {
    let Some(number) = name.strip_prefix('#') else {
        return NAMED.iter().find(|(known, _)| *known == name).map(|(_, text)| Cow::Borrowed(*text));
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    let character = char::from_u32(code).filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))?;
    Some(Cow::Owned(character.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_what_is_none_stays() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a &lt;b&gt; &amp;amp;", "a <b> &amp;"),
            ("&#233;&#xE9;&#x1F980;", "éé🦀"),
            ("&unknown; & &; &#; &#xD800; &#27; &amp", "&unknown; & &; &#; &#xD800; &#27; &amp"),
            ("R&D; é&éééééééé;", "R&D; é&éééééééé;"),
        ] {
            assert_eq!(decoded(text), expected);
        }
    }
}
