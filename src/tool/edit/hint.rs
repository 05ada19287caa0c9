//! What helps a model whose text was not found: how the text differs from what the file holds. Pure, linear in the file.

use super::matching::unify;

/// A sentence that says what to change in the call.
pub(super) fn hint(text: &str, old: &str) -> String {
    let (text, old) = (unify(text), unify(old));
    if let Some(bare) = without_line_numbers(&old)
        && text.contains(&bare)
    {
        return "It begins its lines with the numbers that read shows; leave them out.".to_owned();
    }
    if let Some(line) = line_but_for_whitespace(&text, &old) {
        return format!(
            "The same text with other whitespace is at line {line}; copy it from there with its indentation."
        );
    }
    let unescaped = old.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"");
    if unescaped != *old && text.contains(&unescaped) {
        return "It is escaped once too often; the file has the plain characters.".to_owned();
    }
    if let Some((first, differs)) = line_that_differs(&text, &old) {
        return format!(
            "Its first line is at line {first}, but line {differs} differs from it; read the file there."
        );
    }
    "Read the file and copy the text exactly as it stands there, without line numbers.".to_owned()
}

/// The text without `12: ` at the start of each line, if all lines have it.
fn without_line_numbers(old: &str) -> Option<String> {
    let mut bare = Vec::new();
    for line in old.strip_suffix('\n').unwrap_or(old).split('\n') {
        let (number, rest) = line.split_once(':')?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        bare.push(rest.strip_prefix(' ').unwrap_or(rest));
    }
    let bare = bare.join("\n");
    (!bare.trim().is_empty()).then_some(bare)
}

/// The line at which a text begins that is the same when runs of whitespace are one blank.
fn line_but_for_whitespace(text: &str, old: &str) -> Option<usize> {
    let old: Vec<String> = old.lines().map(squeezed).collect();
    let old = old.join("\n");
    let old = old.trim_matches('\n');
    if old.is_empty() {
        return None;
    }
    let mut all = String::with_capacity(text.len());
    for line in text.lines() {
        all.push_str(&squeezed(line));
        all.push('\n');
    }
    let at = memchr::memmem::find(all.as_bytes(), old.as_bytes())?;
    Some(1 + newlines(&all[..at]))
}

fn squeezed(line: &str) -> String {
    let mut squeezed = String::with_capacity(line.len());
    for word in line.split_whitespace() {
        if !squeezed.is_empty() {
            squeezed.push(' ');
        }
        squeezed.push_str(word);
    }
    squeezed
}

/// Where the first of several lines stands alone in the file, and the line at which the file goes on differently.
fn line_that_differs(text: &str, old: &str) -> Option<(usize, usize)> {
    let mut wanted = old.lines();
    let first = wanted.next().filter(|line| !line.trim().is_empty())?;
    wanted.clone().next()?;
    let at = text.lines().position(|line| line == first)?;
    let same = text.lines().skip(at + 1).zip(wanted).take_while(|(line, wanted)| line == wanted).count();
    Some((at + 1, at + 2 + same))
}

fn newlines(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "fn main() {\n    let a = 1;\n\tlet b = \"x\";\n    call(a,  b);\n}\n";

    #[track_caller]
    fn check(old: &str, expected: &str) {
        let hint = hint(TEXT, old);
        assert!(hint.starts_with(expected), "{hint}");
    }

    #[test]
    fn what_differs_is_told() {
        check("2:     let a = 1;\n3: \tlet b", "It begins its lines with the numbers");
        check("let a = 1;\n    let b = \"x\";", "The same text with other whitespace is at line 2;");
        check("call(a, b);", "The same text with other whitespace is at line 4;");
        check("let b = \\\"x\\\";", "It is escaped once too often");
        check("    let a = 1;\\n\tlet b", "It is escaped once too often");
        check(
            "    let a = 1;\n\tlet b = \"x\";\n    call(b);",
            "Its first line is at line 2, but line 4 differs",
        );
        check("no such text", "Read the file and copy");
        check("  \n ", "Read the file and copy");
        check("12:", "Read the file and copy");
    }

    proptest! {
        #[test]
        fn a_hint_is_found_for_any_text(text in "[ab1: \t\r\n\\\\\"那]{0,60}", old in "[ab1: \t\r\n\\\\\"那]{0,20}") {
            prop_assert!(!hint(&text, &old).is_empty());
        }
    }
}
