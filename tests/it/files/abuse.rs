//! Files that are no files, lines without end, and arguments that are none: told to the model, and the session goes on.

use std::fs;

use serde_json::json;

use super::Desk;

#[tokio::test]
async fn what_is_no_text_file_is_refused_by_kind_and_without_waiting() {
    let mut desk = Desk::new().await;
    let fifo = desk.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(desk.path("socket")).unwrap();
    for (name, kind) in [
        ("fifo", "a FIFO"),
        ("socket", "a socket"),
        (".", "a directory"),
        ("/", "a directory"),
        ("/dev/zero", "a device"),
        ("/dev/null", "a device"),
        ("/dev/tty", "a device"),
    ] {
        let text = desk.read(name).await.failed("FS_NOT_REGULAR_FILE");
        assert!(text.ends_with(&format!(" is {kind}, not a regular file")), "{name}: {text}");
    }
    for name in ["fifo", "socket", "src"] {
        desk.write(name, "x").await.failed("FS_NOT_REGULAR_FILE");
        desk.edit(name, "x", "y").await.failed("FS_NOT_REGULAR_FILE");
    }
    for (name, start, kind) in [
        ("image.png", &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], "a PNG image"),
        ("image.txt", b"\xFF\xD8\xFF\xE0\0\x10JFIF", "a JPEG image"),
        ("program", b"\x7FELF\x02\x01\x01\0", "an ELF executable"),
        ("archive", b"PK\x03\x04\x14\0", "a ZIP archive (or an office document)"),
        ("text16", b"\xFF\xFEh\0i\0", "UTF-16 text"),
        ("data", b"some\0thing", "binary data"),
    ] {
        desk.put(name, start);
        let text = desk.read(name).await.failed("FS_NOT_TEXT");
        assert!(text.ends_with(&format!("it is not text but {kind}")), "{name}: {text}");
        desk.write(name, "x").await.failed("FS_NOT_TEXT");
        assert_eq!(fs::read(desk.path(name)).unwrap(), start);
    }
    desk.end().await;
}

#[tokio::test]
async fn files_of_the_kernel_end_and_tell_nothing_of_the_daemon() {
    let mut desk = Desk::new().await;
    let read = desk.read("/proc/self/status").await.ok();
    assert!(read.text.contains("\n1: Name:"), "{}", read.text);
    desk.read("/proc/self/environ").await.failed("FS_NOT_TEXT");
    for name in ["/proc/self/mem", "/proc/self/pagemap", "/proc/kcore", "/proc/self/fd/0"] {
        let called = desk.read(name).await;
        assert_eq!(called.data["message"]["isError"], true, "{name}: {}", called.text);
    }
    desk.write("/proc/self/comm", "x").await.failed("FS_SANDBOX_DENIED");
    desk.end().await;
}

#[tokio::test]
async fn a_megabyte_on_one_line_is_shown_in_part_and_edited_whole() {
    let mut desk = Desk::new().await;
    let line = "z".repeat(1 << 20);
    desk.put("f", format!("{line}end"));
    let read = desk.read("f").await.ok();
    assert!(read.text.len() < 4096, "{}", read.text.len());
    assert!(read.text.contains("zz... (line truncated to 2000 chars)\n"));
    let edited = desk.edit("f", "zend", "y").await.ok();
    assert_eq!(edited.data["meta"]["truncated"], true);
    assert!(desk.content("f") == format!("{}y", &line[1..]));
    desk.put("many", "x\n".repeat(500_000));
    let read = desk.read("many").await.ok();
    assert!(
        read.text.ends_with("(Showing lines 1-2000 of 500000. Use offset=2001 to continue.)\n</content>")
    );
    desk.end().await;
}

#[tokio::test]
async fn a_loop_of_links_ends() {
    let mut desk = Desk::new().await;
    std::os::unix::fs::symlink("loop", desk.path("loop")).unwrap();
    std::os::unix::fs::symlink(".", desk.path("here")).unwrap();
    for tool in [desk.read("loop").await, desk.write("loop", "x").await, desk.edit("loop", "a", "b").await] {
        assert!(tool.text.contains("ymbolic links"), "{}", tool.text);
    }
    desk.read("here/here/here/notes.txt").await.ok();
    desk.edit("notes.txt", "one", "1").await.ok();
    desk.end().await;
}

#[tokio::test]
async fn wrong_arguments_are_told_by_path_and_expectation_and_nothing_is_done() {
    let mut desk = Desk::new().await;
    desk.read("notes.txt").await.ok();
    let long = "x".repeat(100_000);
    let deep = "d/".repeat(3000);
    for (tool, raw, expected) in [
        ("read", String::new(), "no valid JSON: EOF while parsing a value"),
        ("read", "[]".into(), "invalid arguments for read: "),
        ("read", "{}".into(), "missing field `file_path`"),
        ("read", r#"{"file_path":null}"#.into(), "`file_path`: invalid type: null"),
        ("read", r#"{"file_path":["f"]}"#.into(), "`file_path`: invalid type: list, expected"),
        (
            "read",
            r#"{"file_path":"f","offset":-1}"#.into(),
            "`offset`: invalid value: integer `-1`, expected a whole number",
        ),
        ("read", r#"{"file_path":"f","limit":1.5}"#.into(), "`limit`: invalid type: floating point"),
        ("read", r#"{"file_path":"f","limit":0}"#.into(), "`limit`: expected 1 or more, got 0"),
        ("write", r#"{"file_path":"notes.txt"}"#.into(), "missing field `content`"),
        ("write", r#"{"file_path":"notes.txt","content":"cut"#.into(), "`content`: no valid JSON: EOF"),
        ("write", r#"{"file_path":"notes.txt","content":7}"#.into(), "`content`: invalid type: integer `7`"),
        ("write", r#"{"file_path":"d/","content":"x"}"#.into(), "`file_path`: expected a file's path"),
        ("edit", r#"{"file_path":"notes.txt","old_string":"one"}"#.into(), "missing field `new_string`"),
        (
            "edit",
            r#"{"file_path":"notes.txt","old_string":"","new_string":"x"}"#.into(),
            "`old_string`: expected a text",
        ),
        (
            "edit",
            r#"{"file_path":"notes.txt","old_string":"one","new_string":"1","replace_all":"yes"}"#.into(),
            "`replace_all`: invalid type: string \"yes\", expected",
        ),
        ("todo_write", r#"{"todos":"a"}"#.into(), "`todos`: invalid type: string \"a\""),
    ] {
        let text = desk.raw(tool, &raw).await.failed("INVALID_ARGS");
        assert!(text.contains(expected), "{tool} {raw}: {text}");
    }
    for name in ["", "a\0b", long.as_str(), deep.as_str()] {
        for tool in ["read", "write", "edit"] {
            let arguments =
                json!({ "file_path": name, "content": "x", "old_string": "one", "new_string": "1" });
            let called = desk.call(tool, arguments).await;
            assert_eq!(called.data["message"]["isError"], true, "{tool}: {}", called.text);
            assert!(called.text.len() < 2000, "{tool}: {}", called.text.len());
        }
    }
    assert_eq!(desk.content("notes.txt"), "one\ntwo\n");
    desk.edit("notes.txt", "one", "1").await.ok();
    desk.end().await;
}
