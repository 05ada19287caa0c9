//! What clients were told and promised over all lives of a daemon, and whether its logs keep it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Deserialize;
use serde_json::Value;

/// The notes of all clients. Cheap to clone; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<BTreeMap<String, Session>>>);

#[derive(Debug, Default)]
struct Session {
    /// What was seen: by position, the life and the bytes.
    seen: BTreeMap<u64, (u64, String)>,
    /// What was said, heard or not.
    said: Vec<String>,
    /// What was said with a key and may not have been heard.
    keyed: BTreeMap<String, String>,
    /// What was promised to be there, by message.
    promised: BTreeMap<String, Promise>,
}

#[derive(Debug)]
struct Promise {
    said: String,
    /// How its turn was told to have ended.
    reason: Option<Value>,
}

#[derive(Deserialize)]
struct Place {
    seq: Option<u64>,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.0.lock().unwrap()
    }

    fn with<T>(&self, session: &str, change: impl FnOnce(&mut Session) -> T) -> T {
        change(self.lock().entry(session.to_owned()).or_default())
    }

    /// An event was told.
    pub(super) fn saw(&self, session: &str, epoch: u64, event: &str) {
        let place: Place = serde_json::from_str(event).unwrap();
        // Without a position it is transient.
        let Some(seq) = place.seq else { return };
        self.with(session, |known| {
            let now = (epoch, event.to_owned());
            let before = known.seen.entry(seq).or_insert_with(|| now.clone());
            assert_eq!(*before, now, "{session}: position {seq} was told in two ways");
        });
    }

    /// A prompt is about to be sent.
    pub(super) fn will_say(&self, session: &str, said: &str, key: Option<&str>) {
        self.with(session, |known| match key {
            Some(key) => drop(known.keyed.insert(key.to_owned(), said.to_owned())),
            None => known.said.push(said.to_owned()),
        });
    }

    /// A prompt was answered.
    pub(super) fn promise(&self, session: &str, said: &str, key: Option<&str>, outcome: &Value) {
        let message = outcome["messageId"].as_str().unwrap().to_owned();
        self.with(session, |known| {
            let same = |(id, promise): (&String, &Promise)| promise.said != said || *id == message;
            assert!(key.is_none() || known.promised.iter().all(same), "{session}: {said} has two messages");
            let reason = outcome.get("reason").cloned();
            let promise = known
                .promised
                .entry(message)
                .or_insert_with(|| Promise { said: said.to_owned(), reason: None });
            assert!(
                promise.reason.is_none() || promise.reason == reason,
                "{session}: {said} ended in two ways"
            );
            promise.reason = reason;
        });
    }

    /// Whether anybody has seen anything of a session.
    pub(super) fn knows(&self, session: &str) -> bool {
        self.lock().get(session).is_some_and(|known| !known.seen.is_empty() || !known.promised.is_empty())
    }

    /// The last that anybody saw.
    pub(super) fn cursor(&self, session: &str) -> Option<(u64, u64)> {
        self.lock().get(session)?.seen.last_key_value().map(|(seq, (epoch, _))| (*epoch, *seq))
    }

    /// What was said with a key, heard or not.
    pub(super) fn keyed(&self, session: &str) -> Vec<(String, String)> {
        self.with(session, |known| known.keyed.clone().into_iter().collect())
    }

    /// The sessions that anybody has seen anything of.
    pub(super) fn sessions(&self) -> Vec<String> {
        let all: Vec<String> = self.lock().keys().cloned().collect();
        all.into_iter().filter(|session| self.knows(session)).collect()
    }

    /// Events seen and prompts promised.
    pub(super) fn counts(&self) -> (u64, u64) {
        let sum = |count: fn(&Session) -> usize| self.lock().values().map(count).sum::<usize>() as u64;
        (sum(|session| session.seen.len()), sum(|session| session.promised.len()))
    }

    /// Fails unless a log holds all that was seen and promised, once.
    pub(super) fn check(&self, session: &str, log: &[String]) {
        let log = Log::read(session, log);
        self.with(session, |known| {
            for (seq, seen) in &known.seen {
                let here = log.at(*seq);
                assert_eq!(here, Some(seen), "{session}: position {seq} is not what was seen");
            }
            for (message, promise) in &known.promised {
                assert_eq!(
                    log.inserts.get(message),
                    Some(&promise.said),
                    "{session}: {message} was promised"
                );
                if let Some(reason) = &promise.reason {
                    assert_eq!(log.ends.get(message), Some(reason), "{session}: how {} ended", promise.said);
                }
            }
            for said in &known.said {
                assert!(log.times_said(said) <= 1, "{session}: {said} is there twice");
            }
            for said in known.keyed.values() {
                assert!(log.times_said(said) <= 1, "{session}: {said} is there twice in spite of its key");
            }
        });
    }

    /// Fails unless all that was said with a key, and said again, is there once.
    pub(super) fn check_keys(&self, session: &str, log: &[String]) {
        let log = Log::read(session, log);
        for (key, said) in self.keyed(session) {
            assert_eq!(log.times_said(&said), 1, "{session}: {key}");
        }
    }
}

/// A log as far as notes are about it.
#[derive(Debug, Default)]
struct Log {
    /// Life and bytes by position.
    lines: Vec<(u64, String)>,
    /// Messages that wait.
    queue: Vec<String>,
    /// Texts by message.
    inserts: HashMap<String, String>,
    /// How the turns of messages ended.
    ends: HashMap<String, Value>,
}

impl Log {
    /// Reads a log. What is no sequence of whole turns fails here.
    fn read(session: &str, events: &[String]) -> Self {
        let mut log = Self::default();
        let (mut epoch, mut turn, mut running) = (0, 0, None);
        for (at, line) in events.iter().enumerate() {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(event["seq"], at, "{session}: positions are dense");
            let data = &event["data"];
            match event["type"].as_str().unwrap() {
                "session/opened" => epoch = data["epoch"].as_u64().unwrap(),
                "agent/inbox/spliced" => {
                    if let Some(claimed) = log.splice(session, data) {
                        let begun = running.replace(Some(claimed));
                        assert_eq!(begun, Some(None), "{session}: claimed without a turn, or twice, at {at}");
                    }
                }
                "turn/start" => {
                    assert!(running.is_none(), "{session}: a turn began in another at {at}");
                    turn += 1;
                    assert_eq!(data["turn"], turn, "{session}: at {at}");
                    running = Some(None);
                }
                "user/message" if data["source"]["kind"] == "user" => {
                    let message = data["id"].as_str().map(str::to_owned);
                    assert_eq!(running, Some(message), "{session}: at {at}");
                }
                "turn/end" => {
                    let message = running.take().unwrap_or_else(|| panic!("{session}: no turn ends at {at}"));
                    if let Some(message) = message {
                        let before = log.ends.insert(message, data["reason"].clone());
                        assert!(
                            before.is_none(),
                            "{session}: a message had two turns, the second until {at}"
                        );
                    }
                }
                _ => {}
            }
            log.lines.push((epoch, line.clone()));
        }
        log
    }

    /// Returns the message that was taken out of the queue.
    fn splice(&mut self, session: &str, data: &Value) -> Option<String> {
        let start = usize::try_from(data["start"].as_u64().unwrap()).unwrap();
        for message in data["inserted"].as_array().unwrap() {
            let id = message["id"].as_str().unwrap().to_owned();
            let said = message["content"][0]["text"].as_str().unwrap().to_owned();
            self.queue.insert(start, id.clone());
            let before = self.inserts.insert(id, said);
            assert!(before.is_none(), "{session}: inserted twice: {message}");
        }
        (data["removedCount"] == 1).then(|| self.queue.remove(start))
    }

    fn at(&self, seq: u64) -> Option<&(u64, String)> {
        self.lines.get(usize::try_from(seq).unwrap())
    }

    fn times_said(&self, said: &str) -> usize {
        self.inserts.values().filter(|text| *text == said).count()
    }
}
