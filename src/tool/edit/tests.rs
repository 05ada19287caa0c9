//! What the model gets from `edit`, and what becomes of the file.

use std::fs;

use serde_json::json;

use crate::config::ByteSize;
use crate::tool::test_bench::{bench, bench_with, code};

#[tokio::test]
async fn an_edit_is_made_and_told_in_the_exact_words() {
    let bench = bench();
    bench.seen("f", "one\ntwo\n").await;
    let output = bench.edit("f", "two", "2").await;
    let path = bench.path("f");
    assert_eq!(output.text, format!("The file {} has been updated successfully.", path.display()));
    assert!(!output.is_error);
    assert_eq!(bench.content("f"), "one\n2\n");
    assert_eq!(bench.names(), ["f"]);
    let meta: serde_json::Value = serde_json::from_str(output.meta.unwrap().get()).unwrap();
    assert_eq!(meta["operation"], "update");
    assert_eq!(meta["diffs"], json!([{ "path": path, "oldText": "one\ntwo\n", "newText": "one\n2\n" }]));
    assert!(meta["unified"].as_str().unwrap().ends_with("@@ -1,2 +1,2 @@\n one\n-two\n+2\n"));
}

#[tokio::test]
async fn what_was_edited_may_be_edited_again_without_reading() {
    let bench = bench();
    bench.seen("f", "1\n").await;
    for n in 1..5 {
        let output = bench.edit("f", &n.to_string(), &(n + 1).to_string()).await;
        assert!(!output.is_error, "{}", output.text);
    }
    assert_eq!(bench.content("f"), "5\n");
}

#[tokio::test]
async fn a_file_that_was_not_read_or_is_not_there_is_not_edited() {
    let bench = bench();
    fs::write(bench.path("f"), "one\n").unwrap();
    let output = bench.edit("f", "one", "1").await;
    assert_eq!(code(&output), "FS_NOT_OBSERVED");
    assert_eq!(
        output.text,
        format!(
            "Error: {} has not been read in this session; read it before you change it",
            bench.path("f").display()
        )
    );
    for name in ["no", "no/such", "f/below"] {
        assert_eq!(code(&bench.edit(name, "one", "1").await), "FS_NOT_FOUND", "{name}");
    }
    assert_eq!(bench.content("f"), "one\n");
}

#[tokio::test]
async fn a_change_by_someone_else_is_noticed_even_when_the_stamp_is_the_same() {
    let bench = bench();
    bench.seen("f", "one\n").await;
    fs::write(bench.path("f"), "one more\n").unwrap();
    assert_eq!(code(&bench.edit("f", "one", "1").await), "FS_CHANGED");

    bench.read("f").await;
    let before = fs::metadata(bench.path("f")).unwrap().modified().unwrap();
    fs::write(bench.path("f"), "one MORE\n").unwrap();
    fs::File::options().write(true).open(bench.path("f")).unwrap().set_modified(before).unwrap();
    assert_eq!(code(&bench.edit("f", "one", "1").await), "FS_CHANGED");
    assert_eq!(bench.content("f"), "one MORE\n");
    bench.read("f").await;
    assert!(!bench.edit("f", "one", "1").await.is_error);
}

#[tokio::test]
async fn a_file_that_was_only_touched_or_replaced_by_the_same_is_unchanged() {
    let bench = bench();
    bench.seen("f", "one\n").await;
    fs::write(bench.path("g"), "one\n").unwrap();
    fs::rename(bench.path("g"), bench.path("f")).unwrap();
    assert!(!bench.edit("f", "one", "1").await.is_error);
}

#[tokio::test]
async fn a_text_that_is_there_twice_is_told_with_its_lines() {
    let bench = bench();
    bench.seen("f", "a\nb\na\n").await;
    let output = bench.edit("f", "a", "x").await;
    assert_eq!(code(&output), "FS_AMBIGUOUS_EDIT");
    assert!(output.text.contains("was found 2 times in "), "{}", output.text);
    assert!(output.text.contains(", at lines 1, 3; give more"), "{}", output.text);
    assert_eq!(bench.content("f"), "a\nb\na\n");
    let all = json!({ "file_path": "f", "old_string": "a", "new_string": "x", "replace_all": true });
    assert!(!bench.call("edit", &all).await.is_error);
    assert_eq!(bench.content("f"), "x\nb\nx\n");
}

#[tokio::test]
async fn a_text_that_is_not_there_is_told_with_what_helps() {
    let bench = bench();
    bench.seen("f", "fn f() {\n        body();\n}\n").await;
    let output = bench.edit("f", "fn f() {\n    body();\n}", "x").await;
    assert_eq!(code(&output), "FS_EDIT_NOT_FOUND");
    assert!(output.text.contains("The same text with other whitespace is at line 1"), "{}", output.text);
}

#[tokio::test]
async fn arguments_that_say_nothing_are_refused() {
    let bench = bench();
    bench.seen("f", "a\n").await;
    assert_eq!(code(&bench.edit("f", "", "x").await), "INVALID_ARGS");
    assert_eq!(code(&bench.edit("f", "a", "a").await), "INVALID_ARGS");
    assert_eq!(code(&bench.edit("f", "a\n", "a\r\n").await), "INVALID_ARGS");
    assert_eq!(
        code(&bench.call("edit", &json!({ "file_path": "f", "old_string": "a" })).await),
        "INVALID_ARGS"
    );
}

#[tokio::test]
async fn line_ends_and_a_byte_order_mark_are_kept() {
    let bench = bench();
    bench.seen("f", "\u{FEFF}one\r\ntwo\r\n").await;
    assert!(!bench.edit("f", "one\ntwo\n", "1\n2\n3\n").await.is_error);
    assert_eq!(bench.content("f"), "\u{FEFF}1\r\n2\r\n3\r\n");
    assert!(!bench.edit("f", "\u{FEFF}1", "\u{FEFF}one").await.is_error);
    assert_eq!(bench.content("f"), "\u{FEFF}one\r\n2\r\n3\r\n");
}

#[tokio::test]
async fn text_in_another_encoding_is_not_edited() {
    let bench = bench();
    bench.seen("f", b"caf\xE9 one\n").await;
    let output = bench.edit("f", "one", "1").await;
    assert_eq!(code(&output), "FS_NOT_TEXT");
    assert!(
        output.text.ends_with("it is not text but text in another encoding than UTF-8"),
        "{}",
        output.text
    );
    fs::write(bench.path("g"), b"\x7FELF\x02\0").unwrap();
    let output = bench.edit("g", "one", "1").await;
    assert!(output.text.ends_with("it is not text but an ELF executable"), "{}", output.text);
}

#[tokio::test]
async fn a_file_over_the_bound_is_left_alone() {
    let bench = bench_with(|config| config.tools.edit_bytes = ByteSize(100));
    bench.seen("f", "a".repeat(101)).await;
    let output = bench.edit("f", "a", "b").await;
    assert!(output.text.contains("101 bytes long, more than 100B (tools.edit_bytes)"), "{}", output.text);
    bench.seen("g", "a".repeat(60)).await;
    let all = json!({ "file_path": "g", "old_string": "a", "new_string": "bb", "replace_all": true });
    assert!(bench.call("edit", &all).await.is_error);
    assert_eq!(bench.content("g"), "a".repeat(60));
}

#[tokio::test]
async fn edits_of_many_sessions_to_one_file_never_undo_each_other() {
    const EDITORS: usize = 8;
    let bench = bench();
    fs::write(bench.path("f"), "start\n").unwrap();
    let edits = (0..EDITORS).map(|editor| {
        let tools = bench.tools.clone();
        let context = crate::tool::ToolContext::of_test(bench.directory.path().to_owned());
        async move {
            let call = async |tool: &str, arguments: serde_json::Value| {
                tools.get(tool).unwrap().call(&arguments.to_string(), &context).await
            };
            loop {
                call("read", json!({ "file_path": "f" })).await;
                let new = format!("start\neditor {editor}");
                let output =
                    call("edit", json!({ "file_path": "f", "old_string": "start", "new_string": new })).await;
                if !output.is_error {
                    break;
                }
                assert_eq!(code(&output), "FS_CHANGED");
            }
        }
    });
    let all = futures_util::future::join_all(edits);
    tokio::time::timeout(std::time::Duration::from_mins(1), all).await.unwrap();
    assert_eq!(bench.content("f").lines().count(), 1 + EDITORS);
    assert_eq!(bench.names(), ["f"]);
}
