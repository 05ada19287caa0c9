//! What the tools of one session keep between calls.

/// Made when a session comes into memory, gone when it leaves.
#[derive(Debug, Default)]
pub struct ToolState {}
