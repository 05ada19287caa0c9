//! What the model gets from `bash`, to the byte.

use super::*;
use crate::config::ByteSize;
use crate::tool::Tools;

const SOON: Duration = Duration::from_secs(20);

struct Bench {
    tools: Tools,
    context: ToolContext,
    directory: tempfile::TempDir,
}

fn bench(change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = Config::default();
    change(&mut config);
    let directory = tempfile::tempdir().unwrap();
    let context = ToolContext::of_test(directory.path().to_owned());
    Bench { tools: Tools::new(&config), context, directory }
}

impl Bench {
    async fn call(&self, arguments: &str) -> ToolOutput {
        let tool = self.tools.get(NAME).unwrap();
        tokio::time::timeout(SOON, tool.call(arguments, &self.context)).await.unwrap()
    }

    async fn bash(&self, command: &str) -> ToolOutput {
        self.call(&serde_json::json!({ "command": command }).to_string()).await
    }
}

async fn check(command: &str, expected: &str) {
    let output = bench(|_| {}).bash(command).await;
    assert_eq!(output.text, expected, "{command}");
    assert!(!output.is_error && output.error.is_none(), "{command}");
}

#[tokio::test]
async fn result_texts_are_exact() {
    check("echo hi", "hi\n").await;
    check("echo hi; echo err >&2; exit 3", "hi\n[stderr]\nerr\n[exit code: 3]").await;
    check("printf hi; printf err >&2", "hi\n[stderr]\nerr").await;
    check("echo err >&2", "[stderr]\nerr\n").await;
    check("true", "(no output)").await;
    check("false", "[exit code: 1]").await;
    check("printf hi; exit 1", "hi\n[exit code: 1]").await;
    check("kill -KILL $$", "[killed by signal: SIGKILL]").await;
    check("echo hi; kill -SEGV $$", "hi\n[killed by signal: SIGSEGV]").await;
}

#[tokio::test]
async fn a_command_that_begins_with_a_dash_is_a_command() {
    let output = bench(|_| {}).bash("-x").await;
    assert!(output.text.contains("[exit code: 127]"), "{}", output.text);
}

#[tokio::test]
async fn meta_names_where_it_ran() {
    let bench = bench(|_| {});
    std::fs::create_dir(bench.directory.path().join("sub")).unwrap();
    let output = bench.call(r#"{"command":"pwd","workdir":"sub"}"#).await;
    let sub = bench.directory.path().join("sub");
    assert_eq!(output.text, format!("{}\n", sub.display()));
    assert_eq!(output.meta.unwrap().get(), format!(r#"{{"cwd":"{}"}}"#, sub.display()));
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let output = bench(|_| {}).call(r#"{"command":"pwd","workdir":"/no/such"}"#).await;
    assert!(
        output.text.starts_with("Error: cannot run in the directory /no/such: No such file"),
        "{}",
        output.text
    );
    assert_eq!(output.error.unwrap().code, "FS_NOT_FOUND");
}

/// `bash -x` and `env` printed the daemon's key.
#[tokio::test]
async fn a_command_sees_the_allowed_variables_and_its_session_only() {
    let output = bench(|_| {}).bash("env | cut -d= -f1 | sort").await;
    for name in output.text.lines() {
        let ours = ["DSHD_SESSION", "PWD", "SHLVL", "_", "OLDPWD"].contains(&name);
        assert!(
            ours || !process::allowed([(name.into(), "x".into()), ("PATH".into(), "x".into())], &[])
                .is_empty()
        );
        assert!(!name.contains("CARGO"), "{name} is not allowed");
    }
    assert!(output.text.contains("DSHD_SESSION\n") && output.text.contains("PATH\n"), "{}", output.text);
    assert_eq!(bench(|_| {}).bash("echo $DSHD_SESSION").await.text, "s1\n");
}

#[tokio::test]
async fn a_timeout_is_told_with_what_was_written() {
    let output = bench(|_| {}).call(r#"{"command":"echo early; sleep 600","timeoutMs":200}"#).await;
    assert_eq!(
        output.text,
        "early\n[timed out after 200 ms; the command was ended]\n[killed by signal: SIGTERM]"
    );
    assert!(output.is_error);
}

#[tokio::test]
async fn a_timeout_out_of_range_is_refused() {
    for millis in [0, TIMEOUT_MS_MAX + 1] {
        let output = bench(|_| {}).call(&format!(r#"{{"command":"true","timeoutMs":{millis}}}"#)).await;
        assert!(output.text.contains("`timeoutMs`: expected 1 to 3600000 milliseconds"), "{}", output.text);
        assert_eq!(output.error.unwrap().code, "INVALID_ARGS");
    }
}

#[tokio::test]
async fn a_cancelled_call_is_aborted_and_keeps_what_was_written() {
    let bench = bench(|_| {});
    let started = bench.directory.path().join("started");
    let command = format!("echo early; touch {}; sleep 600", started.display());
    let (output, ()) = tokio::join!(bench.bash(&command), async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bench.context.cancel.cancel();
    });
    assert_eq!(output.text, "Error: the call was cancelled\nearly\n[killed by signal: SIGTERM]");
    assert_eq!(output.error.unwrap().code, "ABORTED");
}

#[tokio::test]
async fn long_output_keeps_both_ends_within_the_bound() {
    let bench = bench(|config| config.turn.tool_result_bytes = ByteSize(1024));
    let output = bench.bash("echo first; yes | head -c 2000000; echo last; echo oops >&2; exit 4").await;
    assert!(output.text.len() <= 1024, "{}", output.text.len());
    assert!(output.text.starts_with("first\ny\n"));
    assert!(output.text.contains(" bytes cut ...]\n"));
    assert!(output.text.ends_with("y\nlast\n[stderr]\noops\n[exit code: 4]"), "{}", output.text);
}

#[tokio::test]
async fn a_megabyte_on_one_line_of_wide_characters_is_cut_between_characters() {
    let output = bench(|_| {}).bash("for i in {1..100000}; do printf '那🙂'; done").await;
    assert!(output.text.len() <= 50 * 1024);
    assert!(!output.text.contains('\u{FFFD}'));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_told() {
    check(r"printf 'a\377b\n'", "a\u{FFFD}b\n[some output was not valid UTF-8 and is shown as \u{FFFD}]")
        .await;
}

#[tokio::test]
async fn when_all_places_are_taken_the_model_is_told_at_once() {
    let bench = bench(|config| config.limits.children = 1);
    let fifo = bench.directory.path().join("go");
    let command = format!("mkfifo {0}; echo > {0}", fifo.display());
    let (first, second) = tokio::join!(bench.bash(&command), async {
        while !fifo.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let second = bench.bash("echo second").await;
        tokio::fs::read(&fifo).await.unwrap();
        second
    });
    assert!(second.is_error && second.text.contains("limits.children"), "{}", second.text);
    assert!(!first.is_error, "{}", first.text);
    assert_eq!(bench.bash("echo third").await.text, "third\n");
}

#[tokio::test]
async fn a_command_that_cannot_be_passed_on_is_an_error_for_the_model() {
    let bench = bench(|_| {});
    let long = bench.bash(&format!("echo {}", "x".repeat(200_000))).await;
    assert!(long.is_error && long.text.starts_with("Error: cannot start bash: "), "{}", long.text);
    let nul = bench.bash("a\0b").await;
    assert_eq!(nul.error.unwrap().code, "INVALID_ARGS");
}

#[tokio::test]
async fn what_the_model_does_not_get_whole_is_in_a_file_that_is_named() {
    let mut bench = bench(|config| config.turn.tool_result_bytes = ByteSize(1024));
    let data = tempfile::tempdir().unwrap();
    let config = Config {
        turn: crate::config::Turn { tool_result_bytes: ByteSize(1024), ..Default::default() },
        ..Default::default()
    };
    bench.tools = bench.tools.spooling(&config, Spool::new(data.path(), 1 << 18, 1 << 24));
    for (command, whole) in [("seq 2000", true), ("seq 40000; seq 100000", false)] {
        let output = bench.bash(command).await;
        assert!(output.text.len() <= 1024, "{}", output.text.len());
        let (_, rest) = output.text.split_once(" bytes cut; ").unwrap();
        let (what, rest) = rest.split_once(" is in ").unwrap();
        let (path, _) = rest.split_once(" ...]").unwrap();
        assert_eq!(what, if whole { "all of it" } else { "its start" });
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(kept.starts_with("1\n2\n3\n"));
        assert_eq!(kept.ends_with("2000\n"), whole);
    }
    assert_eq!(bench.bash("seq 3").await.text, "1\n2\n3\n");
    bench.context.state.end("test", Duration::ZERO).await;
}

#[tokio::test]
async fn a_child_that_a_command_leaves_in_the_background_lives_until_the_session_ends() {
    crate::process::adopt_orphans().unwrap();
    let bench = bench(|_| {});
    let output = bench.bash("sleep 600 > /dev/null 2>&1 & echo started").await;
    assert_eq!(output.text, "started\n");
    assert!(!bench.context.state.is_at_rest().await);
    tokio::time::timeout(SOON, bench.context.state.end("test", Duration::from_secs(1))).await.unwrap();
    assert!(bench.context.state.is_at_rest().await);
}
