//! Background jobs: the book of a session's, and the tools that list, read and end them.
//!
//! A job is started by `bash`. It holds a place of `limits.children` while it runs. Its end is told to the session, which
//! logs it and wakes the agent, unless the agent has heard of it by a tool.

mod book;
mod ended;
mod tools;

pub use self::book::Jobs;
pub(super) use self::book::{NewJob, Started};
pub(super) use self::tools::{JobKill, JobList, JobOutput};
