//! Child processes: groups, sandbox, limits, output caps, kill. Also the lock files that keep one process to one place.
//!
//! Owns every child that a tool starts: each is the leader of a process group of its own, in the family of its session.
//! A command that we end, or whose future is dropped, ends with all that it started, wherever that went; one that ends by
//! itself may leave others in the background, which end with the family.

mod capture;
mod environment;
mod family;
mod group;
pub mod inherited;
pub mod lock;
mod mark;
mod memory;
mod nofile;
mod output;
mod reap;
mod run;
pub mod sandbox;
mod service;
mod spool;
mod start;
pub mod supervise;
mod temporary;
mod unchecked;
mod walk;

pub use self::capture::{Caps, Captured};
pub use self::environment::allowed;
pub use self::family::{Family, end_all};
pub use self::memory::keep_memory_private;
pub use self::nofile::raise_nofile_limit;
pub use self::output::View;
pub use self::reap::reap_orphans;
pub use self::run::{End, Finished, Launch, RunError, Running, Stopped, Terms};
pub use self::sandbox::{Confinement, Sandbox};
pub use self::service::{Pipes, Program, Service};
pub use self::spool::{Spool, Spooled};
pub use self::start::StartError;
pub use self::walk::{adopt_orphans, is_own_program};
