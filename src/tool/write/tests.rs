//! What the model gets from `write`, and what becomes of the file: for `edit`, too.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use serde_json::json;

use crate::config::ByteSize;
use crate::event::PermissionMode;
use crate::tool::test_bench::{Bench, bench, bench_with, code};

fn framed(bench: &Bench, name: &str, done: &str) -> String {
    let path = bench.path(name);
    format!("<path>{}</path>\n<type>file</type>\n<content>\n{done}\n</content>", path.display())
}

#[tokio::test]
async fn result_texts_are_exact() {
    let bench = bench();
    let output = bench.write("f", "one\n").await;
    assert_eq!(output.text, framed(&bench, "f", "Created file"));
    assert!(output.meta.unwrap().get().starts_with(r#"{"operation":"create","path":""#));
    let output = bench.write("f", "two\n").await;
    assert_eq!(output.text, framed(&bench, "f", "Updated file"));
    assert!(output.meta.unwrap().get().starts_with(r#"{"operation":"update","path":""#));
    assert_eq!(bench.content("f"), "two\n");
    assert_eq!(bench.names(), ["f"]);
}

#[tokio::test]
async fn a_file_that_is_there_must_have_been_read_and_not_changed() {
    let bench = bench();
    fs::write(bench.path("f"), "theirs\n").unwrap();
    assert_eq!(code(&bench.write("f", "mine\n").await), "FS_NOT_OBSERVED");
    bench.read("f").await;
    fs::write(bench.path("f"), "theirs again\n").unwrap();
    assert_eq!(code(&bench.write("f", "mine\n").await), "FS_CHANGED");
    assert_eq!(bench.content("f"), "theirs again\n");
    bench.read("f").await;
    assert!(!bench.write("f", "mine\n").await.is_error);
    // Gone again, it is a new file.
    fs::remove_file(bench.path("f")).unwrap();
    assert_eq!(bench.write("f", "new\n").await.text, framed(&bench, "f", "Created file"));
}

#[tokio::test]
async fn directories_that_are_missing_are_made() {
    let bench = bench();
    assert!(!bench.write("a/b/c/f", "x").await.is_error);
    assert_eq!(bench.content("a/b/c/f"), "x");
    assert_eq!(code(&bench.write("a/b/c/f/g", "x").await), "FS_NOT_FOUND");
    assert_eq!(code(&bench.write("none/../f", "x").await), "FS_NOT_FOUND");
    assert_eq!(code(&bench.write("d/", "x").await), "INVALID_ARGS");
    assert_eq!(bench.names(), ["a"]);
}

#[tokio::test]
async fn mode_line_ends_and_byte_order_mark_are_kept() {
    let bench = bench();
    bench.seen("f", "\u{FEFF}#!/bin/sh\r\n").await;
    fs::set_permissions(bench.path("f"), fs::Permissions::from_mode(0o751)).unwrap();
    assert!(!bench.write("f", "a\nb\n").await.is_error);
    assert_eq!(bench.content("f"), "\u{FEFF}a\r\nb\r\n");
    assert_eq!(fs::metadata(bench.path("f")).unwrap().mode() & 0o7777, 0o751);
    assert!(!bench.edit("f", "a", "x").await.is_error);
    assert_eq!(fs::metadata(bench.path("f")).unwrap().mode() & 0o7777, 0o751);
    bench.seen("g", "one line").await;
    bench.write("g", "a\r\nb\r\n").await;
    assert_eq!(bench.content("g"), "a\r\nb\r\n", "a file without a line end has none to keep");
}

#[tokio::test]
async fn extended_attributes_are_kept() {
    let bench = bench();
    bench.seen("f", "a").await;
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(bench.path("f"), "user.note", b"kept", flags).is_err() {
        return; // The file system has none.
    }
    assert!(!bench.write("f", "b").await.is_error);
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(bench.path("f"), "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"kept");
}

#[tokio::test]
async fn other_names_of_a_file_are_told() {
    let bench = bench();
    bench.seen("f", "a\n").await;
    fs::hard_link(bench.path("f"), bench.path("g")).unwrap();
    let output = bench.edit("f", "a", "b").await;
    assert!(
        output.text.ends_with("\n(1 other name of the file (hard links) still lead to the old content.)"),
        "{}",
        output.text
    );
    assert_eq!((bench.content("f").as_str(), bench.content("g").as_str()), ("b\n", "a\n"));
}

#[tokio::test]
async fn a_link_stays_a_link_and_its_file_is_changed() {
    let bench = bench();
    bench.seen("f", "a\n").await;
    symlink("f", bench.path("link")).unwrap();
    let output = bench.edit("link", "a", "b").await;
    assert!(!output.is_error, "reading by another name counts: {}", output.text);
    assert!(bench.path("link").is_symlink());
    assert_eq!(bench.content("f"), "b\n");
    symlink("new", bench.path("dangling")).unwrap();
    assert!(!bench.write("dangling", "x").await.is_error);
    assert_eq!(bench.content("new"), "x");
}

#[tokio::test]
async fn the_mode_of_the_session_says_what_may_change() {
    let mut bench = bench();
    let outside = tempfile::tempdir().unwrap();
    let there = outside.path().join("f");
    fs::write(&there, "a\n").unwrap();
    symlink(outside.path(), bench.path("out")).unwrap();
    bench.seen("f", "a\n").await;
    let there = there.to_str().unwrap();

    bench.context.mode = PermissionMode::WorkspaceWrite;
    for name in ["out/f", "out/new", "../x", "/x", there] {
        let _ = bench.read(name).await;
        let output = bench.write(name, "b\n").await;
        assert_eq!(code(&output), "FS_SANDBOX_DENIED", "{name}");
        assert!(output.text.contains("is outside the workspace"), "{}", output.text);
        assert_eq!(code(&bench.edit(name, "a", "b").await), "FS_SANDBOX_DENIED", "{name}");
    }
    assert!(!bench.edit("f", "a", "b").await.is_error);

    bench.context.mode = PermissionMode::ReadOnly;
    let output = bench.edit("f", "b", "c").await;
    assert_eq!(code(&output), "FS_SANDBOX_DENIED");
    let path = bench.path("f");
    assert_eq!(output.text, format!("Error: may not write {}: the session is read-only", path.display()));
    assert_eq!(code(&bench.write("new", "x").await), "FS_SANDBOX_DENIED");

    bench.context.mode = PermissionMode::FullAccess;
    assert!(!bench.edit("out/f", "a", "b").await.is_error);
    assert_eq!(fs::read_to_string(there).unwrap(), "b\n");
}

#[tokio::test]
async fn what_is_no_text_file_is_not_written_over() {
    let bench = bench();
    let fifo = bench.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    fs::create_dir(bench.path("d")).unwrap();
    for name in ["fifo", "d", ".", "/dev/null"] {
        assert_eq!(code(&bench.write(name, "x").await), "FS_NOT_REGULAR_FILE", "{name}");
    }
    fs::write(bench.path("f"), b"\x89PNG\r\n\x1a\n\0\0").unwrap();
    assert_eq!(code(&bench.write("f", "x").await), "FS_NOT_TEXT");
}

#[tokio::test]
async fn a_content_over_the_bound_is_refused_whole() {
    let bench = bench_with(|config| config.tools.edit_bytes = ByteSize(10));
    let output = bench.write("f", "01234567890").await;
    assert!(output.text.contains("11 bytes long, more than 10B (tools.edit_bytes)"), "{}", output.text);
    assert!(!bench.write("f", "0123456789").await.is_error);
    assert_eq!(bench.names(), ["f"]);
}

#[tokio::test]
async fn a_cancelled_call_changes_nothing() {
    let bench = bench();
    bench.seen("f", "a\n").await;
    bench.context.cancel.cancel();
    assert_eq!(code(&bench.edit("f", "a", "b").await), "ABORTED");
    assert_eq!(code(&bench.write("new", "b").await), "ABORTED");
    assert_eq!((bench.names(), bench.content("f").as_str()), (vec!["f".to_owned()], "a\n"));
}

#[tokio::test]
async fn facts_for_viewers_stay_within_an_event() {
    let bench = bench();
    let event_bytes = crate::config::Config::default().limits.event_bytes.bytes();
    // Each of these characters takes six bytes in JSON.
    let line = format!("{}\n", "\u{1}".repeat(99));
    let content: String = line.repeat(5000);
    let output = bench.write("f", &content).await;
    assert!(output.meta.unwrap().get().contains(r#""truncated":true"#));
    let all = json!({ "file_path": "f", "old_string": "\u{1}\n", "new_string": "x\n", "replace_all": true });
    let output = bench.call("edit", &all).await;
    assert!(!output.is_error, "{}", output.text);
    assert!(output.meta.unwrap().get().len() < event_bytes);
}
