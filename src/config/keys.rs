//! Dotted keys: how they are written, which there are, which is nearest to a misspelt one.

use std::collections::BTreeMap;

use figment::value::{Dict, Value};

use super::Config;

/// Writes a path as TOML does: segments that are no bare key are quoted.
pub(super) fn join<S: AsRef<str>>(segments: &[S]) -> String {
    segments.iter().fold(String::new(), |prefix, segment| child(&prefix, segment.as_ref()))
}

/// The key of `segment` below `prefix`.
pub(super) fn child(prefix: &str, segment: &str) -> String {
    let bare =
        !segment.is_empty() && segment.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let segment = if bare { segment.to_owned() } else { format!("\"{segment}\"") };
    if prefix.is_empty() { segment } else { format!("{prefix}.{segment}") }
}

/// The values of a configuration by dotted key. Lists and empty tables are one value; what is not set is left out.
pub(super) fn flatten(config: &Config) -> BTreeMap<String, Value> {
    let mut values = all(config);
    values.retain(|_, value| !matches!(value, Value::Empty(..)));
    values
}

/// As [`flatten`], with `Empty` for what is not set.
fn all(config: &Config) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    // A configuration is plain data, whose serialization cannot fail; an empty result would show in every test.
    if let Ok(Value::Dict(_, dict)) = Value::serialize(config) {
        collect("", &dict, &mut values);
    }
    values
}

/// Collects the leaves of a table.
pub(super) fn collect(prefix: &str, dict: &Dict, leaves: &mut BTreeMap<String, Value>) {
    for (name, value) in dict {
        let key = child(prefix, name);
        if let Value::Dict(_, table) = value
            && !table.is_empty()
        {
            collect(&key, table, leaves);
        } else {
            leaves.insert(key, value.clone());
        }
    }
}

/// Keys that nothing need set, beside those of named providers and models.
pub(super) fn known() -> Vec<String> {
    all(&Config::default()).into_keys().collect()
}

/// Puts a value into a table at a path, making the tables on the way.
pub(super) fn insert(dict: &mut Dict, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        dict.insert(first.clone(), value);
        return;
    }
    let table = dict.entry(first.clone()).or_insert_with(|| Value::from(Dict::new()));
    if !matches!(table, Value::Dict(..)) {
        *table = Value::from(Dict::new());
    }
    if let Value::Dict(_, table) = table {
        insert(table, rest, value);
    }
}

/// The candidate that is nearest to a word, when it is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, candidate) =
        candidates.into_iter().map(|candidate| (distance(word, candidate), candidate)).min()?;
    let letters = word.chars().count().max(candidate.chars().count());
    (distance <= (letters / 3).max(1)).then_some(candidate)
}

/// Edits (insert, delete, replace, swap of neighbours) from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let from: Vec<char> = from.chars().collect();
    let mut older: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (at, &left) in from.iter().enumerate() {
        let mut line = Vec::with_capacity(to.len() + 1);
        line.push(at + 1);
        for (j, &right) in to.iter().enumerate() {
            let replaced = last[j] + usize::from(left != right);
            let mut fewest = replaced.min(last[j + 1] + 1).min(line[j] + 1);
            if at > 0 && j > 0 && left == to[j - 1] && from[at - 1] == right {
                fewest = fewest.min(older[j - 1] + 1);
            }
            line.push(fewest);
        }
        older = std::mem::replace(&mut last, line);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_toml_writes_it() {
        assert_eq!(
            join(&["providers", "openai", "models", "gpt-4.1"]),
            "providers.openai.models.\"gpt-4.1\""
        );
    }

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("in_fligth", ["in_flight", "mailbox"]), Some("in_flight"));
        assert_eq!(nearest("limit", ["limits", "listen"]), Some("limits"));
        assert_eq!(nearest("zebra", ["limits", "listen"]), None);
    }

    #[test]
    fn keys_that_have_no_default_are_known_too() {
        let known = known();
        for key in ["data_dir", "listen", "limits.in_flight", "client.connect", "providers.openai.script"] {
            assert!(known.iter().any(|k| k == key), "{key} is missing of {known:?}");
        }
        assert!(!flatten(&Config::default()).contains_key("data_dir"));
    }
}
