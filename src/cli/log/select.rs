//! Which events of a log are wanted: by position, time and type.

use jiff::Timestamp;

use super::super::happening::Envelope;
use super::super::{Failure, human};
use super::LogArgs;
use crate::clock::now_ms;

/// A place in a log as people say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A position.
    Seq(u64),
    /// A moment, in epoch milliseconds.
    Time(u64),
}

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    since: Option<Place>,
    until: Option<Place>,
    types: Vec<String>,
}

impl Selection {
    /// As the flags say.
    ///
    /// # Errors
    /// Wrong usage: a place that is neither position nor time.
    pub(super) fn of(args: &LogArgs) -> Result<Self, Failure> {
        let now = now_ms();
        let place = |flag: &str, text: &Option<String>| match text {
            Some(text) => place(text, now).map(Some).ok_or_else(|| {
                Failure::usage(format!("{flag}: {text:?} is neither a position nor a time"))
                    .with_help("a seq as 120, a time as 2026-12-01T10:00:00Z, or a while ago as 10m")
            }),
            None => Ok(None),
        };
        Ok(Self {
            since: place("--since", &args.since)?,
            until: place("--until", &args.until)?,
            types: args.types.clone(),
        })
    }

    /// The position after which reading can begin.
    pub(super) fn start(&self) -> Option<u64> {
        match self.since {
            Some(Place::Seq(seq)) => Some(seq),
            Some(Place::Time(_)) | None => None,
        }
    }

    /// Whether nothing after this event is wanted.
    pub(super) fn is_past(&self, event: &Envelope<'_>) -> bool {
        match self.until {
            Some(Place::Seq(seq)) => event.seq.is_some_and(|at| at > seq),
            Some(Place::Time(time_ms)) => event.time_ms > time_ms,
            None => false,
        }
    }

    /// Whether an event is wanted.
    pub(super) fn wants(&self, event: &Envelope<'_>) -> bool {
        let is_after = match self.since {
            Some(Place::Seq(seq)) => event.seq.is_none_or(|at| at > seq),
            Some(Place::Time(time_ms)) => event.time_ms > time_ms,
            None => true,
        };
        is_after && !self.is_past(event) && (self.types.is_empty() || self.has_type(&event.kind))
    }

    /// `tool` stands for `tool/call` and `tool/result`.
    fn has_type(&self, kind: &str) -> bool {
        self.types.iter().any(|wanted| {
            kind.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

fn place(text: &str, now_ms: u64) -> Option<Place> {
    if let Ok(seq) = text.parse() {
        return Some(Place::Seq(seq));
    }
    if let Ok(ago) = crate::config::duration::parse(text) {
        return Some(Place::Time(now_ms.saturating_sub(human::whole_ms(ago))));
    }
    let moment: Timestamp = text.parse().ok()?;
    u64::try_from(moment.as_millisecond()).ok().map(Place::Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_position_a_moment_or_a_while_ago() {
        assert_eq!(place("120", 0), Some(Place::Seq(120)));
        assert_eq!(place("10m", 700_000), Some(Place::Time(100_000)));
        assert_eq!(place("1970-01-01T00:00:01Z", 0), Some(Place::Time(1000)));
        assert_eq!(place("yesterday", 0), None);
    }

    #[track_caller]
    fn check(selection: &Selection, json: &str, expected: bool) {
        let event: Envelope<'_> = serde_json::from_str(json).unwrap();
        assert_eq!(selection.wants(&event), expected, "{json}");
    }

    #[test]
    fn since_is_exclusive_and_until_inclusive() {
        let selection =
            Selection { since: Some(Place::Seq(2)), until: Some(Place::Seq(4)), types: Vec::new() };
        for (seq, expected) in [(2, false), (3, true), (4, true), (5, false)] {
            check(&selection, &format!(r#"{{"type":"a/b","seq":{seq},"time":1,"data":{{}}}}"#), expected);
        }
    }

    #[test]
    fn a_type_stands_for_all_below_it() {
        let selection = Selection { types: vec!["tool".to_owned()], ..Selection::default() };
        check(&selection, r#"{"type":"tool/call","seq":1,"time":1,"data":{}}"#, true);
        check(&selection, r#"{"type":"toolbox","seq":1,"time":1,"data":{}}"#, false);
    }
}
