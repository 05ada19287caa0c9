//! What the model gets from `grep`, to the byte.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::found::Line;
use super::*;
use crate::config::ByteSize;
use crate::tool::search::bench::{Bench, bench, bench_with};

async fn grep(bench: &Bench, arguments: Value) -> ToolOutput {
    bench.call(NAME, arguments).await
}

async fn text(bench: &Bench, arguments: Value) -> String {
    let output = grep(bench, arguments).await;
    assert!(!output.is_error, "{}", output.text);
    output.text
}

#[tokio::test]
async fn matches_are_grouped_by_file_in_the_order_of_the_paths() {
    let bench = bench();
    bench.file("src/b.rs", "fn one() {}\n\nfn two() {}\r\n");
    bench.file("src/a/z.rs", "  fn three() {}");
    bench.file("src/a.rs", "nothing\n");
    let output = grep(&bench, json!({"pattern": r"fn \w+"})).await;
    assert_eq!(
        output.text,
        "Found 3 matches\n\nsrc/a/z.rs\nLine 1:   fn three() {}\n\nsrc/b.rs\nLine 1: fn one() {}\nLine 3: fn two() {}"
    );
    assert_eq!(
        output.meta.unwrap().get(),
        concat!(
            r#"{"shape":"matches","files":[{"path":"src/a/z.rs","matches":[{"lineNumber":1,"line":"  fn three() {}"}]},"#,
            r#"{"path":"src/b.rs","matches":[{"lineNumber":1,"line":"fn one() {}"},{"lineNumber":3,"line":"fn two() {}"}]}],"#,
            r#""truncated":false,"total":3}"#
        )
    );
}

#[tokio::test]
async fn one_match_and_none_are_told_in_words() {
    let bench = bench();
    bench.file("a", "x\n");
    assert_eq!(text(&bench, json!({"pattern": "x"})).await, "Found 1 match\n\na\nLine 1: x");
    let output = grep(&bench, json!({"pattern": "y"})).await;
    assert_eq!(output.text, "No matches found");
    assert_eq!(output.meta.unwrap().get(), r#"{"shape":"matches","files":[],"truncated":false,"total":0}"#);
}

#[tokio::test]
async fn more_matches_than_are_shown_are_counted() {
    let bench = bench_with(|config| config.tools.grep_matches = 3);
    for name in ["c", "b", "a"] {
        bench.file(name, "x\nx\n");
    }
    let output = grep(&bench, json!({"pattern": "x"})).await;
    assert_eq!(
        output.text,
        "Found 3 of 6 matches\n\na\nLine 1: x\nLine 2: x\n\nb\nLine 1: x\n\n\
         (More matches are not shown. Narrow pattern, path or include to see them.)"
    );
    let meta: Value = serde_json::from_str(output.meta.unwrap().get()).unwrap();
    assert_eq!((&meta["truncated"], &meta["total"]), (&json!(true), &json!(6)));
}

#[tokio::test]
async fn a_result_stays_within_its_bytes() {
    let bench = bench_with(|config| config.turn.tool_result_bytes = ByteSize(4096));
    bench.file("a", format!("{}\n", "x".repeat(1000)).repeat(20));
    let output = grep(&bench, json!({"pattern": "x"})).await;
    assert!(output.text.starts_with("Found 3 of 20 matches\n\na\nLine 1: xxx"), "{}", output.text);
    assert!(output.text.len() <= 4096);
}

#[tokio::test]
async fn facts_for_viewers_stay_within_their_bytes() {
    let bench = bench_with(|config| config.turn.tool_result_bytes = ByteSize(1 << 20));
    for name in ["a", "b", "c"] {
        bench.file(name, format!("{}\n", "\u{1}x".repeat(900)).repeat(8));
    }
    let meta = grep(&bench, json!({"pattern": "x"})).await.meta.unwrap();
    assert!(meta.get().len() <= 64 * 1024, "{}", meta.get().len());
    let meta: Value = serde_json::from_str(meta.get()).unwrap();
    assert_eq!((meta["files"].as_array().unwrap().len(), &meta["truncated"]), (1, &json!(true)));
}

#[tokio::test]
async fn include_names_the_files() {
    let bench = bench();
    for name in ["a.ts", "b.tsx", "c.js", "src/d.ts", ".x/e.ts"] {
        bench.file(name, "x");
    }
    let files = async |include: &str| {
        let meta = grep(&bench, json!({"pattern": "x", "include": include})).await.meta.unwrap();
        let meta: Value = serde_json::from_str(meta.get()).unwrap();
        meta["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| file["path"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(files("*.ts").await, ["a.ts", "src/d.ts"]);
    assert_eq!(files("*.{ts,tsx}").await, ["a.ts", "b.tsx", "src/d.ts"]);
    assert_eq!(files("src/**").await, ["src/d.ts"]);
    assert_eq!(files(".x/*").await, [".x/e.ts"]);
    let output = grep(&bench, json!({"pattern": "x", "include": "*.ts,*.js"})).await;
    assert_eq!(
        output.text,
        "Error: invalid arguments for grep: `include`: expected one glob, not a list; alternatives are written *.{ts,tsx}"
    );
    let output = grep(&bench, json!({"pattern": "x", "include": "!*.ts"})).await;
    assert_eq!(output.error.unwrap().code, "SEARCH_INVALID_PATTERN");
}

#[tokio::test]
async fn ignored_hidden_and_binary_files_are_left_out() {
    let bench = bench();
    bench.file(".gitignore", "out/\n");
    for name in ["a", "out/b", ".hidden", ".git/c"] {
        bench.file(name, "x\n");
    }
    bench.file("early", b"x\0\n");
    bench.file("late", [b"x\n".repeat(100_000), vec![0], b"x\n".to_vec()].concat());
    assert_eq!(text(&bench, json!({"pattern": "x"})).await, "Found 1 match\n\na\nLine 1: x");
    assert_eq!(
        text(&bench, json!({"pattern": "x", "path": "out"})).await,
        "Found 1 match\n\nout/b\nLine 1: x"
    );
    assert_eq!(
        text(&bench, json!({"pattern": "x", "path": ".hidden"})).await,
        "Found 1 match\n\n.hidden\nLine 1: x"
    );
    assert_eq!(text(&bench, json!({"pattern": "x", "path": "early"})).await, "No matches found");
}

#[tokio::test]
async fn text_in_other_encodings_is_searched() {
    let bench = bench();
    let utf16: Vec<u8> = "\u{FEFF}grün\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    bench.file("utf16", utf16);
    bench.file("latin", b"gr\xFCn\n");
    assert_eq!(
        text(&bench, json!({"pattern": "gr.*n|gr"})).await,
        "Found 2 matches\n\nlatin\nLine 1: gr\u{FFFD}n\n\nutf16\nLine 1: grün"
    );
}

#[tokio::test]
async fn wrong_patterns_and_paths_are_told_with_the_reason() {
    let bench = bench();
    for (pattern, reason) in [
        ("a(", "unclosed group"),
        ("[z-a]", "invalid character class range, the start must be <= the end"),
        ("a{2000000000}", "compiled regex exceeds size limit"),
        (r"a\nb", "the literal \"\\n\" is not allowed in a regex"),
        (r"\p{Nope}", "Unicode property not found"),
        ("", "it is empty"),
    ] {
        let output = grep(&bench, json!({"pattern": pattern})).await;
        assert_eq!(output.error.unwrap().code, "SEARCH_INVALID_PATTERN", "{pattern}");
        assert!(output.text.starts_with("Error: invalid regular expression \""), "{}", output.text);
        assert!(output.text.contains(reason), "{}", output.text);
        assert!(!output.text.contains('\n'), "{}", output.text);
    }
    let output = grep(&bench, json!({"pattern": "x", "path": "none"})).await;
    assert_eq!(output.error.unwrap().code, "FS_NOT_FOUND");
}

#[tokio::test]
async fn a_fifo_and_a_loop_of_links_do_not_hold_a_search() {
    let bench = bench();
    bench.file("d/a", "x\n");
    std::os::unix::fs::symlink(bench.path("d"), bench.path("d/loop")).unwrap();
    let fifo = bench.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(text(&bench, json!({"pattern": "x"})).await, "Found 1 match\n\nd/a\nLine 1: x");
    let output = grep(&bench, json!({"pattern": "x", "path": "fifo"})).await;
    assert_eq!(output.error.unwrap().code, "FS_NOT_REGULAR_FILE");
}

#[tokio::test]
async fn what_can_not_be_read_is_counted_and_the_rest_searched() {
    let bench = bench();
    bench.file("a", "x\n");
    // A line that no thread may hold.
    bench.file("b", format!("x{}", "y".repeat(33 << 20)));
    assert_eq!(
        text(&bench, json!({"pattern": "x"})).await,
        "Found 1 match\n\na\nLine 1: x\n\n(1 file or directory could not be read.)"
    );
}

proptest! {
    #[test]
    fn the_first_matches_by_path_are_kept_in_whatever_order_they_come(
        files in proptest::collection::btree_map("[a-c]{1,3}", 1_u64..5, 0..12),
        order in proptest::collection::vec(any::<proptest::sample::Index>(), 12),
        max in 1_usize..12,
    ) {
        let mut shuffled: Vec<_> = files.iter().collect();
        for (at, other) in (0..shuffled.len()).zip(order) {
            let other = other.index(shuffled.len());
            shuffled.swap(at, other);
        }
        let line = |line_number: u64| Line { line_number, line: "x".to_owned() };
        let mut matches = Matches::default();
        for (path, lines) in &shuffled {
            let kept: Vec<Line> = (1..=**lines).take(max).map(line).collect();
            let kept = if matches.wants(Path::new(path), max) { kept } else { Vec::new() };
            matches.add(Path::new(path), kept, **lines, max);
        }
        let all: Vec<(String, u64)> =
            files.iter().flat_map(|(path, lines)| (1..=*lines).map(|line| (path.clone(), line))).collect();
        let page = matches.page(Path::new("/w"), max, 1 << 20);
        let meta = serde_json::to_value(page.meta(false)).unwrap();
        prop_assert_eq!(&meta["total"], all.len());
        let mut shown = Vec::new();
        for file in meta["files"].as_array().unwrap() {
            for line in file["matches"].as_array().unwrap() {
                shown.push((file["path"].as_str().unwrap().to_owned(), line["lineNumber"].as_u64().unwrap()));
            }
        }
        prop_assert_eq!(shown, all.into_iter().take(max).collect::<Vec<_>>());
    }
}
