//! The figures: `cargo bench` runs them all and prints one JSON object, machine facts beside them.
//!
//! Everything that is compared is measured in one run. `cargo bench -- NAME…` runs only the figures whose names contain
//! one of the words. `QUICK=1` makes them smaller, to see that they work.

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
mod machine;
mod micro;
mod model;
mod process;
mod turns;

use serde_json::{Map, Value, json};

/// Something that measures: its name, and what it found.
type Figure = (&'static str, fn() -> Value);

const FIGURES: &[Figure] = &[
    ("codec", micro::codec),
    ("envelope", micro::envelope),
    ("encode", micro::encode),
    ("append", micro::append),
    ("start", process::start),
    ("memory", process::memory),
    ("turn", turns::turn),
    ("latency", turns::latency),
    ("deltas_5000", turns::deltas),
    ("million_deltas", turns::million),
    ("sessions_100", turns::sessions),
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
