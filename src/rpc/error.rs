//! Errors as clients get them: a number, a kind for programs, a sentence for people, facts beside it.

use serde::Serialize;
use serde_json::value::RawValue;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal,)*) => {
        /// Error numbers (docs/protocol.md, section 3).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode { $($(#[$doc])* $variant,)* }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            pub fn number(self) -> i32 {
                match self { $(Self::$variant => $number,)* }
            }

            /// The code of a number.
            pub fn from_number(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// Not JSON.
    Parse = -32700,
    /// No valid request.
    InvalidRequest = -32600,
    /// No such method.
    MethodNotFound = -32601,
    /// Wrong parameters.
    InvalidParams = -32602,
    /// Our bug.
    Internal = -32603,
    /// Stop has begun.
    ShuttingDown = -32000,
    /// Over a limit for now.
    Overloaded = -32001,
    /// `initialize` first.
    NotInitialized = -32002,
    /// No valid token.
    Unauthenticated = -32003,
    /// No such session.
    SessionNotFound = -32004,
    /// A turn runs.
    SessionBusy = -32005,
    /// Another process writes it.
    SessionLocked = -32006,
    /// Its log is damaged.
    SessionCorrupt = -32007,
    /// No such route, or no key.
    ProviderUnavailable = -32008,
    /// Over a limit.
    LimitExceeded = -32009,
    /// A cursor of another history.
    CursorInvalid = -32011,
    /// The disk failed.
    StorageFailed = -32012,
    /// Not with this scope.
    PermissionDenied = -32013,
    /// Nothing to confine commands with.
    SandboxUnavailable = -32014,
    /// There is one already.
    SessionExists = -32015,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $text:literal => $code:ident,)*) => {
        /// What programs match on: `error.data.kind`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind { $($(#[$doc])* $variant,)* }

        impl ErrorKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word on the wire.
            pub fn as_text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The kind of a word.
            pub fn from_text(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The number that goes with it.
            pub fn code(self) -> ErrorCode {
                match self { $(Self::$variant => ErrorCode::$code,)* }
            }
        }
    };
}

kinds! {
    /// Not JSON.
    ParseError = "parse_error" => Parse,
    /// No valid request.
    InvalidRequest = "invalid_request" => InvalidRequest,
    /// The id is in flight already.
    DuplicateId = "duplicate_id" => InvalidRequest,
    /// The line is over the limit.
    LineTooLong = "line_too_long" => InvalidRequest,
    /// A second `initialize`.
    AlreadyInitialized = "already_initialized" => InvalidRequest,
    /// No such method.
    UnknownMethod = "unknown_method" => MethodNotFound,
    /// Wrong parameters.
    InvalidParams = "invalid_params" => InvalidParams,
    /// Our bug.
    Internal = "internal" => Internal,
    /// Stop has begun.
    ShuttingDown = "shutting_down" => ShuttingDown,
    /// Over a limit for now.
    Overloaded = "overloaded" => Overloaded,
    /// `initialize` first.
    NotInitialized = "not_initialized" => NotInitialized,
    /// No valid token.
    Unauthenticated = "unauthenticated" => Unauthenticated,
    /// No such session.
    SessionNotFound = "session_not_found" => SessionNotFound,
    /// A turn runs.
    SessionBusy = "session_busy" => SessionBusy,
    /// Another process writes it.
    SessionLocked = "session_locked" => SessionLocked,
    /// Its log is damaged.
    SessionCorrupt = "session_corrupt" => SessionCorrupt,
    /// No such route, or no key.
    ProviderUnavailable = "provider_unavailable" => ProviderUnavailable,
    /// Over a limit.
    LimitExceeded = "limit_exceeded" => LimitExceeded,
    /// A cursor of another history.
    CursorInvalid = "cursor_invalid" => CursorInvalid,
    /// The disk failed.
    StorageFailed = "storage_failed" => StorageFailed,
    /// Not with this scope.
    PermissionDenied = "permission_denied" => PermissionDenied,
    /// Nothing to confine commands with.
    SandboxUnavailable = "sandbox_unavailable" => SandboxUnavailable,
    /// There is one already.
    SessionExists = "session_exists" => SessionExists,
}

/// An error reply.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// For programs.
    pub kind: ErrorKind,
    /// One English sentence for a person.
    pub message: String,
    facts: Vec<(&'static str, Box<RawValue>)>,
}

impl RpcError {
    /// An error without facts.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), facts: Vec::new() }
    }

    /// Adds a fact to `data`. One that can't be written as JSON is left out.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &impl Serialize) -> Self {
        if let Ok(raw) = serde_json::value::to_raw_value(value) {
            self.facts.push((name, raw));
        }
        self
    }

    /// `data` without its kind.
    pub(super) fn facts(&self) -> &[(&'static str, Box<RawValue>)] {
        &self.facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_are_inverse() {
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), Some(code));
        }
        assert_eq!(ErrorCode::from_number(-32010), None);
    }

    #[test]
    fn words_and_kinds_are_inverse_and_every_code_has_a_kind() {
        for &kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_text(kind.as_text()), Some(kind));
        }
        for &code in ErrorCode::ALL {
            assert!(ErrorKind::ALL.iter().any(|kind| kind.code() == code), "{code:?}");
        }
    }
}
