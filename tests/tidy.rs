//! What a reader may rely on: layers, sizes, a first line that says what a file is for, documents that tell the truth.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't read its own repository has failed"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Upper layers first. A module names only modules further down; those on one line may name each other.
const LAYERS: &[&[&str]] = &[
    &["main"],
    &["cli"],
    &["client", "daemon"],
    &["exporter"],
    &["listener", "connection"],
    &["dispatch"],
    &["handler"],
    &["auth", "codec"],
    &["protocol"],
    &["rpc"],
    &["runtime"],
    &["session"],
    &["turn"],
    &["provider", "tool"],
    &["mcp"],
    &["policy"],
    &["process"],
    &["store"],
    &["config", "telemetry"],
    &["image"],
    &["event"],
    &["clock", "expectation", "metrics", "pulse", "shutdown", "signal"],
];

/// Lines of a file before its tests.
const FILE_LINES_MAX: usize = 500;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sources(under: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(under)];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn name_of(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// A file's text without what is compiled for tests only.
fn without_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at])
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

#[test]
fn a_module_names_only_modules_further_down() {
    let mut wrong = String::new();
    for path in sources("src") {
        let name = name_of(&path);
        let module = name.trim_start_matches("src/").split(['/', '.']).next().unwrap().to_owned();
        if module == "lib" || name.ends_with("/tests.rs") || name.contains("test_") {
            continue;
        }
        let Some(own) = layer_of(&module) else { panic!("{name}: module {module} is in no layer") };
        let text = std::fs::read_to_string(&path).unwrap();
        for other in without_tests(&text).split("crate::").skip(1) {
            let other: String = other.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if other == module || other.is_empty() {
                continue;
            }
            let Some(layer) = layer_of(&other) else { panic!("{name}: module {other} is in no layer") };
            if layer < own {
                let _ = writeln!(wrong, "{name} names {other}, which is above it");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn files_are_of_a_readable_size_and_say_what_they_are_for() {
    let mut wrong = String::new();
    for path in sources("src").into_iter().chain(sources("tests")).chain(sources("benches")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = without_tests(&text).lines().count();
        if lines > FILE_LINES_MAX {
            let _ = writeln!(wrong, "{}: {lines} lines before its tests", name_of(&path));
        }
        if !text.starts_with("//!") {
            let _ = writeln!(wrong, "{}: does not begin with //!", name_of(&path));
        }
        if path.ends_with("mod.rs") {
            let _ = writeln!(wrong, "{}: foo.rs beside foo/, never mod.rs", name_of(&path));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn main_reads_as_a_checklist() {
    assert!(read("src/main.rs").lines().count() <= 120);
}

#[test]
fn every_method_is_in_the_protocol_page() {
    let page = read("docs/protocol.md");
    let missing: BTreeSet<&str> = dshd::protocol::Method::ALL
        .iter()
        .map(|method| method.name())
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_pages_that_stand_at_the_root_are_there() {
    for page in
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "config/dshd.toml"]
    {
        assert!(!read(page).is_empty(), "{page}");
    }
}

#[test]
fn nothing_that_is_banned_stands_in_the_sources() {
    let mut wrong = String::new();
    for path in sources("src") {
        let text = std::fs::read_to_string(&path).unwrap();
        for banned in ["#[allow(", "#![allow(", "todo!(", "unimplemented!(", "FIXME"] {
            if text.contains(banned) {
                let _ = writeln!(wrong, "{}: {banned}", name_of(&path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_tool_is_in_the_page_of_tools() {
    let page = read("docs/tools.md");
    for tool in [
        "bash",
        "read",
        "write",
        "edit",
        "glob",
        "grep",
        "todo_write",
        "subagent",
        "job_list",
        "job_output",
        "job_kill",
        "web_fetch",
    ] {
        assert!(page.contains(&format!("`{tool}")), "docs/tools.md says nothing of {tool}");
    }
}

#[test]
fn no_page_holds_the_marks_of_a_merge() {
    for page in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "config/dshd.toml"]
        .into_iter()
        .chain([
            "docs/protocol.md",
            "docs/tools.md",
            "docs/models.md",
            "docs/scripted.md",
            "docs/operations.md",
            "docs/remote.md",
            "docs/security.md",
        ])
    {
        let marked =
            |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") || line == "=======";
        assert!(!read(page).lines().any(marked), "{page}");
    }
}

/// The seconds that a unit gives a key.
fn unit_seconds(unit: &str, key: &str) -> u64 {
    let text = read(unit);
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{unit}: no seconds in {key}"))
}

/// What else the end of a daemon may take beyond `[shutdown]`: see `daemon::ending`.
const ENDING_REST_SECONDS: u64 = 20;

/// A wedged runtime ends its process after this by itself, and says so: see `daemon::watchdog`.
const WEDGED_SECONDS: u64 = 30;

#[test]
fn a_service_manager_waits_longer_than_an_end_may_take() {
    let shutdown = dshd::config::Config::default().shutdown;
    let longest = (2 * shutdown.drain_timeout + shutdown.cancel_grace).as_secs() + ENDING_REST_SECONDS;
    for unit in ["systemd/dshd.service", "systemd/user/dshd.service"] {
        assert!(unit_seconds(unit, "TimeoutStopSec") > longest, "{unit}: an end may take {longest} s");
        assert!(unit_seconds(unit, "WatchdogSec") > WEDGED_SECONDS, "{unit}");
    }
}

#[test]
fn a_unit_reloads_by_a_signal_and_stops_its_main_process_first() {
    for unit in ["systemd/dshd.service", "systemd/user/dshd.service"] {
        let text = read(unit);
        for line in
            ["Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "KillMode=mixed", "OOMPolicy=continue"]
        {
            assert!(text.lines().any(|other| other == line), "{unit}: no {line}");
        }
    }
    for (unit, name) in [("dshd.socket", "unix"), ("user/dshd.socket", "unix"), ("dshd-tcp.socket", "tcp")] {
        let text = read(Path::new("systemd").join(unit));
        assert!(text.contains(&format!("\nFileDescriptorName={name}\n")), "{unit}: not named {name}");
    }
}

#[test]
fn the_package_holds_what_there_is() {
    let manifest: toml_edit::DocumentMut = read("Cargo.toml").parse().unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let assets = deb["assets"].as_array().unwrap();
    assert!(assets.len() > 10);
    for asset in assets {
        let from = asset.as_array().unwrap().get(0).unwrap().as_str().unwrap();
        assert!(from.starts_with("target/") || root().join(from).exists(), "{from}");
    }
    for script in ["postinst", "prerm", "postrm"] {
        let text = read(Path::new(deb["maintainer-scripts"].as_str().unwrap()).join(script));
        assert!(text.starts_with("#!/bin/sh\nset -e\n"), "{script}");
    }
}

#[test]
fn every_proof_that_the_page_of_security_names_is_there() {
    let page = read("docs/security.md");
    let proofs: Vec<&str> =
        page.split('`').filter(|word| word.starts_with("src/") || word.starts_with("tests/")).collect();
    assert!(proofs.len() > 8, "{proofs:?}");
    for proof in proofs {
        assert!(root().join(proof).exists(), "{proof}");
    }
}
