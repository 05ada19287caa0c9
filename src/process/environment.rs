//! The variables that children see: an allow-list, so that no key or token of the daemon's reaches them.

use std::ffi::{OsStr, OsString};

const ALLOWED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ", "TMPDIR"];
const ALLOWED_PREFIX: &str = "LC_";
/// For a daemon that was started without PATH.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// Those of `all` that children may see: the allow-list and `extra` names (`tools.env`).
pub fn allowed(
    all: impl IntoIterator<Item = (OsString, OsString)>,
    extra: &[String],
) -> Vec<(OsString, OsString)> {
    let may_pass = |name: &OsStr| {
        name.to_str().is_some_and(|name| {
            ALLOWED.contains(&name)
                || name.starts_with(ALLOWED_PREFIX)
                || extra.iter().any(|extra| extra == name)
        })
    };
    let mut passed: Vec<_> = all.into_iter().filter(|(name, _)| may_pass(name)).collect();
    if !passed.iter().any(|(name, _)| name == "PATH") {
        passed.push(("PATH".into(), PATH_DEFAULT.into()));
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str], extra: &[&str]) -> Vec<String> {
        let all = all.iter().map(|name| (OsString::from(name), OsString::from("x")));
        let extra: Vec<String> = extra.iter().map(ToString::to_string).collect();
        allowed(all, &extra).into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn keys_and_tokens_do_not_pass_and_locale_does() {
        let all =
            ["PATH", "DEEPSEEK_API_KEY", "LC_ALL", "DSHD_TOKEN", "HOME", "AWS_SECRET_ACCESS_KEY", "PATHX"];
        assert_eq!(names(&all, &[]), ["PATH", "LC_ALL", "HOME"]);
    }

    #[test]
    fn a_name_that_the_configuration_lists_passes() {
        assert_eq!(names(&["PATH", "CARGO_HOME", "CARGO_TOKEN"], &["CARGO_HOME"]), ["PATH", "CARGO_HOME"]);
    }

    #[test]
    fn there_is_always_a_path() {
        assert_eq!(names(&["HOME"], &[]), ["HOME", "PATH"]);
    }
}
