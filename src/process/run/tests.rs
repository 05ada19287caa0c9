//! Commands from start to end, with real processes.

use std::path::Path;

use super::*;

const SOON: Duration = Duration::from_secs(20);
/// How often something outside is looked at again.
const POLL: Duration = Duration::from_millis(5);
const CAPS: Caps = Caps { head: 1024, tail: 1024 };

fn job(command: &str, directory: &Path) -> Job {
    Job {
        program: "bash".into(),
        arguments: vec!["-c".into(), command.into()],
        directory: directory.to_owned(),
        environment: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
        timeout: SOON,
        grace: Duration::from_millis(200),
        caps: CAPS,
    }
}

async fn finish(job: Job, cancel: &CancellationToken) -> Finished {
    timeout(SOON, run(job, cancel)).await.unwrap().unwrap()
}

async fn bash(command: &str) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    finish(job(command, directory.path()), &CancellationToken::new()).await
}

fn text(captured: &Captured) -> &str {
    std::str::from_utf8(&captured.head).unwrap()
}

/// Ids that the command wrote to the file, once it has written `count` of them.
async fn pids(file: &Path, count: usize) -> Vec<i32> {
    let written = async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if text.lines().count() >= count && text.ends_with('\n') {
                return text.lines().map(|line| line.parse().unwrap()).collect();
            }
            tokio::time::sleep(POLL).await;
        }
    };
    timeout(SOON, written).await.unwrap()
}

/// Whether a process runs; a zombie that its new parent has not reaped yet does not.
fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z') && !rest.starts_with('X'))
    })
}

async fn gone(pids: &[i32]) {
    let all_gone = async {
        while pids.iter().any(|pid| runs(*pid)) {
            tokio::time::sleep(POLL).await;
        }
    };
    assert!(timeout(SOON, all_gone).await.is_ok(), "something of {pids:?} still runs");
}

#[tokio::test]
async fn streams_and_code_are_told_apart() {
    let finished = bash("echo out; echo err >&2; exit 3").await;
    assert_eq!((text(&finished.stdout), text(&finished.stderr)), ("out\n", "err\n"));
    assert_eq!((finished.end, finished.stopped), (End::Exited(3), None));
}

#[tokio::test]
async fn a_signal_is_no_exit_code() {
    assert_eq!(bash("kill -9 $$").await.end, End::Signalled(9));
}

#[tokio::test]
async fn standard_input_is_empty() {
    let finished = bash("cat; echo end").await;
    assert_eq!(text(&finished.stdout), "end\n");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let job = Job { program: "/no/such/program".into(), ..job("", directory.path()) };
    let error = run(job, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start /no/such/program");
    assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
}

/// A command waited for 81 minutes on a pipe that its background child held.
#[tokio::test]
async fn a_background_child_that_holds_the_pipes_is_not_waited_for_and_ends_with_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!("sleep 600 & echo $! > {}; echo hi", file.display());
    let finished = finish(job(&command, directory.path()), &CancellationToken::new()).await;
    assert_eq!((text(&finished.stdout), finished.end), ("hi\n", End::Exited(0)));
    gone(&pids(&file, 1).await).await;
}

#[tokio::test]
async fn a_chatty_background_child_is_not_waited_for_either() {
    let finished = bash("(while :; do echo chat; done) & exit 0").await;
    assert_eq!(finished.end, End::Exited(0));
}

/// Only the shell was killed, and what it had started ran on.
#[tokio::test]
async fn cancel_ends_the_whole_group_even_what_ignores_the_polite_signal() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!(
        "(trap '' TERM; echo $BASHPID >> {0}; while :; do sleep 1; done) & (sleep 600 & echo $! >> {0}); \
         echo $$ >> {0}; sleep 600",
        file.display()
    );
    let cancel = CancellationToken::new();
    let (finished, pids) = tokio::join!(finish(job(&command, directory.path()), &cancel), async {
        let pids = pids(&file, 3).await;
        cancel.cancel();
        pids
    });
    assert_eq!(finished.stopped, Some(Stopped::Cancelled));
    assert_eq!(finished.end, End::Signalled(15));
    gone(&pids).await;
}

#[tokio::test]
async fn a_command_may_finish_in_its_own_way_when_asked_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command =
        format!("trap 'echo saved; exit 7' TERM; echo $$ > {}; while :; do sleep 0.01; done", file.display());
    let cancel = CancellationToken::new();
    let job = Job { grace: SOON, ..job(&command, directory.path()) };
    let (finished, ()) = tokio::join!(finish(job, &cancel), async {
        pids(&file, 1).await;
        cancel.cancel();
    });
    assert_eq!((text(&finished.stdout), finished.end), ("saved\n", End::Exited(7)));
    assert_eq!(finished.stopped, Some(Stopped::Cancelled));
}

#[tokio::test]
async fn a_command_that_runs_too_long_is_ended_and_its_output_kept() {
    let directory = tempfile::tempdir().unwrap();
    let job = Job { timeout: Duration::from_millis(300), ..job("echo early; sleep 600", directory.path()) };
    let finished = finish(job, &CancellationToken::new()).await;
    assert_eq!(finished.stopped, Some(Stopped::TimedOut));
    assert_eq!((text(&finished.stdout), finished.end), ("early\n", End::Signalled(15)));
}

#[tokio::test]
async fn a_stopped_group_can_be_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!("echo $$ > {}; kill -STOP $$; sleep 600", file.display());
    let cancel = CancellationToken::new();
    let (finished, pids) = tokio::join!(finish(job(&command, directory.path()), &cancel), async {
        let pids = pids(&file, 1).await;
        cancel.cancel();
        pids
    });
    assert_eq!(finished.stopped, Some(Stopped::Cancelled));
    gone(&pids).await;
}

#[tokio::test]
async fn dropping_the_run_kills_the_group() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!("sleep 600 & echo $! >> {0}; echo $$ >> {0}; wait", file.display());
    let cancel = CancellationToken::new();
    let pids = tokio::select! {
        _ = run(job(&command, directory.path()), &cancel) => panic!("the command must still run"),
        pids = pids(&file, 2) => pids,
    };
    gone(&pids).await;
}

#[tokio::test]
async fn output_without_end_is_kept_in_bounded_memory() {
    let finished = bash("yes | head -c 50000000; echo last").await;
    assert_eq!(finished.stdout.head.len(), CAPS.head);
    assert_eq!(finished.stdout.tail.len(), CAPS.tail);
    assert_eq!(finished.stdout.omitted, 50_000_000 + 5 - 2048);
    assert!(finished.stdout.tail.ends_with(b"y\nlast\n"));
}

#[tokio::test]
async fn both_streams_are_read_at_once() {
    let finished =
        bash("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2").await;
    assert_eq!(finished.stdout.omitted, 300_000 - 2048);
    assert_eq!(finished.stderr.omitted, 600_000 - 2048);
}

#[tokio::test]
async fn output_of_a_helper_that_outlives_the_command_a_moment_is_kept() {
    let finished = bash("echo late > >(sleep 0.02; cat)").await;
    assert_eq!(text(&finished.stdout), "late\n");
}

/// Programs that use `select` or walk all descriptors break with the daemon's large limit. Runs in a process of its own,
/// since the limit is the process's.
#[test]
fn children_get_the_limit_on_open_files_that_the_daemon_was_started_with() {
    const INNER: &str = "DSHD_TEST_NOFILE";
    const NAME: &str =
        "process::run::tests::children_get_the_limit_on_open_files_that_the_daemon_was_started_with";
    if std::env::var_os(INNER).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        crate::process::raise_nofile_limit().unwrap();
        let own = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(own.current, Some(200));
        let finished = runtime.block_on(bash("ulimit -Sn; ulimit -Hn"));
        assert_eq!(text(&finished.stdout), "100\n200\n");
        return;
    }
    let output = std::process::Command::new("bash")
        .args(["-c", "ulimit -Sn 100; ulimit -Hn 200; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(INNER, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
