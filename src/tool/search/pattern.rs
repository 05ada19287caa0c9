//! Glob patterns as people write them: a name alone matches at any depth, a path is anchored.

use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// The longest pattern, in bytes.
pub(in crate::tool) const PATTERN_BYTES_MAX: usize = 4 * 1024;

/// A pattern that is ready to match.
#[derive(Debug)]
pub(in crate::tool) struct Pattern {
    matcher: GlobMatcher,
    /// Whether it names something hidden, so that hidden files are meant.
    pub(in crate::tool) hidden: bool,
}

impl Pattern {
    /// Compiles a pattern. The error is a sentence's end.
    pub(in crate::tool) fn new(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("it is empty".to_owned());
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("it has more than {PATTERN_BYTES_MAX} bytes"));
        }
        if text.starts_with('!') {
            return Err("negated patterns (\"!…\") are not supported".to_owned());
        }
        let mut path = text;
        while let Some(rest) = path.strip_prefix("./") {
            path = rest.trim_start_matches('/');
        }
        let hidden = names_hidden(path);
        let whole = match (path.trim_end_matches('/').contains('/'), path.ends_with('/')) {
            _ if path.is_empty() => "**".to_owned(),
            (true, false) => path.to_owned(),
            (true, true) => format!("{path}**"),
            (false, false) => format!("**/{path}"),
            (false, true) => format!("**/{path}**"),
        };
        let glob = GlobBuilder::new(whole.trim_start_matches('/'))
            .literal_separator(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| error.kind().to_string())?;
        Ok(Self { matcher: glob.compile_matcher(), hidden })
    }

    /// Whether a path matches, seen from the search's root or from the working directory: people mean either.
    pub(in crate::tool) fn matches_below(&self, path: &Path, root: &Path, cwd: &Path) -> bool {
        let below = |top: &Path| path.strip_prefix(top).is_ok_and(|relative| self.matches(relative));
        below(root) || (root != cwd && below(cwd))
    }

    fn matches(&self, relative: &Path) -> bool {
        self.matcher.is_match(relative)
    }
}

/// Whether some component begins with a dot, also inside of braces.
fn names_hidden(path: &str) -> bool {
    path.split(['/', '{', ',']).any(|part| part.starts_with('.') && !matches!(part, "." | ".."))
}

/// Splits a pattern that is absolute or begins with `..` into the directory where it begins and the rest.
///
/// # Errors
/// `..` after a wildcard: there is no one directory that it means.
pub(in crate::tool) fn split_base(text: &str) -> Result<Option<(PathBuf, String)>, String> {
    let path = Path::new(text);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if !path.is_absolute() && !climbs {
        return Ok(None);
    }
    let wildcard = text.find(['*', '?', '[', '{', '\\']).unwrap_or(text.len());
    let (base, rest) = match text[..wildcard].rfind('/') {
        Some(slash) => (&text[..=slash], &text[slash + 1..]),
        None => ("", text),
    };
    if Path::new(rest).components().any(|part| part == Component::ParentDir) {
        return Err("\"..\" can only be at its start".to_owned());
    }
    let rest = if rest.is_empty() { "**" } else { rest };
    // The pattern was a path, so that a name at its end is anchored.
    Ok(Some((PathBuf::from(base), format!("/{rest}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let compiled = Pattern::new(pattern).unwrap();
        for path in matching {
            assert!(compiled.matches(Path::new(path)), "{pattern} on {path}");
        }
        for path in others {
            assert!(!compiled.matches(Path::new(path)), "{pattern} on {path}");
        }
    }

    #[test]
    fn a_name_matches_at_any_depth_and_a_path_from_the_root() {
        check("*.rs", &["a.rs", "src/a.rs", "src/b/c.rs"], &["a.rsx", "rs"]);
        check("src/*.rs", &["src/a.rs"], &["a.rs", "src/b/c.rs", "x/src/a.rs"]);
        check("/*.rs", &["a.rs"], &["src/a.rs"]);
        check("./src/*.rs", &["src/a.rs"], &["a.rs"]);
        check("src/**/*.rs", &["src/a.rs", "src/b/c/d.rs"], &["a.rs"]);
        check("**/*.{ts,tsx}", &["a.ts", "x/y.tsx"], &["a.js"]);
        check("src/", &["src/a", "src/b/c"], &["a"]);
        check("**", &["a", "b/c"], &[]);
        check("[ab].txt", &["a.txt", "x/b.txt"], &["c.txt"]);
    }

    #[test]
    fn a_dot_at_the_start_of_a_name_means_hidden_files() {
        for pattern in [".env", "**/.env*", ".github/**/*.yml", "{.a,b}", "x/.*"] {
            assert!(Pattern::new(pattern).unwrap().hidden, "{pattern}");
        }
        for pattern in ["*.rs", "./a", "a.b/c.d", "**", "*.{rs,toml}"] {
            assert!(!Pattern::new(pattern).unwrap().hidden, "{pattern}");
        }
    }

    #[test]
    fn what_can_not_be_a_pattern_is_refused_with_the_reason() {
        for (pattern, reason) in [
            ("", "it is empty"),
            ("!a", "negated"),
            ("a[", "unclosed character class"),
            ("{a,b", "unclosed alternate group"),
            ("a}", "unopened alternate group"),
        ] {
            let error = Pattern::new(pattern).unwrap_err();
            assert!(error.contains(reason), "{pattern}: {error}");
        }
        assert!(Pattern::new(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn a_pattern_that_is_absolute_or_climbs_says_where_it_begins() {
        let split =
            |text: &str| split_base(text).unwrap().map(|(base, rest)| (base.display().to_string(), rest));
        assert_eq!(split("src/*.rs"), None);
        assert_eq!(split("/w/src/*.rs"), Some(("/w/src/".to_owned(), "/*.rs".to_owned())));
        assert_eq!(split("/w/src/"), Some(("/w/src/".to_owned(), "/**".to_owned())));
        assert_eq!(split("/*.rs"), Some(("/".to_owned(), "/*.rs".to_owned())));
        assert_eq!(split("../x/**/a"), Some(("../x/".to_owned(), "/**/a".to_owned())));
        assert!(split_base("*/../a").is_err());
    }
}
