//! The one line that a peer gets who is not let in.

use crate::auth::peer::{PeerInfo, PeerKind};
use crate::listener::Refusals;
use crate::rpc::{self, ErrorKind, RpcError};

/// What listeners tell peers that they refuse.
pub fn refusals() -> Refusals {
    Refusals { unauthenticated, tool, limit_exceeded }
}

fn unauthenticated(peer: &PeerInfo) -> Vec<u8> {
    let who = match peer.kind {
        PeerKind::Unix { uid, .. } => format!("user {uid} may not use this daemon"),
        PeerKind::Tcp { .. } | PeerKind::Stdio => "this peer may not use this daemon".to_owned(),
    };
    let help = "ask its owner to add your uid to auth.allowed_uids, or start your own with dshd serve";
    line(&RpcError::new(ErrorKind::Unauthenticated, who).with("help", &help))
}

fn tool() -> Vec<u8> {
    let why = "what an agent runs may not command the daemon that runs it";
    line(
        &RpcError::new(ErrorKind::Unauthenticated, why.to_owned())
            .with("help", &"use the tool subagent, or run it yourself"),
    )
}

fn limit_exceeded(limit: &'static str, max: usize) -> Vec<u8> {
    let message = format!("the daemon serves as many connections as it may (limits.{limit} = {max})");
    line(&RpcError::new(ErrorKind::LimitExceeded, message).with("limit", &limit).with("max", &max))
}

fn line(error: &RpcError) -> Vec<u8> {
    rpc::response::<()>(None, Err(error)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_user_learns_what_to_do() {
        let peer = PeerInfo::new(PeerKind::Unix { uid: 7, pid: None });
        let line = String::from_utf8((refusals().unauthenticated)(&peer)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["error"]["code"], -32003);
        assert!(value["error"]["data"]["help"].as_str().unwrap().contains("allowed_uids"));
        assert!(line.ends_with('\n'));
    }

    #[test]
    fn a_program_of_an_agent_learns_why() {
        let line = String::from_utf8((refusals().tool)()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["error"]["code"], -32003);
        assert!(value["error"]["message"].as_str().unwrap().contains("what an agent runs"));
    }

    #[test]
    fn a_full_daemon_names_its_limit() {
        let line = String::from_utf8((refusals().limit_exceeded)("connections", 4)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["error"]["data"]["kind"], "limit_exceeded");
        assert_eq!(value["error"]["data"]["limit"], "connections");
        assert_eq!(value["error"]["data"]["max"], 4);
    }
}
