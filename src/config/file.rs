//! Configuration files: TOML with the line of every key.

use std::fs;
use std::ops::Range;
use std::path::Path;

use figment::value::{Dict, Value};
use toml_edit::{Document, Item, Key, Table, TableLike};

use super::keys;
use super::layer::Layer;
use super::{ConfigError, Source};

/// Largest configuration file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads a file and checks it by itself.
///
/// # Errors
/// When it can't be read, is not TOML, has an unknown key or a value of the wrong type.
pub(super) fn read(path: &Path, named_by: Option<&'static str>) -> Result<Layer, ConfigError> {
    parse(path, &read_text(path, named_by)?)
}

/// Reads a file's text.
///
/// # Errors
/// [`ConfigError::Unreadable`].
pub fn read_text(path: &Path, named_by: Option<&'static str>) -> Result<String, ConfigError> {
    let unreadable = |error| ConfigError::Unreadable { path: path.to_path_buf(), named_by, error };
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(unreadable(std::io::Error::other(format!("{bytes} bytes are too many"))));
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// Parses a file's text and checks it by itself.
///
/// # Errors
/// When it is not TOML, has an unknown key or a value of the wrong type.
pub(super) fn parse(path: &Path, text: &str) -> Result<Layer, ConfigError> {
    let document = Document::parse(text).map_err(|error| ConfigError::Syntax {
        path: path.to_path_buf(),
        line: line(text, error.span()),
        reason: error.message().trim_end().replace('\n', ", "),
    })?;
    let mut reader = Reader { path, text, layer: Layer::default() };
    let values = reader.table("", document.as_table());
    let layer = Layer { values, ..reader.layer };
    layer.check()?;
    Ok(layer)
}

/// The line, from 1, where a span begins.
fn line(text: &str, span: Option<Range<usize>>) -> usize {
    let before = span.map_or(0, |span| span.start.min(text.len()));
    memchr::memchr_iter(b'\n', &text.as_bytes()[..before]).count() + 1
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    layer: Layer,
}

impl Reader<'_> {
    fn note(&mut self, key: String, span: Option<Range<usize>>) {
        let line = line(self.text, span);
        self.layer.origins.insert(key, Source::File { path: self.path.to_path_buf(), line });
    }

    fn table(&mut self, prefix: &str, table: &dyn TableLike) -> Dict {
        let mut dict = Dict::new();
        for (name, item) in table.iter() {
            let key = keys::child(prefix, name);
            self.note(key.clone(), table.key(name).and_then(Key::span).or_else(|| item.span()));
            if let Some(value) = self.item(&key, item) {
                dict.insert(name.to_owned(), value);
            }
        }
        dict
    }

    fn item(&mut self, key: &str, item: &Item) -> Option<Value> {
        match item {
            Item::None => None,
            Item::Value(value) => Some(self.value(key, value)),
            Item::Table(table) => Some(Value::from(self.table(key, table))),
            Item::ArrayOfTables(tables) => {
                let values: Vec<Value> =
                    tables.iter().enumerate().map(|(index, table)| self.element(key, index, table)).collect();
                Some(Value::from(values))
            }
        }
    }

    fn element(&mut self, key: &str, index: usize, table: &Table) -> Value {
        let key = keys::child(key, &index.to_string());
        self.note(key.clone(), table.span());
        Value::from(self.table(&key, table))
    }

    fn value(&mut self, key: &str, value: &toml_edit::Value) -> Value {
        match value {
            toml_edit::Value::String(text) => Value::from(text.value().as_str()),
            toml_edit::Value::Integer(number) => Value::from(*number.value()),
            toml_edit::Value::Float(number) => Value::from(*number.value()),
            toml_edit::Value::Boolean(flag) => Value::from(*flag.value()),
            toml_edit::Value::Datetime(time) => Value::from(time.value().to_string()),
            toml_edit::Value::InlineTable(table) => Value::from(self.table(key, table)),
            toml_edit::Value::Array(array) => {
                let mut values = Vec::new();
                for (index, value) in array.iter().enumerate() {
                    let key = keys::child(key, &index.to_string());
                    self.note(key.clone(), value.span());
                    values.push(self.value(&key, value));
                }
                Value::from(values)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str, help: Option<&str>) {
        let error = parse(Path::new("/etc/dshd.toml"), text).expect_err("the file is wrong");
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.help().as_deref(), help);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_key() {
        check(
            "default_model = \"m\"\n\n[limits]\nmailbox = 3\nin_fligth = 3\n",
            "/etc/dshd.toml:5: unknown key `limits.in_fligth`",
            Some("did you mean `limits.in_flight`?"),
        );
        check(
            "[limit]\nmailbox = 3\n",
            "/etc/dshd.toml:1: unknown key `limit`",
            Some("did you mean `limits`?"),
        );
    }

    #[test]
    fn a_key_in_the_wrong_table_is_shown_its_place() {
        check(
            "mailbox = 3\n",
            "/etc/dshd.toml:1: unknown key `mailbox`",
            Some("did you mean `limits.mailbox`?"),
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named_with_its_line() {
        check(
            "[limits]\n# so many\nmailbox = \"many\"\n",
            "/etc/dshd.toml:3: `limits.mailbox`: expected a whole number, got string \"many\"",
            Some("mend it, then: dshd config check /etc/dshd.toml"),
        );
        check(
            "[providers.\"my.own\"]\nretry_base = \"1 hour\"\n",
            "/etc/dshd.toml:2: `providers.\"my.own\".retry_base`: \
             expected a duration like \"30s\" (ms, s, m, h, d), got \"1 hour\"",
            Some("mend it, then: dshd config check /etc/dshd.toml"),
        );
        check(
            "listen = [\n  { tcp = \"127.0.0.1:0\" },\n  { tpc = 7 },\n]\n",
            "/etc/dshd.toml:3: unknown key `listen.1.tpc`",
            Some("did you mean `listen.1.tcp`?"),
        );
    }

    #[test]
    fn what_is_no_toml_is_named_with_its_line() {
        let error = parse(Path::new("/x"), "a = 1\nb = = 2\n").unwrap_err().to_string();
        assert!(error.starts_with("/x:2: not TOML: "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a_file_that_was_named_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let error = read(&dir.path().join("none.toml"), Some("--config")).unwrap_err();
        assert!(error.to_string().starts_with("cannot read the configuration file"), "{error}");
        assert!(error.help().unwrap().contains("--config"));
    }
}
