//! The `dshd` binary.

fn main() {}
