//! The figures: `cargo bench` runs them all and prints one JSON object, machine facts beside them.
//!
//! Everything that is compared is measured in one run. `cargo bench -- NAME…` runs only the figures whose names contain
//! one of the words. `QUICK=1` makes them smaller, to see that they work.
//!
//! On 2026-12-01, 2 cores of an AMD EPYC, Linux 6.18, 24 GiB, release: start 2.6 ms over the minimal program; 11,280 KiB
//! after one turn; 23 KiB a loaded idle session; latency p50 0.14 ms, p99 0.35 ms; 5,000 deltas at 784,000 a second; a
//! million deltas 0.66 s of CPU; 100 sessions 2.10 s of 2.0, delay p99 1.7 ms, 0.9 s of CPU; a settled turn 0.86 ms beside
//! a model of 0.03 ms and an fdatasync of 0.17 ms; 470,000 appends, 2,860 synced, 19,200 synced of 15 sessions a second;
//! codec 21.7 M lines, envelope 1.86 M requests (generic value 1.30 M), encode 3.09 M events a second.
//!
//! Load, the same machine: 9,800 idle connections 8.4 KiB each, 0 % CPU, a turn among them 0.75 ms beside 0.73; 1,000
//! subscribers p99 1.9 ms; 256 followers of 20,000 deltas a second 1.0 s of CPU beside 0.06 s for one, 509 frames each; 20,000
//! events written in 0.13 s; 100,000 sessions ready in 14 ms, listed in 1.2 ms, 375 bytes each. 50 stopped readers
//! beside one that loses nothing: 35 MiB; 2 GB to one client: 5.5 to 14 MiB a GB, where 1 is the goal. 20,000 slow strangers: a good
//! client's initialize p99 7.2 ms, 64 held, none left. With TLS, health and sandboxes in the program: 16,850 KiB after a turn,
//! where 12 MiB is the goal, start 4.2 ms, 39 KiB a loaded idle session.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench measures real time, prints its result, and ends loudly when the machine fails it"
)]

mod daemon;
mod disk;
mod history;
mod load;
mod machine;
mod micro;
mod model;
mod process;
mod search;
mod turns;

use serde_json::{Map, Value, json};

/// Something that measures: its name, and what it found.
type Figure = (&'static str, fn() -> Value);

const FIGURES: &[Figure] = &[
    ("codec", micro::codec),
    ("envelope", micro::envelope),
    ("encode", micro::encode),
    ("append", micro::append),
    ("search", search::search),
    ("start", process::start),
    ("memory", process::memory),
    ("turn", turns::turn),
    ("steps_50", turns::steps),
    ("history_10000", history::history),
    ("latency", turns::latency),
    ("deltas_5000", turns::deltas),
    ("million_deltas", turns::million),
    ("sessions_100", turns::sessions),
    ("sessions_on_disk", disk::sessions),
    ("idle_10000", load::idle::connections),
    ("subscribers_1000", load::fanout::subscribers),
    ("fanout_256", load::fanout::session),
    ("stopped_readers", load::readers::stopped),
    ("pause_20000", load::readers::pause),
    ("two_gigabytes", load::readers::gigabytes),
    ("killed_1000", load::idle::killed),
    ("strangers", load::strangers::slow),
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    if std::env::args().nth(1).as_deref() == Some("--minimal-server") {
        return process::minimal_server(&arguments.next().expect("a socket path"));
    }
    let words: Vec<String> = arguments.collect();
    let mut found = Map::new();
    for (name, measure) in FIGURES {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            eprintln!("{name} …");
            found.insert((*name).to_owned(), measure());
        }
    }
    println!(
        "{}",
        serde_json::to_string_pretty(&json!({"machine": machine::facts(), "figures": found})).unwrap()
    );
}

/// How large: the full size, or a smaller one under `QUICK`.
fn sized(full: usize, quick: usize) -> usize {
    if std::env::var_os("QUICK").is_some() { quick } else { full }
}

/// The value below which `share` of the sorted samples lie.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let at = ((sorted.len() as f64 - 1.0) * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
