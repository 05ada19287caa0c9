//! dshd holds coding agents: one warm runtime that many clients share over Unix sockets, TCP and stdio.
//!
//! ARCHITECTURE.md names the layers; `tests/tidy.rs` asserts that a module names only modules further down.

pub mod auth;
pub mod cli;
pub mod client;
pub mod clock;
pub mod codec;
pub mod config;
pub mod connection;
pub mod daemon;
pub mod dispatch;
pub mod event;
pub mod expectation;
pub mod exporter;
pub mod handler;
pub mod image;
pub mod listener;
pub mod mcp;
pub mod metrics;
pub mod policy;
pub mod process;
pub mod protocol;
pub mod provider;
pub mod pulse;
pub mod rpc;
pub mod runtime;
pub mod session;
pub mod shutdown;
pub mod signal;
pub mod store;
pub mod telemetry;
pub mod tool;
pub mod turn;
