//! Logs: stderr for people, daily files, never stdout.
