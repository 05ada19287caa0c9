//! The built program, seen from outside: commands, transports, frames, endings. One binary, so that it links once.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that can't go on has failed, and says where"
)]

mod abuse;
mod approvals;
mod attach;
mod brakes;
mod budget;
mod canary;
mod cancel;
mod cli_daemon;
mod cli_model;
mod cli_prompt;
mod cli_reach;
mod compaction;
mod crash;
mod docs;
mod errors;
mod exporter;
mod faults;
mod files;
mod follow;
mod framing;
mod full_disk;
mod golden;
mod hidden;
mod images;
mod initialize;
mod instructions;
mod interop;
mod jobs;
mod keys;
mod lifecycle;
mod limits;
mod mcp;
mod model_server;
mod models;
mod overlap;
mod power;
mod processes;
mod prompts;
mod reconnect;
mod remote;
mod repository;
mod sandbox;
mod search;
mod service;
mod sessions;
mod slow;
mod soak;
mod stage;
mod stdio;
mod steer;
mod strangers;
mod subagents;
mod support;
mod top;
mod unixsocket;
mod update;
mod web_fetch;
