//! What the model gets from `read`, to the byte.

use std::fs;

use super::*;
use crate::config::ByteSize;
use crate::tool::test_bench::{Bench, bench, bench_with, code};

impl Bench {
    /// Reads a file of this content and gives back what stands between the content tags.
    async fn content_of(&self, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path("f"), bytes).unwrap();
        let output = self.read("f").await;
        assert!(!output.is_error, "{}", output.text);
        let start = format!("<path>{}</path>\n<type>file</type>\n<content>\n", self.path("f").display());
        output.text.strip_prefix(&start).unwrap().strip_suffix("\n</content>").unwrap().to_owned()
    }

    async fn call_read(&self, arguments: serde_json::Value) -> ToolOutput {
        self.call(NAME, &arguments).await
    }
}

#[tokio::test]
async fn result_texts_are_exact() {
    let bench = bench();
    fs::write(bench.path("f"), "one\ntwo\n").unwrap();
    let path = bench.path("f");
    let output = bench.read("f").await;
    assert_eq!(
        output.text,
        format!(
            "<path>{}</path>\n<type>file</type>\n<content>\n1: one\n2: two\n\n(End of file - total 2 lines)\n</content>",
            path.display()
        )
    );
    let meta = output.meta.unwrap();
    let expected =
        format!(r#"{{"path":"{}","offset":1,"lines":2,"totalLines":2,"stamp":"8-"#, path.display());
    assert!(meta.get().starts_with(&expected), "{meta}");
}

#[tokio::test]
async fn lines_are_those_of_the_file_however_they_end() {
    let bench = bench();
    assert_eq!(bench.content_of("one\ntwo").await, "1: one\n2: two\n\n(End of file - total 2 lines)");
    assert_eq!(bench.content_of("one\r\ntwo\r\n").await, "1: one\n2: two\n\n(End of file - total 2 lines)");
    assert_eq!(bench.content_of("\n\n").await, "1: \n2: \n\n(End of file - total 2 lines)");
    assert_eq!(bench.content_of("").await, "\n(End of file - total 0 lines)");
}

#[tokio::test]
async fn a_byte_order_mark_is_not_shown() {
    let bench = bench();
    assert_eq!(
        bench.content_of("\u{FEFF}one\n\u{FEFF}two\n").await,
        "1: one\n2: \u{FEFF}two\n\n(End of file - total 2 lines)"
    );
}

#[tokio::test]
async fn offset_and_limit_choose_the_window_and_the_rest_is_told() {
    let bench = bench();
    let text = (1..=10).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n") + "\n";
    fs::write(bench.path("f"), text).unwrap();
    let read = async |offset: u64, limit: u64| {
        bench.call_read(serde_json::json!({ "file_path": "f", "offset": offset, "limit": limit })).await
    };
    let output = read(3, 2).await;
    assert!(
        output.text.ends_with(
            "<content>\n3: line 3\n4: line 4\n\n(Showing lines 3-4 of 10. Use offset=5 to continue.)\n</content>"
        ),
        "{}",
        output.text
    );
    assert!(output.meta.unwrap().get().contains(r#""offset":3,"lines":2,"totalLines":10,"#));
    assert!(read(9, 2).await.text.contains("9: line 9\n10: line 10\n\n(End of file - total 10 lines)"));
    let output = read(11, 2).await;
    assert_eq!(output.text, "Error: offset 11 is out of range for this file (10 lines)");
    assert_eq!(code(&output), "INVALID_ARGS");
    assert_eq!(code(&read(0, 2).await), "INVALID_ARGS");
    assert_eq!(code(&read(1, 0).await), "INVALID_ARGS");
}

#[tokio::test]
async fn at_most_2000_lines_are_shown() {
    let bench = bench();
    let content = bench.content_of("x\n".repeat(2001)).await;
    assert!(content.ends_with("2000: x\n\n(Showing lines 1-2000 of 2001. Use offset=2001 to continue.)"));
    assert!(bench.content_of("x\n".repeat(2000)).await.ends_with("\n(End of file - total 2000 lines)"));
}

#[tokio::test]
async fn at_most_2000_characters_of_a_line_are_shown() {
    let bench = bench();
    let crabs = "🦀".repeat(2000);
    assert_eq!(bench.content_of(&crabs).await, format!("1: {crabs}\n\n(End of file - total 1 lines)"));
    let content = bench.content_of(format!("{crabs}🦀\nb")).await;
    assert_eq!(
        content,
        format!("1: {crabs}... (line truncated to 2000 chars)\n2: b\n\n(End of file - total 2 lines)")
    );
}

#[tokio::test]
async fn the_whole_result_stays_within_its_bound() {
    let bench = bench();
    fs::write(bench.path("f"), format!("{}\n", "y".repeat(1000)).repeat(100)).unwrap();
    let output = bench.read("f").await;
    assert!(output.text.len() <= 50 * 1024 && output.text.len() > 49 * 1024, "{}", output.text.len());
    assert!(
        output.text.contains("\n\n(Output capped. Showing lines 1-50 of 100. Use offset=51 to continue.)\n")
    );
}

#[tokio::test]
async fn a_megabyte_on_one_line_is_read_in_part() {
    let content = bench().content_of("z".repeat(1 << 20)).await;
    assert!(content.len() < 3000);
    assert!(content.contains("(line truncated to 2000 chars)"));
}

#[tokio::test]
async fn a_line_is_shown_even_when_it_alone_is_over_the_bound() {
    let bench = bench_with(|config| config.turn.tool_result_bytes = ByteSize(512));
    let content = bench.content_of("w".repeat(1000)).await;
    assert!(content.starts_with("1: www"));
}

#[tokio::test]
async fn bytes_of_another_encoding_are_shown_and_told() {
    let content = bench().content_of(b"caf\xE9\n").await;
    assert_eq!(
        content,
        "1: caf\u{FFFD}\n\n(Some bytes are not valid UTF-8 and are shown as \u{FFFD})\n(End of file - total 1 lines)"
    );
}

#[tokio::test]
async fn data_is_refused_with_its_kind() {
    let bench = bench();
    fs::write(bench.path("f"), b"\x89PNG\r\n\x1a\n\0\0").unwrap();
    let output = bench.read("f").await;
    assert_eq!(code(&output), "FS_NOT_TEXT");
    assert!(output.text.ends_with("it is not text but a PNG image"), "{}", output.text);
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let bench = bench();
    fs::write(bench.path("f"), "").unwrap();
    for name in ["no/such", "f/below-a-file"] {
        let output = bench.read(name).await;
        assert_eq!(output.text, format!("Error: file not found: {}", bench.path(name).display()));
        assert_eq!(code(&output), "FS_NOT_FOUND");
        assert_eq!(output.error.unwrap().name, "FsError");
    }
}

#[tokio::test]
async fn what_is_no_regular_file_is_refused_without_waiting_for_it() {
    let bench = bench();
    let fifo = bench.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("socket")).unwrap();
    for (name, kind) in
        [("fifo", "a FIFO"), ("socket", "a socket"), (".", "a directory"), ("/dev/zero", "a device")]
    {
        let output = bench.read(name).await;
        assert_eq!(code(&output), "FS_NOT_REGULAR_FILE");
        assert!(output.text.contains(&format!(" is {kind}, not a regular file")), "{}", output.text);
    }
}

#[tokio::test]
async fn files_of_the_kernel_end_too() {
    let bench = bench();
    let output = bench.read("/proc/self/status").await;
    assert!(!output.is_error && output.text.contains("1: Name:"), "{}", output.text);
    for path in ["/proc/self/mem", "/proc/kmsg", "/proc/kcore"] {
        if Path::new(path).exists() {
            assert!(bench.read(path).await.is_error, "{path}");
        }
    }
}

#[tokio::test]
async fn a_sparse_file_of_a_terabyte_is_not_read_to_its_end() {
    let bench = bench();
    let text = "line\n".repeat(20_000);
    fs::write(bench.path("sparse"), text).unwrap();
    fs::File::options().write(true).open(bench.path("sparse")).unwrap().set_len(1 << 40).unwrap();
    let output = bench.read("sparse").await;
    let note = "(Showing lines 1-2000 of more than 20001. Use offset=2001 to continue.)";
    assert!(output.text.contains(note), "{}", output.text);
    assert!(!output.meta.unwrap().get().contains("totalLines"));
}

#[tokio::test]
async fn a_cancelled_call_is_aborted() {
    let bench = bench();
    fs::write(bench.path("f"), "x").unwrap();
    bench.context.cancel.cancel();
    assert_eq!(code(&bench.read("f").await), "ABORTED");
}

#[tokio::test]
async fn a_picture_is_shown_to_a_model_that_takes_pictures() {
    use crate::event::Block;

    let mut bench = bench_with(|config| config.limits.image_bytes = crate::config::ByteSize(40));
    let png = b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x01";
    fs::write(bench.path("dot.png"), png).unwrap();
    assert_eq!(bench.read("dot.png").await.error.unwrap().code, "FS_NOT_TEXT");
    bench.context.takes_images = true;
    let output = bench.read("dot.png").await;
    let path = bench.path("dot.png").display().to_string();
    assert_eq!(
        output.text,
        format!("<path>{path}</path>\n<type>image</type>\n<content>\n(image/png, 2x1, 24 bytes)\n</content>")
    );
    let [Block::Image { attachment }] = output.images.as_slice() else { panic!("{:?}", output.images) };
    assert_eq!((attachment.name.as_deref(), attachment.bytes), (Some("dot.png"), 24));
    let kept = bench.context.blobs.get(&attachment.attachment_id).await.unwrap();
    assert_eq!(kept.as_deref(), Some(&png[..]));
    for (name, content, text) in [
        ("large.png", [&png[..], &[0; 17]].concat(), "is over limits.image_bytes (40B)"),
        ("cut.png", png[..20].to_vec(), "it is a damaged image/png image"),
        ("elf", b"\x7FELF\x02\x01\x01\0".to_vec(), "it is not text but an ELF executable"),
    ] {
        fs::write(bench.path(name), content).unwrap();
        let output = bench.read(name).await;
        assert_eq!(output.error.as_ref().unwrap().code, "FS_NOT_TEXT");
        assert!(output.text.contains(text), "{}", output.text);
    }
}
