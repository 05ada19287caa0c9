//! Child processes: groups, limits, output caps, kill.
