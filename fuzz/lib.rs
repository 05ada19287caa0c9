//! Fuzz targets, one a file in `tests/`. On a stable toolchain `cargo test` runs each on random inputs;
//! `cargo bolero test NAME` (cargo install cargo-bolero) lets a coverage-guided engine look.
