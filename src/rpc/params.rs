//! Parameters: typed, with the path and the expectation of what is wrong.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{ErrorKind, RpcError};
use crate::expectation::in_words;

/// Reads a request's parameters; absent is `{}`.
///
/// # Errors
/// `invalid_params` with the field's `path` and what was expected there.
pub fn parse_params<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    if !text.starts_with('{') {
        return Err(invalid("params", "expected an object"));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let (path, expected) = explain(&path, &error.into_inner().to_string());
        invalid(&path, &expected)
    })
}

fn invalid(path: &str, expected: &str) -> RpcError {
    RpcError::new(ErrorKind::InvalidParams, format!("{path}: {expected}")).with("path", &path)
}

/// Moves the name of a missing field from the message to the path, and takes the position in the text off.
fn explain(path: &str, message: &str) -> (String, String) {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let base = if path == "." { "" } else { path };
    let message = in_words(message);
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    match missing {
        Some(field) if base.is_empty() => (field.to_owned(), "required, but missing".to_owned()),
        Some(field) => (format!("{base}.{field}"), "required, but missing".to_owned()),
        None if base.is_empty() => ("params".to_owned(), message),
        None => (base.to_owned(), message),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        #[expect(dead_code, reason = "only its absence matters")]
        session_id: String,
        #[expect(dead_code, reason = "only its type matters")]
        blocks: Option<Vec<Inner>>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        #[expect(dead_code, reason = "only its type matters")]
        text: String,
    }

    fn check(params: &str, expected: &str) {
        let raw = RawValue::from_string(params.to_owned()).unwrap();
        assert_eq!(parse_params::<Params>(Some(&raw)).unwrap_err().message, expected);
    }

    #[test]
    fn an_error_names_path_and_expectation() {
        check("[]", "params: expected an object");
        check("null", "params: expected an object");
        check("{}", "sessionId: required, but missing");
        check(r#"{"sessionId":7}"#, "sessionId: invalid type: integer `7`, expected a string");
        check(
            r#"{"sessionId":"s","blocks":[{"text":"a"},{"text":1}]}"#,
            "blocks[1].text: invalid type: integer `1`, expected a string",
        );
        check(r#"{"sessionId":"s","blocks":[{}]}"#, "blocks[0].text: required, but missing");
    }

    #[test]
    fn unknown_fields_are_passed_over_and_absent_is_empty() {
        #[derive(Debug, Deserialize)]
        struct None {}
        assert!(parse_params::<None>(Option::None).is_ok());
        let raw = RawValue::from_string(r#"{"x":[1,2]}"#.to_owned()).unwrap();
        assert!(parse_params::<None>(Some(&raw)).is_ok());
    }
}
