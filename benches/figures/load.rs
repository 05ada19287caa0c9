//! Load: many connections, slow ones and those that vanish. Plain sockets, so that what is measured is the daemon.

pub(crate) mod fanout;
pub(crate) mod idle;
pub(crate) mod readers;
pub(crate) mod strangers;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::daemon::Peer;

/// Variables of a daemon that lets many in.
pub(crate) const MANY: [(&str, &str); 4] = [
    ("DSHD_LIMITS__CONNECTIONS", "12000"),
    ("DSHD_LIMITS__CONNECTIONS_PER_UID", "12000"),
    ("DSHD_LIMITS__WRITE_PROGRESS", "1h"),
    ("DSHD_LIMITS__LOADED_SESSIONS", "2000"),
];

/// Lets this process have as many descriptors as it may.
pub(crate) fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Follows a session from its start.
pub(crate) fn follow(peer: &mut Peer, session: &str) {
    peer.call("session/subscribe", &json!({ "sessionId": session, "since": -1 }));
}

/// What a follower was told: a hash of its numbered events and of its text, and whether they came in order.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) events: u32,
    pub(crate) text: u32,
    pub(crate) next: u64,
    pub(crate) deltas: u64,
}

impl Told {
    /// Takes a line. Nothing is parsed but what is looked for: the generator must not be what is measured.
    pub(crate) fn take(&mut self, line: &str) {
        if let Some(text) = between(line, "\"type\":\"text-delta\",\"index\":0,\"text\":\"", "\"}}") {
            self.deltas += 1;
            self.text = crc32c::crc32c_append(self.text, text.as_bytes());
        } else if let Some(seq) = between(line, "\",\"seq\":", ",") {
            let seq: u64 = seq.parse().unwrap();
            assert_eq!(seq, self.next, "a gap, a double or another order: {}", &line[..line.len().min(200)]);
            self.next = seq + 1;
            self.events = crc32c::crc32c_append(self.events, line.as_bytes());
        }
    }

    /// Reads until the event of `last`.
    pub(crate) fn read_to(&mut self, peer: &mut Peer, last: u64) {
        while self.next <= last {
            let line = peer.next();
            if let Some(seq) = between(line, "\",\"seq\":", ",")
                && !line.contains("\"transient\":true")
            {
                let seq: u64 = seq.parse().unwrap();
                assert_eq!(seq, self.next, "a gap, a double or another order");
                self.next = seq + 1;
                self.events = crc32c::crc32c_append(self.events, line.as_bytes());
            }
        }
    }
}

/// What stands between two marks.
pub(crate) fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let from = line.find(before)? + before.len();
    let to = line[from..].find(after)?;
    Some(&line[from..from + to])
}

/// Where a session is.
pub(crate) fn last(peer: &mut Peer, session: &str) -> u64 {
    let reply: Value = peer.call("session/read", &json!({ "sessionId": session, "limit": 1 }));
    reply["result"]["lastSeq"].as_u64().unwrap()
}
