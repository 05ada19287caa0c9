//! Names of servers' tools as model servers take them: `[a-zA-Z0-9_-]`, 64 at most, each once.

use std::collections::HashSet;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

const NAME_BYTES_MAX: usize = 64;
/// What tells two names apart that would be the same: `_` and so many hexadecimal digits.
const MARK_DIGITS: usize = 8;

/// The names of tools, given as (server, tool), in their order.
///
/// A tool whose name fits keeps it whatever else there is; of others that come to the same name the first in order gets
/// it, and the rest get a mark made of what they are, so that it is the same at every step.
pub(super) fn all(tools: &[(&str, &str)]) -> Vec<String> {
    let plain: Vec<(String, bool)> = tools.iter().map(|&(server, tool)| plain(server, tool)).collect();
    let mut names = vec![String::new(); plain.len()];
    let mut taken = HashSet::new();
    for fitting in [true, false] {
        for (at, &(server, tool)) in tools.iter().enumerate() {
            let (name, fits) = &plain[at];
            if *fits != fitting {
                continue;
            }
            let mut chosen = name.clone();
            let mut round = 0_u32;
            while chosen.len() > NAME_BYTES_MAX || !taken.insert(chosen.clone()) {
                chosen = marked(name, &format!("{server}\0{tool}\0{round}"));
                round += 1;
            }
            names[at] = chosen;
        }
    }
    names
}

/// The name with what is not allowed replaced, and whether it is as it was and short enough.
fn plain(server: &str, tool: &str) -> (String, bool) {
    let raw = format!("mcp__{server}__{tool}");
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = raw.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    let fits = name == raw && name.len() <= NAME_BYTES_MAX;
    (name, fits)
}

fn marked(name: &str, of: &str) -> String {
    let digest = Sha256::digest(of);
    let mut marked = name[..name.len().min(NAME_BYTES_MAX - MARK_DIGITS - 1)].to_owned();
    marked.push('_');
    for byte in &digest[..MARK_DIGITS / 2] {
        // Writing to a string never fails.
        let _ = write!(marked, "{byte:02x}");
    }
    marked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_that_fits_is_kept() {
        assert_eq!(all(&[("git", "log"), ("git", "show-all")]), ["mcp__git__log", "mcp__git__show-all"]);
    }

    #[test]
    fn what_is_not_allowed_is_replaced_and_a_clash_is_marked() {
        let found = all(&[("s", "a.b"), ("s", "a/b"), ("s", "a_b")]);
        assert_eq!(found[2], "mcp__s__a_b", "the one that fits keeps its name");
        assert!(found[0].starts_with("mcp__s__a_b_") && found[1].starts_with("mcp__s__a_b_"), "{found:?}");
        assert_ne!(found[0], found[1]);
        assert_eq!(found[0], all(&[("s", "a.b"), ("s", "a_b")])[0], "whoever else is there");
    }

    #[test]
    fn servers_whose_names_run_into_their_tools_are_told_apart() {
        let found = all(&[("a", "b__c"), ("a__b", "c")]);
        assert_eq!(found[0], "mcp__a__b__c");
        assert_ne!(found[1], found[0]);
    }

    #[test]
    fn a_tool_that_is_named_as_anothers_mark_does_not_take_its_place() {
        let trap = all(&[("s", "a.b"), ("s", "a_b")])[0].clone();
        let trap = trap.strip_prefix("mcp__s__").unwrap();
        let found = all(&[("s", "a.b"), ("s", "a_b"), ("s", trap)]);
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), 3, "{found:?}");
    }

    proptest! {
        #[test]
        fn every_name_is_allowed_and_there_once(
            tools in prop::collection::btree_set(("[a-b_]{1,3}", ".{1,80}|[a_.]{1,4}"), 0..20)
        ) {
            let tools: Vec<_> = tools.iter().map(|(s, t)| (s.as_str(), t.as_str())).collect();
            let found = all(&tools);
            prop_assert_eq!(found.iter().collect::<HashSet<_>>().len(), tools.len());
            for name in found {
                prop_assert!(name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)));
            }
        }
    }
}
