//! A scripted model as the default of a home, and the log of a session as it is on disk.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Daemon, Home};

impl Home {
    /// Makes a model that plays these lines (docs/scripted.md) the default; `tables` is more configuration.
    pub(crate) fn scripted(&self, lines: &[&str], tables: &str) {
        let script = self.path("script.jsonl");
        fs::write(&script, lines.join("\n")).unwrap();
        self.configure(&format!(
            "default_provider = \"scripted\"\n\n[providers.scripted]\nkind = \"scripted\"\nscript = {:?}\n\
             retry_base = \"10ms\"\n\n{tables}\n",
            script.to_str().unwrap()
        ));
    }

    /// Where the log of a session is.
    pub(crate) fn log_path(&self, session: &str) -> PathBuf {
        use std::fmt::Write as _;
        let mut name = String::new();
        for byte in Sha256::digest(session.as_bytes()) {
            write!(name, "{byte:02x}").unwrap();
        }
        self.data().join("sessions").join(&name[..2]).join(name).join("log.jsonl")
    }

    /// The events in the log of a session, as they are on disk.
    pub(crate) fn logged(&self, session: &str) -> Vec<Value> {
        let path = self.log_path(session);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}: {}", path.display()));
        assert!(text.ends_with('\n'), "the log ends in the middle of a line: {text}");
        // The first line is the header.
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Daemon {
    /// Serves the default socket of a new home with a scripted model.
    pub(crate) fn scripted(lines: &[&str], tables: &str) -> Self {
        let home = Home::new();
        home.scripted(lines, tables);
        Self::start_in(&home, [] as [&str; 0])
    }
}

/// The events of one type.
pub(crate) fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// Fails unless the positions are 0, 1, 2, ….
#[track_caller]
pub(crate) fn assert_dense(events: &[Value]) {
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], at, "position {at} holds {event}");
    }
}
