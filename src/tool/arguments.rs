//! The model's arguments: from raw JSON text to a typed struct, and the struct's schema for the model.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Failed, ToolOutput, clip};
use crate::expectation::in_words;

/// Reads the arguments of a call of `tool`. What is wrong with them is told to the model with path and expectation.
///
/// The text is never mended or guessed at: a call whose arguments were cut must not run.
pub(super) fn parse<T: DeserializeOwned>(tool: &str, raw: &str) -> Result<T, ToolOutput> {
    if raw.trim_start().starts_with('[') {
        return Err(invalid(tool, "expected an object, got a list"));
    }
    if holds_nul(raw) {
        return Err(invalid(
            tool,
            "a text holds the character U+0000, which no path, command or text file has",
        ));
    }
    let mut json = serde_json::Deserializer::from_str(raw);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    T::deserialize(tracked).and_then(|arguments| json.end().map(|()| arguments)).map_err(|error| {
        let path = track.path().to_string();
        let what = clip::line(&without_position(&error));
        let place = if path == "." { String::new() } else { format!("`{path}`: ") };
        invalid(tool, &format!("{place}{what}"))
    })
}

/// Whether a string of a JSON text has U+0000 in it: an escape whose backslash is not escaped itself.
fn holds_nul(raw: &str) -> bool {
    let escapes = memchr::memmem::find_iter(raw.as_bytes(), b"\\u0000");
    escapes.into_iter().any(|at| raw[..at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0)
}

/// What a call with wrong arguments gives back.
pub(super) fn invalid(tool: &str, what: &str) -> ToolOutput {
    ToolOutput::failed(Failed::InvalidArguments, &format!("invalid arguments for {tool}: {what}"))
}

/// Positions in its own JSON text help no model.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&position).unwrap_or(&text);
    match error.classify() {
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof => {
            format!("no valid JSON: {what}")
        }
        serde_json::error::Category::Data | serde_json::error::Category::Io => in_words(what),
    }
}

/// The schema of a parameter struct: compact, without the generator's notes, the same at every call.
pub(super) fn schema<T: JsonSchema>() -> Box<RawValue> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.remove("description");
        // Some servers want the member of an object that has none.
        root.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    // A JSON value always has a text.
    serde_json::value::to_raw_value(&schema).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Some servers refuse or misread what tells the model nothing: formats, defaults, `null` beside another type.
fn tidy(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    for noise in ["$schema", "title", "format", "default"] {
        members.remove(noise);
    }
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|name| name != "null");
        if types.len() == 1 {
            let only = types.swap_remove(0);
            members.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(tidy);
    }
    if let Some(items) = members.get_mut("items") {
        tidy(items);
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        name: String,
        #[serde(default)]
        count: Option<u64>,
    }

    fn check(raw: &str, expected: &str) {
        let output = parse::<Sample>("t", raw).unwrap_err();
        assert_eq!(output.text, format!("Error: invalid arguments for t: {expected}"), "{raw}");
        assert_eq!(output.error.unwrap().code, "INVALID_ARGS");
        assert!(output.is_error);
    }

    #[test]
    fn what_is_wrong_is_told_with_path_and_expectation() {
        check(r#"{"name":7}"#, "`name`: invalid type: integer `7`, expected a string");
        check(
            r#"{"name":"a","count":"3"}"#,
            "`count`: invalid type: string \"3\", expected a whole number of 0 or more",
        );
        check(r#"{"count":3}"#, "missing field `name`");
        check("[]", "expected an object, got a list");
    }

    #[test]
    fn arguments_that_are_cut_or_no_json_are_never_run() {
        check("", "no valid JSON: EOF while parsing a value");
        check(r#"{"name":"rm"#, "`name`: no valid JSON: EOF while parsing a string");
        check(r#"{"name":"a"} x"#, "no valid JSON: trailing characters");
        assert!(parse::<Sample>("t", r#"{"name":"\ud800"}"#).is_err());
        assert!(parse::<Sample>("t", &format!(r#"{{"name":"a","x":{}}}"#, "[".repeat(200_000))).is_err());
    }

    #[test]
    fn a_text_with_u0000_is_refused_and_one_that_speaks_of_it_is_not() {
        let refused = "a text holds the character U+0000, which no path, command or text file has";
        check(r#"{"name":"a\u0000b"}"#, refused);
        check(r#"{"name":"a\\\u0000b"}"#, refused);
        assert_eq!(parse::<Sample>("t", r#"{"name":"a\\u0000b"}"#).unwrap().name, r"a\u0000b");
    }

    #[test]
    fn null_means_absent_and_unknown_members_are_ignored() {
        let sample: Sample = parse("t", r#"{"name":"a","count":null,"other":[1]}"#).unwrap();
        assert_eq!((sample.name.as_str(), sample.count), ("a", None));
    }
}
