//! How a daemon comes, who it is, how it goes, and what it withstands meanwhile.

mod crowd;
mod ending;
mod identity;
mod pressure;
mod reload;
mod start;

/// Answers in one step.
const ANSWER: &str = r#"{"parts":[{"text":"done"}]}"#;

/// Says something, then nothing for ever.
const STALL: &str = r#"{"prompt":"stall","parts":[{"text":"on it"},{"stall":true}]}"#;

/// Runs a command that ends once there is a file `go` in the workspace, then answers.
const WAIT_FOR_GO: &str = r#"{"prompt":"go","step":1,"parts":[{"tool":"bash","arguments":{"command":"until [ -e go ]; do sleep 0.02; done"}}]}"#;
