//! The envelope: what a line is, by every row of the framing table (docs/protocol.md, section 2).

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::scan::{ScanError, scan};
use super::{ErrorKind, RequestId, RpcError};

/// A request to be served.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// The method's name.
    pub method: String,
    /// Its parameters, unread.
    pub params: Option<Box<RawValue>>,
}

/// What a line is.
#[derive(Debug)]
pub enum Inbound {
    /// A request.
    Request(Request),
    /// A notification or a response: passed over in silence.
    Nothing,
    /// Neither: answered with the error.
    Bad {
        /// The id to echo, if it could be read.
        id: Option<RequestId>,
        /// What is wrong.
        error: RpcError,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Tells a member that is null from one that is absent.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&'a RawValue>::deserialize(deserializer).map(Some)
}

/// Says what a line is.
pub fn parse(line: &[u8]) -> Inbound {
    let text = match scan(line) {
        Ok(text) => text,
        Err(ScanError::Utf8) => return not_json("the line is not valid UTF-8"),
        Err(ScanError::Depth) => return not_json("the line is nested deeper than 128"),
    };
    match text.trim_start_matches([' ', '\t', '\r']).as_bytes().first() {
        Some(b'{') => object(&text),
        Some(b'[') => well_formed(&text, "batch not supported; send one request a line"),
        _ => well_formed(&text, "a request is a JSON object"),
    }
}

fn object(text: &str) -> Inbound {
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        Err(error) if error.classify() == Category::Data => {
            return well_formed(text, &format!("the request's members are wrong: {error}"));
        }
        Err(error) => return not_json(&format!("the line is not JSON: {error}")),
    };
    let Some(method) = envelope.method else {
        if envelope.result.is_some() || envelope.error.is_some() {
            return Inbound::Nothing;
        }
        return bad(valid_id(envelope.id), "a request needs a method");
    };
    let Some(raw_id) = envelope.id else { return Inbound::Nothing };
    let Some(id) = RequestId::from_json(raw_id.get()) else {
        let message = "an id is a string or an integer of at most 1024 bytes";
        return bad(RequestId::echo_of(raw_id.get()), message);
    };
    if envelope.jsonrpc.is_some_and(|version| string_of(version).as_deref() != Some("2.0")) {
        return bad(Some(id), "jsonrpc must be \"2.0\" (or be left out)");
    }
    match string_of(method) {
        Some(method) => {
            let params = envelope.params.map(ToOwned::to_owned);
            Inbound::Request(Request { id, method: method.into_owned(), params })
        }
        None => bad(Some(id), "method must be a string"),
    }
}

/// The line is valid JSON but no request; or it is not JSON after all.
fn well_formed(text: &str, message: &str) -> Inbound {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => bad(None, message),
        Err(error) => not_json(&format!("the line is not JSON: {error}")),
    }
}

fn string_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(raw.get()).ok().map(|text| text.0)
}

fn valid_id(raw: Option<&RawValue>) -> Option<RequestId> {
    let raw = raw?.get();
    RequestId::from_json(raw).or_else(|| RequestId::echo_of(raw))
}

fn bad(id: Option<RequestId>, message: &str) -> Inbound {
    Inbound::Bad { id, error: RpcError::new(ErrorKind::InvalidRequest, message) }
}

fn not_json(message: &str) -> Inbound {
    Inbound::Bad { id: None, error: RpcError::new(ErrorKind::ParseError, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let found = match parse(line.as_bytes()) {
            Inbound::Request(request) => {
                let params = request.params.as_ref().map_or("-", |params| params.get());
                format!("{} {} {params}", request.id.as_json(), request.method)
            }
            Inbound::Nothing => "nothing".to_owned(),
            Inbound::Bad { id, error } => {
                format!("{} {}", id.as_ref().map_or("null", RequestId::as_json), error.kind.as_text())
            }
        };
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn every_row_of_the_framing_table() {
        let deep = |depth: usize| {
            format!(r#"{{"id":1,"method":"m","params":{{"a":{}{}}}}}"#, "[".repeat(depth), "]".repeat(depth))
        };
        check("not json", "null parse_error");
        check(r#"{"id":1,"method":"m""#, "null parse_error");
        check(r#"{"id":1,"method":"m"} x"#, "null parse_error");
        check(r#"{"id":1,"method":"m","params":{"a":NaN}}"#, "null parse_error");
        check(&"[".repeat(200_000), "null parse_error");
        check(&deep(127), "null parse_error");
        assert!(matches!(parse(deep(126).as_bytes()), Inbound::Request(_)));
        check("[]", "null invalid_request");
        check(r#"[{"id":1,"method":"m"}]"#, "null invalid_request");
        check("[1,", "null parse_error");
        check("7", "null invalid_request");
        check("\"x\"", "null invalid_request");
        check("null", "null invalid_request");
        check(r#"{"id":1}"#, "1 invalid_request");
        check("{}", "null invalid_request");
        check(r#"{"id":null,"method":"m"}"#, "null invalid_request");
        check(r#"{"id":true,"method":"m"}"#, "null invalid_request");
        check(r#"{"id":{},"method":"m"}"#, "null invalid_request");
        check(r#"{"id":[1],"method":"m"}"#, "null invalid_request");
        check(r#"{"id":1.5,"method":"m"}"#, "1.5 invalid_request");
        check(r#"{"id":1.0,"method":"m"}"#, "1.0 invalid_request");
        check(r#"{"id":1e300,"method":"m"}"#, "1e300 invalid_request");
        check(r#"{"id":1,"method":"m"}"#, "1 m -");
        check(r#"{"id":"1","method":"m"}"#, "\"1\" m -");
        check(r#"{"id":-9007199254740993000,"method":"m"}"#, "-9007199254740993000 m -");
        check(r#"{"id":"A\n","method":"m"}"#, r#""A\n" m -"#);
        check(r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "1 invalid_request");
        check(r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, "1 invalid_request");
        check(r#"{"jsonrpc":null,"id":1,"method":"m"}"#, "1 invalid_request");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#, "1 m {}");
        check(r#"{"id":1,"method":"m","method":"n"}"#, "null invalid_request");
        check(r#"{"id":1,"id":2,"method":"m"}"#, "null invalid_request");
        check(r#"{"id":1,"method":7}"#, "1 invalid_request");
        check(r#"{"id":1,"method":null}"#, "1 invalid_request");
        check(r#"{"method":"m"}"#, "nothing");
        check(r#"{"method":"m","params":7}"#, "nothing");
        check(r#"{"id":1,"result":{}}"#, "nothing");
        check(r#"{"id":1,"error":{}}"#, "nothing");
        check(r#"{"id":null,"error":null}"#, "nothing");
        check(r#"{"id":1,"method":"m","params":{"t":"\ud800"}}"#, r#"1 m {"t":"\ufffd"}"#);
        check(r#" {"id":1,"method":"m","unknown":[]} "#, "1 m -");
    }

    #[test]
    fn a_long_id_is_refused() {
        let line = |length| format!(r#"{{"id":"{}","method":"m"}}"#, "x".repeat(length));
        assert!(matches!(parse(line(1022).as_bytes()), Inbound::Request(_)));
        assert!(matches!(parse(line(1023).as_bytes()), Inbound::Bad { id: None, .. }));
    }
}
