//! The one owner of signals.
