//! The prompt's text: from the arguments, from stdin, or both. stdin is read only when that was asked for.

use std::io::{IsTerminal, Read};

use super::super::Failure;
use super::PromptArgs;

/// The longest text taken from stdin, in bytes; the daemon takes less.
const STDIN_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Gathers the text.
///
/// # Errors
/// Wrong usage: no text, or one that can't be read.
pub(super) fn gather(args: &PromptArgs) -> Result<String, Failure> {
    let said = args.text.join(" ");
    let text = if said == "-" || (said.is_empty() && args.stdin) {
        stdin()?
    } else if said.is_empty() {
        if std::io::stdin().is_terminal() {
            return Err(no_text("no text was given"));
        }
        stdin()?
    } else if args.stdin {
        join(&said, &stdin()?)
    } else {
        said
    };
    if text.trim().is_empty() {
        return Err(no_text("the prompt is empty"));
    }
    Ok(text)
}

fn no_text(why: &str) -> Failure {
    Failure::usage(why).with_help("dshd prompt \"TEXT\", or pipe it: dshd prompt < FILE")
}

fn stdin() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(STDIN_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("cannot read stdin: {error}")))?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        return Err(
            Failure::usage("stdin has more than 16 MiB").with_help("name the file in the prompt instead")
        );
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage("stdin is not UTF-8 text").with_help("name the file in the prompt instead")
    })
}

/// The text, then stdin in a fence longer than any in it.
fn join(text: &str, stdin: &str) -> String {
    let longest = stdin.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if stdin.ends_with('\n') { "" } else { "\n" };
    format!("{text}\n\n{fence}\n{stdin}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stdin_is_fenced_by_more_than_it_has_itself() {
        assert_eq!(join("fix", "a\n"), "fix\n\n```\na\n```");
        assert_eq!(join("fix", "```x```"), "fix\n\n````\n```x```\n````");
    }
}
