//! The README names only what there is: commands, files, and tests that hold its promises.

#![expect(clippy::unwrap_used, reason = "a test that can't read its own repository has failed")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The words that stand behind `dshd ` in the README, where a subcommand would.
fn subcommands(text: &str) -> BTreeSet<&str> {
    let starts = ["$ dshd ", "`dshd "];
    let after = starts.iter().flat_map(|start| text.split(start).skip(1));
    after
        .filter_map(|rest| rest.split([' ', '`', '\n']).next())
        .filter(|word| !word.starts_with('-'))
        .collect()
}

#[test]
fn every_command_that_it_names_is_there() {
    let text = readme();
    let named = subcommands(&text);
    assert!(named.contains("prompt") && named.len() > 10, "{named:?}");
    for subcommand in named {
        let output = Command::new(env!("CARGO_BIN_EXE_dshd")).args([subcommand, "--help"]).output().unwrap();
        assert!(output.status.success(), "dshd {subcommand}");
    }
}

#[test]
fn every_file_that_it_names_is_there() {
    let text = readme();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let proofs = text.split('`').filter(|word| word.starts_with("src/") || word.starts_with("tests/"));
    let files: Vec<&str> = linked.chain(proofs).filter(|target| !target.starts_with("http")).collect();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        assert!(root.join(file).exists(), "{file}");
    }
}

#[test]
fn it_stays_short() {
    assert!(readme().lines().count() <= 250);
}
