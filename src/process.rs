//! Child processes: groups, limits, output caps, kill. Also the lock files that keep one process to one place.

pub mod lock;
