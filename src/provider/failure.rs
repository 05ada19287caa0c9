//! Why a call failed, in the words of clients: from HTTP statuses, errors inside a stream, and broken connections.
//! No message holds the key.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Text, unescape};
use super::retry::retry_of;
use super::{CallError, Retry};
use crate::config::Secret;
use crate::event::{Failure, FailureCode};

/// Bytes of a provider's own words that a message quotes.
const QUOTE_BYTES_MAX: usize = 500;

/// Who is to blame: names the provider in messages and keeps its secrets out of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blame<'a> {
    pub(super) provider: &'a str,
    pub(super) secrets: &'a [Secret],
}

impl Blame<'_> {
    /// A failure whose message ends in the provider's name.
    pub(super) fn fail(&self, code: FailureCode, retry: Retry, what: &str) -> CallError {
        let message = self.clean(&format!("{what} (provider {})", self.provider));
        CallError { failure: Failure::new(code, message), retry }
    }

    /// The answer can't be read.
    pub(super) fn malformed(&self, what: &str) -> CallError {
        self.fail(FailureCode::MalformedResponse, Retry::Backoff, what)
    }

    /// The stream ended before the model had.
    pub(super) fn truncated(&self) -> CallError {
        self.malformed("the answer ended before the model said that it was complete")
    }

    /// A response other than 2xx.
    pub(super) fn http(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> CallError {
        let body = String::from_utf8_lossy(body);
        let told = Told::read(&body);
        let code = code_of_status(status, &told);
        let retry = match (status, code) {
            (_, FailureCode::Quota | FailureCode::ContextWindowExceeded) => Retry::Never,
            (408 | 409 | 429 | 500.., _) => retry_after(headers).map_or(Retry::Backoff, Retry::After),
            (_, _) => Retry::Never,
        };
        let what = refusal(code);
        let quote = if told.message.is_empty() { String::new() } else { format!(": {}", told.message) };
        let message = self.clean(&format!("{what} ({status}, provider {}){quote}", self.provider));
        CallError { failure: Failure { message, code, status: Some(status) }, retry }
    }

    /// An error inside of a stream that began well.
    pub(super) fn in_stream(&self, error: &str) -> CallError {
        let told = Told::read(error);
        let code = told.code();
        let retry = retry_of(code);
        let quote = if told.message.is_empty() { "no reason given" } else { &told.message };
        self.fail(code, retry, &format!("the model's server broke the answer off: {quote}"))
    }

    /// A connection that could not be made, or broke.
    pub(super) fn transport(&self, error: reqwest::Error) -> CallError {
        let error = error.without_url();
        let (code, what) = if error.is_timeout() {
            (FailureCode::Timeout, "no connection to the model in time")
        } else if error.is_connect() {
            (FailureCode::Transport, "cannot connect to the model")
        } else if error.is_builder() {
            (FailureCode::InvalidRequest, "cannot make the request")
        } else {
            (FailureCode::Transport, "the connection to the model broke")
        };
        let mut causes = String::new();
        let mut source = error.source();
        while let Some(cause) = source {
            causes = cause.to_string();
            source = cause.source();
        }
        let retry = if error.is_builder() { Retry::Never } else { Retry::Backoff };
        self.fail(code, retry, &if causes.is_empty() { what.to_owned() } else { format!("{what}: {causes}") })
    }

    /// Nothing came in time.
    pub(super) fn timeout(&self, what: &str, waited: Duration) -> CallError {
        let waited = crate::config::duration::format(waited);
        self.fail(FailureCode::Timeout, Retry::Backoff, &format!("{what} within {waited}"))
    }

    fn clean(&self, message: &str) -> String {
        self.secrets
            .iter()
            .fold(message.to_owned(), |message, secret| message.replace(secret.expose(), "[key]"))
    }
}

/// What a refusal means.
fn refusal(code: FailureCode) -> &'static str {
    if code == FailureCode::Auth {
        "the model refused the key"
    } else if code == FailureCode::Quota {
        "the balance is empty: the provider wants to be paid"
    } else if code == FailureCode::RateLimit {
        "the model has too many requests"
    } else if code == FailureCode::ContextWindowExceeded {
        "the conversation is longer than the model reads"
    } else if code == FailureCode::Server {
        "the model's server failed"
    } else {
        "the model refused the request"
    }
}

/// What a provider says of an error.
#[derive(Debug, Default)]
struct Told {
    message: String,
    /// Its own codes and types, lower case, all in one text.
    kinds: String,
    /// A number like an HTTP status.
    status: Option<u16>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
}

impl Told {
    /// Reads `{"error":{…}}`, `{"error":"…"}`, `{"message":…}`, or whatever it is.
    fn read(text: &str) -> Self {
        let mut told = Self::default();
        let text = text.trim();
        match serde_json::from_str::<ErrorBody<'_>>(text) {
            Ok(body) => told.take(&body),
            Err(_) if unescape(text, &mut told.message) => {}
            Err(_) => told.message.push_str(text),
        }
        if let Some((cut, _)) = told.message.char_indices().find(|(at, _)| *at >= QUOTE_BYTES_MAX) {
            told.message.truncate(cut);
            told.message.push('…');
        }
        told
    }

    fn take(&mut self, body: &ErrorBody<'_>) {
        if let Some(error) = body.error {
            match serde_json::from_str::<ErrorBody<'_>>(error.get()) {
                Ok(inner) => self.take_fields(&inner),
                Err(_) => {
                    unescape(error.get(), &mut self.message);
                }
            }
        }
        self.take_fields(body);
    }

    fn take_fields(&mut self, body: &ErrorBody<'_>) {
        for raw in [body.message, body.detail].into_iter().flatten() {
            if self.message.is_empty() && !unescape(raw.get(), &mut self.message) {
                self.message.push_str(raw.get());
            }
        }
        if let Some(code) = body.code {
            self.status = self.status.or_else(|| code.get().trim_matches('"').parse().ok());
            self.kinds.push_str(&code.get().to_ascii_lowercase());
        }
        if let Some(kind) = &body.kind {
            self.kinds.push_str(&kind.as_str().to_ascii_lowercase());
        }
    }

    fn is_too_long(&self) -> bool {
        const SIGNS: [&str; 10] = [
            "context_length",
            "context length",
            "context window",
            "context size",
            "context_size",
            "prompt is too long",
            "input is too long",
            "input length",
            "too many tokens",
            "maximum prompt length",
        ];
        let message = self.message.to_ascii_lowercase();
        SIGNS.iter().any(|sign| self.kinds.contains(sign) || message.contains(sign))
    }

    fn is_quota(&self) -> bool {
        ["insufficient_quota", "insufficient_balance", "billing"].iter().any(|sign| self.kinds.contains(sign))
    }

    fn code(&self) -> FailureCode {
        let has = |sign: &str| self.kinds.contains(sign);
        if self.is_too_long() {
            FailureCode::ContextWindowExceeded
        } else if self.is_quota() {
            FailureCode::Quota
        } else if has("rate_limit") {
            FailureCode::RateLimit
        } else if has("auth") || has("permission") || has("api_key") {
            FailureCode::Auth
        } else if has("timeout") {
            FailureCode::Timeout
        } else if let Some(status @ 400..600) = self.status {
            code_of_status(status, self)
        } else if has("invalid_request")
            || has("invalid_prompt")
            || has("too_large")
            || has("not_found")
            || has("bad_request")
            || has("badrequest")
        {
            FailureCode::InvalidRequest
        } else {
            FailureCode::Server
        }
    }
}

fn code_of_status(status: u16, told: &Told) -> FailureCode {
    match status {
        402 => FailureCode::Quota,
        429 if told.is_quota() => FailureCode::Quota,
        429 => FailureCode::RateLimit,
        400 | 413 | 422 | 500 if told.is_too_long() => FailureCode::ContextWindowExceeded,
        401 | 403 => FailureCode::Auth,
        400 | 404 | 413 | 422 => FailureCode::InvalidRequest,
        408 => FailureCode::Timeout,
        500.. => FailureCode::Server,
        other => FailureCode::Http(other),
    }
}

/// `retry-after-ms`, or `retry-after` as seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse().ok()) {
        return Some(Duration::from_millis(millis));
    }
    let after = text("retry-after")?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = jiff::fmt::rfc2822::parse(after).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLAME: Blame<'static> = Blame { provider: "p", secrets: &[] };

    fn http(status: u16, body: &str) -> CallError {
        BLAME.http(status, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn statuses_have_codes_and_retries() {
        for (status, code, retry) in [
            (400, FailureCode::InvalidRequest, Retry::Never),
            (401, FailureCode::Auth, Retry::Never),
            (402, FailureCode::Quota, Retry::Never),
            (403, FailureCode::Auth, Retry::Never),
            (404, FailureCode::InvalidRequest, Retry::Never),
            (408, FailureCode::Timeout, Retry::Backoff),
            (409, FailureCode::Http(409), Retry::Backoff),
            (413, FailureCode::InvalidRequest, Retry::Never),
            (422, FailureCode::InvalidRequest, Retry::Never),
            (429, FailureCode::RateLimit, Retry::Backoff),
            (500, FailureCode::Server, Retry::Backoff),
            (503, FailureCode::Server, Retry::Backoff),
            (529, FailureCode::Server, Retry::Backoff),
            (302, FailureCode::Http(302), Retry::Never),
        ] {
            let error = http(status, "");
            assert_eq!((error.failure.code, error.retry), (code, retry), "{status}");
            assert_eq!(error.failure.status, Some(status));
        }
    }

    #[test]
    fn an_empty_balance_is_said_plainly() {
        assert!(http(402, "").failure.message.contains("balance is empty"));
        let quota = http(429, r#"{"error":{"message":"You exceeded","code":"insufficient_quota"}}"#);
        assert_eq!((quota.failure.code, quota.retry), (FailureCode::Quota, Retry::Never));
    }

    #[test]
    fn a_conversation_that_is_too_long_is_told_apart() {
        for (status, body) in [
            (400, r#"{"error":{"message":"This model's maximum context length is 65536 tokens"}}"#),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"too big"}}"#),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"the request exceeds"}}"#,
            ),
            (413, "input is too long"),
        ] {
            let error = http(status, body);
            assert_eq!(error.failure.code, FailureCode::ContextWindowExceeded, "{body}");
            assert_eq!(error.retry, Retry::Never);
        }
    }

    #[test]
    fn the_providers_words_are_quoted_in_every_form() {
        for body in [
            r#"{"error":{"message":"boom"}}"#,
            r#"{"error":"boom"}"#,
            r#"{"message":"boom"}"#,
            r#"{"object":"error","message":"boom","code":400}"#,
            r#"{"detail":"boom"}"#,
            "boom",
        ] {
            assert!(http(400, body).failure.message.ends_with(": boom"), "{body}");
        }
        assert!(http(400, &"ab那".repeat(1000)).failure.message.len() < 700);
    }

    #[test]
    fn the_key_is_never_in_a_message() {
        let key = [Secret::new("sk-secret").unwrap()];
        let blame = Blame { provider: "p", secrets: &key };
        let error = blame.http(401, &HeaderMap::new(), b"{\"error\":\"bad key sk-secret\"}");
        assert!(error.failure.message.contains("bad key [key]"), "{}", error.failure.message);
        assert!(!blame.in_stream("\"sk-secret\"").failure.message.contains("sk-secret"));
    }

    #[test]
    fn errors_inside_a_stream_have_codes() {
        for (error, code, retry) in [
            (r#"{"type":"overloaded_error","message":"x"}"#, FailureCode::Server, Retry::Backoff),
            (r#"{"error":{"type":"rate_limit_error"}}"#, FailureCode::RateLimit, Retry::Backoff),
            (r#"{"type":"authentication_error"}"#, FailureCode::Auth, Retry::Never),
            (r#"{"code":400,"message":"bad"}"#, FailureCode::InvalidRequest, Retry::Never),
            (r#"{"code":503,"message":"loading"}"#, FailureCode::Server, Retry::Backoff),
            (r#""plain""#, FailureCode::Server, Retry::Backoff),
            ("not json", FailureCode::Server, Retry::Backoff),
        ] {
            let found = BLAME.in_stream(error);
            assert_eq!((found.failure.code, found.retry), (code, retry), "{error}");
        }
    }

    #[test]
    fn the_provider_may_say_when_to_come_back() {
        let after = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            BLAME.http(429, &headers, b"").retry
        };
        assert_eq!(after("retry-after", "7"), Retry::After(Duration::from_secs(7)));
        assert_eq!(after("retry-after-ms", "20"), Retry::After(Duration::from_millis(20)));
        assert_eq!(after("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), Retry::After(Duration::ZERO));
        assert_eq!(after("retry-after", "soon"), Retry::Backoff);
    }
}
