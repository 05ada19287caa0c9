//! Commands from start to end, with real processes.

use std::path::Path;

use super::*;

const SOON: Duration = Duration::from_secs(20);
/// How often something outside is looked at again.
const POLL: Duration = Duration::from_millis(5);
const CAPS: Caps = Caps { head: 1024, tail: 1024 };

fn launch(command: &str, directory: &Path) -> Launch {
    Launch {
        program: "bash".into(),
        arguments: vec!["-c".into(), command.into()],
        directory: directory.to_owned(),
        environment: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
        caps: CAPS,
        spool: None,
        is_job: false,
        confinement: Confinement::none(),
    }
}

const GRACE: Duration = Duration::from_millis(200);

fn terms(cancel: &CancellationToken) -> Terms<'_> {
    Terms { timeout: Some(SOON), grace: GRACE, cancel }
}

/// A family whose orphans come to this process, as they do in the daemon.
fn family() -> Arc<Family> {
    crate::process::adopt_orphans().unwrap();
    Arc::default()
}

async fn finish(launch: Launch, family: &Arc<Family>, terms: Terms<'_>) -> Finished {
    let running = Running::start(&launch, family).await.unwrap();
    timeout(SOON, running.finish(terms)).await.unwrap().unwrap()
}

async fn bash(command: &str) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    finish(launch(command, directory.path()), &family(), terms(&CancellationToken::new())).await
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
    let launch = Launch { program: "/no/such/program".into(), ..launch("", directory.path()) };
    let error = Running::start(&launch, &family()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start /no/such/program");
    assert!(matches!(error, StartError::Program { source, .. } if source.kind() == io::ErrorKind::NotFound));
}

/// A command waited for 81 minutes on a pipe that its background child held.
#[tokio::test]
async fn a_background_child_that_holds_the_pipes_is_not_waited_for_and_ends_with_the_family() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!("sleep 600 & echo $! > {}; echo hi", file.display());
    let family = family();
    let cancel = CancellationToken::new();
    let finished = finish(launch(&command, directory.path()), &family, terms(&cancel)).await;
    assert_eq!((text(&finished.stdout), finished.end), ("hi\n", End::Exited(0)));
    let pids = pids(&file, 1).await;
    assert!(runs(pids[0]) && timeout(SOON, family.lives()).await.unwrap());
    timeout(SOON, family.end(GRACE)).await.unwrap();
    assert!(!runs(pids[0]) && !family.lives().await);
}

/// Once its pipe was closed it would have been killed by its next word.
#[tokio::test]
async fn a_background_child_may_go_on_writing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!(
        "(head -c 200000 /dev/zero | tr '\\0' x; echo $BASHPID > {}; sleep 600) & exit 0",
        file.display()
    );
    let family = family();
    let cancel = CancellationToken::new();
    let finished = finish(launch(&command, directory.path()), &family, terms(&cancel)).await;
    assert_eq!(finished.end, End::Exited(0));
    let pids = pids(&file, 1).await;
    assert!(runs(pids[0]));
    drop(family);
    gone(&pids).await;
}

#[tokio::test]
async fn a_chatty_background_child_is_not_waited_for_either() {
    let finished = bash("(while :; do echo chat; done) & exit 0").await;
    assert_eq!(finished.end, End::Exited(0));
}

/// What a command starts in all the ways in which processes get away from it; each writes its pid to `$1`.
const RUNAWAYS: &str = r#"
    (sleep 600 & echo $! >> "$1")
    setsid nohup bash -c 'echo $$ >> "$1"; exec sleep 600' - "$1" > /dev/null 2>&1 < /dev/null &
    (setsid bash -c '(setsid bash -c "echo \$\$ >> \"$1\"; exec sleep 600" - "$1" > /dev/null 2>&1 &)' - "$1" &)
    env -i setsid bash -c '(setsid bash -c "echo \$\$ >> \"$1\"; exec sleep 600" - "$1" > /dev/null 2>&1 &)' - "$1" &
    (trap '' TERM; echo $BASHPID >> "$1"; while :; do sleep 1; done) &
"#;
const RUNAWAYS_COUNT: usize = 5;

fn runaways(file: &Path, rest: &str) -> String {
    format!("set -- '{}'\n{RUNAWAYS}\n{rest}", file.display())
}

/// Only the shell was killed, and what it had started ran on.
#[tokio::test]
async fn cancel_ends_all_that_the_command_started_wherever_it_went() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = runaways(&file, "echo $$ >> \"$1\"; sleep 600");
    let cancel = CancellationToken::new();
    let family = family();
    let (finished, pids) =
        tokio::join!(finish(launch(&command, directory.path()), &family, terms(&cancel)), async {
            let pids = pids(&file, RUNAWAYS_COUNT + 1).await;
            cancel.cancel();
            pids
        });
    assert_eq!(finished.stopped, Some(Stopped::Cancelled));
    assert_eq!(finished.end, End::Signalled(15));
    let left: Vec<_> = pids.iter().filter(|pid| runs(**pid)).collect();
    assert!(left.is_empty(), "{left:?} of {pids:?} still run");
}

#[tokio::test]
async fn what_a_command_left_wherever_it_went_ends_with_its_turn_when_that_is_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let (earlier, file) = (directory.path().join("earlier"), directory.path().join("pids"));
    let (family, cancel) = (family(), CancellationToken::new());
    let command = format!("sleep 600 & echo $! > {}", earlier.display());
    finish(launch(&command, directory.path()), &family, terms(&cancel)).await;
    family.begin_turn();
    let job = Launch { is_job: true, ..launch("sleep 600", directory.path()) };
    let job = Running::start(&job, &family).await.unwrap();
    finish(launch(&runaways(&file, "exit 0"), directory.path()), &family, terms(&cancel)).await;
    let left = pids(&file, RUNAWAYS_COUNT).await;
    assert!(left.iter().all(|pid| runs(*pid)));
    timeout(SOON, family.end_turn(GRACE)).await.unwrap();
    assert!(!left.iter().any(|pid| runs(*pid)), "something of {left:?} still runs");
    let earlier = pids(&earlier, 1).await;
    assert!(runs(earlier[0]), "it is of an earlier turn");
    assert!(timeout(POLL, job.group.program_ended()).await.is_err(), "jobs go on");
    timeout(SOON, family.end(GRACE)).await.unwrap();
    timeout(SOON, job.group.program_ended()).await.unwrap().unwrap();
    assert!(!runs(earlier[0]));
}

#[tokio::test]
async fn a_family_that_is_dropped_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let family = family();
    let cancel = CancellationToken::new();
    finish(launch(&runaways(&file, "exit 0"), directory.path()), &family, terms(&cancel)).await;
    let pids = pids(&file, RUNAWAYS_COUNT).await;
    drop(family);
    gone(&pids).await;
}

#[tokio::test]
async fn families_leave_each_other_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let (one, other) = (family(), family());
    let cancel = CancellationToken::new();
    let command = format!("setsid sleep 600 > /dev/null 2>&1 & echo $! > {}", file.display());
    finish(launch(&command, directory.path()), &one, terms(&cancel)).await;
    finish(launch("true", directory.path()), &other, terms(&cancel)).await;
    timeout(SOON, other.end(GRACE)).await.unwrap();
    let pids = pids(&file, 1).await;
    assert!(runs(pids[0]) && one.lives().await && !other.lives().await);
}

#[tokio::test]
async fn a_command_may_finish_in_its_own_way_when_asked_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command =
        format!("trap 'echo saved; exit 7' TERM; echo $$ > {}; while :; do sleep 0.01; done", file.display());
    let cancel = CancellationToken::new();
    let (family, terms) = (family(), Terms { grace: SOON, ..terms(&cancel) });
    let (finished, ()) = tokio::join!(finish(launch(&command, directory.path()), &family, terms), async {
        pids(&file, 1).await;
        cancel.cancel();
    });
    assert_eq!((text(&finished.stdout), finished.end), ("saved\n", End::Exited(7)));
    assert_eq!(finished.stopped, Some(Stopped::Cancelled));
}

#[tokio::test]
async fn a_command_that_runs_too_long_is_ended_with_all_that_it_started_and_its_output_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!("setsid sleep 600 & echo $! > {}; echo early; sleep 600", file.display());
    let cancel = CancellationToken::new();
    let terms = Terms { timeout: Some(Duration::from_millis(300)), ..terms(&cancel) };
    let finished = finish(launch(&command, directory.path()), &family(), terms).await;
    assert_eq!(finished.stopped, Some(Stopped::TimedOut));
    assert_eq!((text(&finished.stdout), finished.end), ("early\n", End::Signalled(15)));
    assert!(!runs(pids(&file, 1).await[0]));
}

#[tokio::test]
async fn a_stopped_group_can_be_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!("echo $$ > {}; kill -STOP $$; sleep 600", file.display());
    let cancel = CancellationToken::new();
    let family = family();
    let (finished, pids) =
        tokio::join!(finish(launch(&command, directory.path()), &family, terms(&cancel)), async {
            let pids = pids(&file, 1).await;
            cancel.cancel();
            pids
        });
    assert_eq!(finished.stopped, Some(Stopped::Cancelled));
    gone(&pids).await;
}

#[tokio::test]
async fn dropping_the_run_kills_all_that_it_started() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = runaways(&file, "echo $$ >> \"$1\"; wait");
    let cancel = CancellationToken::new();
    let running = Running::start(&launch(&command, directory.path()), &family()).await.unwrap();
    let pids = tokio::select! {
        _ = running.finish(terms(&cancel)) => panic!("the command must still run"),
        pids = pids(&file, RUNAWAYS_COUNT + 1) => pids,
    };
    gone(&pids).await;
}

#[tokio::test]
async fn what_does_not_fit_into_memory_is_in_the_spool_from_its_start_on() {
    let directory = tempfile::tempdir().unwrap();
    let spool = Spool::new(directory.path(), 50_000, 1_000_000);
    let session = SessionId::new("s").unwrap();
    let spooling = Launch {
        spool: Some((spool.clone(), session.clone())),
        ..launch("seq 2000; echo short >&2; seq 20000 >&2", directory.path())
    };
    let cancel = CancellationToken::new();
    let finished = finish(spooling, &family(), terms(&cancel)).await;
    let spooled = finished.stdout.spooled.unwrap();
    let mut whole = (1..=2000).map(|number| number.to_string()).collect::<Vec<_>>().join("\n");
    whole.push('\n');
    assert_eq!(std::fs::read_to_string(&spooled.path).unwrap(), whole);
    assert!(spooled.is_whole);
    let spooled = finished.stderr.spooled.unwrap();
    let kept = std::fs::read_to_string(&spooled.path).unwrap();
    assert!(kept.starts_with("short\n1\n2\n") && kept.len() == 50_000 && !spooled.is_whole);
    spool.forget(&session);
    assert!(!spooled.path.exists());
}

#[tokio::test]
async fn a_spool_that_cannot_be_written_costs_nothing_but_itself() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("spool"), "in the way").unwrap();
    let spool = Spool::new(directory.path(), 50_000, 1_000_000);
    let spool = Some((spool, SessionId::new("s").unwrap()));
    let spooling = Launch { spool, ..launch("seq 20000", directory.path()) };
    let cancel = CancellationToken::new();
    let finished = finish(spooling, &family(), terms(&cancel)).await;
    assert_eq!((finished.stdout.spooled, finished.end), (None, End::Exited(0)));
    assert!(finished.stdout.tail.ends_with(b"20000\n"));
}

#[tokio::test]
async fn output_can_be_looked_at_while_the_command_runs() {
    let directory = tempfile::tempdir().unwrap();
    let running =
        Running::start(&launch("echo early; sleep 600", directory.path()), &family()).await.unwrap();
    let view = running.view();
    let cancel = CancellationToken::new();
    let (finished, ()) = tokio::join!(running.finish(terms(&cancel)), async {
        let seen = async {
            while text(&view.now().0) != "early\n" {
                tokio::time::sleep(POLL).await;
            }
        };
        timeout(SOON, seen).await.unwrap();
        cancel.cancel();
    });
    assert_eq!(finished.unwrap().stopped, Some(Stopped::Cancelled));
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
