//! What the model gets from `glob`, to the byte.

use std::fs::File;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::tool::search::bench::{Bench, bench, bench_with};

const HOUR: Duration = Duration::from_hours(1);

async fn glob(bench: &Bench, arguments: Value) -> ToolOutput {
    bench.call(NAME, arguments).await
}

/// The paths of a result, sorted.
async fn paths(bench: &Bench, arguments: Value) -> Vec<String> {
    let output = glob(bench, arguments).await;
    assert!(!output.is_error, "{}", output.text);
    let meta: Value = serde_json::from_str(output.meta.unwrap().get()).unwrap();
    let mut paths: Vec<String> = serde_json::from_value(meta["paths"].clone()).unwrap();
    paths.sort();
    paths
}

fn age(bench: &Bench, name: &str, hours: u32) {
    let time = SystemTime::now() - HOUR * hours;
    File::options().append(true).open(bench.path(name)).unwrap().set_modified(time).unwrap();
}

#[tokio::test]
async fn files_come_newest_first_and_ties_by_path() {
    let bench = bench();
    let same = SystemTime::now() - HOUR * 2;
    for (name, hours) in [("old.rs", 9), ("src/new.rs", 1), ("mid.rs", 3)] {
        bench.file(name, "");
        age(&bench, name, hours);
    }
    for name in ["b.rs", "a.rs"] {
        bench.file(name, "");
        File::options().append(true).open(bench.path(name)).unwrap().set_modified(same).unwrap();
    }
    bench.file("not.txt", "");
    let output = glob(&bench, json!({"pattern": "*.rs"})).await;
    assert_eq!(output.text, "src/new.rs\na.rs\nb.rs\nmid.rs\nold.rs");
    assert_eq!(
        output.meta.unwrap().get(),
        r#"{"shape":"paths","paths":["src/new.rs","a.rs","b.rs","mid.rs","old.rs"],"truncated":false,"total":5}"#
    );
}

#[tokio::test]
async fn nothing_found_says_so() {
    let bench = bench();
    let output = glob(&bench, json!({"pattern": "*.rs"})).await;
    assert_eq!(output.text, "No files found");
    assert!(!output.is_error);
    assert_eq!(output.meta.unwrap().get(), r#"{"shape":"paths","paths":[],"truncated":false,"total":0}"#);
}

#[tokio::test]
async fn more_files_than_are_listed_are_counted_and_the_newest_kept() {
    let bench = bench_with(|config| config.tools.glob_paths = 2);
    for (name, hours) in [("a", 4), ("b", 1), ("c", 3), ("d", 2)] {
        bench.file(name, "");
        age(&bench, name, hours);
    }
    let output = glob(&bench, json!({"pattern": "*"})).await;
    assert_eq!(
        output.text,
        "b\nd\n\n(Showing 2 of 4 paths, newest first. Narrow pattern or path to see more.)"
    );
    assert_eq!(
        output.meta.unwrap().get(),
        r#"{"shape":"paths","paths":["b","d"],"truncated":true,"total":4}"#
    );
}

#[tokio::test]
async fn what_gitignore_names_is_left_out_also_outside_of_a_repository() {
    let bench = bench();
    bench.file(".gitignore", "target/\n*.log\n!keep.log\n");
    for name in
        ["a.rs", "target/b.rs", "x.log", "keep.log", "src/y.log", "src/deep/.gitignore", "src/deep/z.rs"]
    {
        bench.file(name, "");
    }
    bench.file("src/deep/.gitignore", "z.rs\n");
    assert_eq!(paths(&bench, json!({"pattern": "**"})).await, ["a.rs", "keep.log"]);
    // Rules of the directories above the one that is searched hold, too.
    assert!(paths(&bench, json!({"pattern": "*.log", "path": "src"})).await.is_empty());
    // Who names an ignored directory means it.
    assert_eq!(paths(&bench, json!({"pattern": "*.rs", "path": "target"})).await, ["target/b.rs"]);
}

#[tokio::test]
async fn rules_above_a_working_directory_that_is_no_repository_are_not_its_own() {
    let mut bench = bench();
    bench.file(".gitignore", "*\n");
    bench.file("project/a.rs", "");
    bench.context.cwd = bench.path("project");
    assert_eq!(paths(&bench, json!({"pattern": "*.rs"})).await, ["a.rs"]);
    // In a repository they are.
    bench.file(".git/HEAD", "");
    assert!(paths(&bench, json!({"pattern": "*.rs"})).await.is_empty());
}

#[tokio::test]
async fn hidden_files_are_listed_when_the_pattern_names_them_and_version_control_never() {
    let bench = bench();
    for name in [".env", "a", ".github/w/ci.yml", ".git/config", ".git/w/ci.yml", "x/.hidden/ci.yml"] {
        bench.file(name, "");
    }
    assert_eq!(paths(&bench, json!({"pattern": "**"})).await, ["a"]);
    assert_eq!(paths(&bench, json!({"pattern": ".env"})).await, [".env"]);
    assert_eq!(paths(&bench, json!({"pattern": ".github/**/*.yml"})).await, [".github/w/ci.yml"]);
    assert_eq!(
        paths(&bench, json!({"pattern": "**/.*/**/*.yml"})).await,
        [".github/w/ci.yml", "x/.hidden/ci.yml"]
    );
    assert_eq!(paths(&bench, json!({"pattern": "*.yml", "path": ".github"})).await, [".github/w/ci.yml"]);
}

#[tokio::test]
async fn patterns_may_be_absolute_or_climb_and_are_seen_from_either_directory() {
    let mut bench = bench();
    for name in ["a/src/x.rs", "b/y.rs"] {
        bench.file(name, "");
    }
    let absolute = bench.path("a/src/*.rs");
    assert_eq!(paths(&bench, json!({"pattern": absolute})).await, ["a/src/x.rs"]);
    assert_eq!(paths(&bench, json!({"pattern": "src/*.rs", "path": "a"})).await, ["a/src/x.rs"]);
    assert_eq!(paths(&bench, json!({"pattern": "a/src/*.rs", "path": "a"})).await, ["a/src/x.rs"]);
    let outside = bench.path("b/y.rs").display().to_string();
    bench.context.cwd = bench.path("a");
    assert_eq!(paths(&bench, json!({"pattern": "../b/*.rs"})).await, ["../b/y.rs"]);
    assert_eq!(paths(&bench, json!({"pattern": outside})).await, [outside]);
}

#[tokio::test]
async fn links_are_not_followed_unless_the_search_begins_at_one() {
    let bench = bench();
    bench.file("real/a.rs", "");
    std::os::unix::fs::symlink(".", bench.path("real/loop")).unwrap();
    std::os::unix::fs::symlink(bench.path("real"), bench.path("link")).unwrap();
    assert_eq!(paths(&bench, json!({"pattern": "*.rs"})).await, ["real/a.rs"]);
    assert_eq!(paths(&bench, json!({"pattern": "*.rs", "path": "link"})).await, ["link/a.rs"]);
}

#[tokio::test]
async fn wrong_patterns_and_paths_are_told() {
    let bench = bench();
    bench.file("f", "");
    for (arguments, code, text) in [
        (
            json!({"pattern": "a["}),
            "SEARCH_INVALID_PATTERN",
            "Error: invalid glob \"a[\": unclosed character class; missing ']'",
        ),
        (json!({"pattern": ""}), "SEARCH_INVALID_PATTERN", "Error: invalid glob \"\": it is empty"),
        (
            json!({"pattern": "*/../x"}),
            "SEARCH_INVALID_PATTERN",
            "Error: invalid glob \"*/../x\": \"..\" can only be at its start",
        ),
        (
            json!({"pattern": 7}),
            "INVALID_ARGS",
            "Error: invalid arguments for glob: `pattern`: invalid type: integer `7`, expected a string",
        ),
    ] {
        let output = glob(&bench, arguments).await;
        assert_eq!(output.text, text);
        assert_eq!(output.error.unwrap().code, code);
    }
    let output = glob(&bench, json!({"pattern": "*", "path": "none"})).await;
    assert_eq!(output.text, format!("Error: no such file or directory: {}", bench.path("none").display()));
    assert_eq!(output.error.unwrap().code, "FS_NOT_FOUND");
    let output = glob(&bench, json!({"pattern": "*", "path": "f"})).await;
    assert_eq!(output.error.unwrap().code, "INVALID_ARGS");
}

#[tokio::test]
async fn a_search_that_is_cancelled_before_it_begins_finds_nothing() {
    let bench = bench();
    bench.context.cancel.cancel();
    let output = glob(&bench, json!({"pattern": "*"})).await;
    assert_eq!(output.error.unwrap().code, "ABORTED");
}
