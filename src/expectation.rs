//! What was expected of JSON, in words for those who wrote it: names of Rust's types mean nothing to them.

/// A message of serde, with types named as JSON's readers know them.
pub fn in_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let found =
        found.replace("invalid type: map", "invalid type: object").replace("type: sequence", "type: list");
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        "unit" => "null",
        "path string" => "a path",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "an object",
        other if other.starts_with("enum ") => "a text",
        other => other,
    };
    format!("{found}expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_json_knows_them() {
        let cases = [
            (
                "invalid type: string \"3\", expected u64",
                "invalid type: string \"3\", expected a whole number of 0 or more",
            ),
            (
                "invalid length 0, expected struct Sample with 2 elements",
                "invalid length 0, expected an object",
            ),
            ("invalid type: map, expected a sequence", "invalid type: object, expected a list"),
            ("unknown variant `x`, expected `a` or `b`", "unknown variant `x`, expected `a` or `b`"),
            ("missing field `name`", "missing field `name`"),
        ];
        for (message, words) in cases {
            assert_eq!(in_words(message), words);
        }
    }
}
