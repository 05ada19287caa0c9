//! Routes, keys and defaults.
