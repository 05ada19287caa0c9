//! Child processes: groups, limits, output caps, kill. Also the lock files that keep one process to one place.
//!
//! Owns every child that a tool starts: each is the leader of a process group of its own, and when [`run()`] returns, or
//! its future is dropped, nothing of that group is left.

mod capture;
mod environment;
mod group;
pub mod inherited;
pub mod lock;
mod nofile;
mod run;
mod service;
mod unchecked;

pub use self::capture::{Caps, Captured};
pub use self::environment::allowed;
pub use self::nofile::raise_nofile_limit;
pub use self::run::{End, Finished, Job, StartError, Stopped, run};
pub use self::service::{Pipes, Program, Service};
