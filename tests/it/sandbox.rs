//! What commands may do under each means that confines them: one table, played over the built daemon by a scripted model.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::stage::text_of;
use crate::support::{Daemon, Home, Peer, SANDBOX, within};

/// What is tried. The command says `yes` when it could.
struct Attempt {
    name: &'static str,
    /// A line of bash; `$OUT`, `$SECRET`, `$TOKEN`, `$SOCKET`, `$PORT`, `$UDP`, `$NAME` and
    /// `$VICTIM` are put in.
    command: &'static str,
    bwrap: Outcome,
    landlock: Outcome,
    off: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    Done,
}
use Outcome::{Done, Refused};

const fn attempt(name: &'static str, command: &'static str, [bwrap, landlock, off]: [Outcome; 3]) -> Attempt {
    Attempt { name, command, bwrap, landlock, off }
}

/// The table: docs/security.md says the same in words.
const TABLE: [Attempt; 16] = [
    attempt("write in the workspace", "echo x > inside && echo yes", [Done, Done, Done]),
    attempt("write a temporary file", "f=$(mktemp) && echo x > $f && echo yes", [Done, Done, Done]),
    attempt("write outside", "echo x > $OUT/new && echo yes", [Refused, Refused, Done]),
    attempt("change a file outside", "echo x >> $OUT/file && echo yes", [Refused, Refused, Done]),
    attempt("read outside", "grep -q public $OUT/file && echo yes", [Done, Done, Done]),
    attempt("read credentials", "grep -q secret $SECRET && echo yes", [Refused, Refused, Done]),
    attempt("read tokens", "grep -q . $TOKEN && echo yes", [Refused, Refused, Done]),
    attempt("connect to the daemon", CONNECT_PATH, [Refused, Refused, Refused]),
    attempt("connect by TCP", "(exec 3<> /dev/tcp/127.0.0.1/$PORT) && echo yes", [Refused, Refused, Done]),
    attempt("send by UDP", SEND, [Refused, Refused, Done]),
    attempt("connect to an abstract socket", CONNECT_NAME, [Refused, Refused, Done]),
    attempt("write a hook", "echo x > .git/hooks/pre-commit && echo yes", [Refused, Done, Done]),
    attempt("move the hooks away", "mv .git .g && mv .g .git && echo yes", [Refused, Done, Done]),
    attempt(
        "look into an outer process",
        "head -c 1 /proc/$VICTIM/environ > /dev/null && echo yes",
        [Refused, Refused, Done],
    ),
    attempt("trace an outer process", TRACE, [Refused, Refused, Done]),
    attempt("signal an outer process", "kill -CONT $VICTIM && echo yes", [Refused, Refused, Done]),
];

const CONNECT_PATH: &str = r#"python3 - <<'.'
import socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect("$SOCKET")
s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1.0","clientInfo":{"name":"x","version":"1"}}}\n')
print("no" if b"may not command the daemon" in s.recv(4096) else "yes")
."#;
const CONNECT_NAME: &str = r#"python3 - <<'.'
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("\0$NAME")
print("yes")
."#;
/// Whether it arrived is seen at the other end.
const SEND: &str = "echo x > /dev/udp/127.0.0.1/$UDP";
/// `PTRACE_SEIZE`, which stops nobody.
const TRACE: &str = r#"python3 - <<'.'
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
print("yes" if libc.ptrace(0x4206, $VICTIM, 0, 0) == 0 else "no")
."#;

/// A daemon whose home is none of the private places, so that what is refused is refused for what it is.
struct House {
    daemon: Daemon,
    _outside: tempfile::TempDir,
    victim: std::process::Child,
    _tcp: std::net::TcpListener,
    udp: std::net::UdpSocket,
    _abstract: UnixListener,
    variables: Vec<(&'static str, String)>,
}

impl House {
    async fn new(setting: &str) -> Self {
        let home = Home::within(Path::new(env!("CARGO_TARGET_TMPDIR")));
        let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::write(outside.path().join("file"), "public\n").unwrap();
        let secret = home.path("home/.ssh/id");
        std::fs::create_dir_all(secret.parent().unwrap()).unwrap();
        std::fs::write(&secret, "secret\n").unwrap();
        home.run(["token", "create", "test"]).await.expect_code(0);
        std::fs::create_dir_all(home.work().join(".git/hooks")).unwrap();
        std::fs::write(home.work().join(".git/config"), "").unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let name = format!("dshd-it-{}-{setting}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let victim = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let text = |path: PathBuf| path.display().to_string();
        let variables = vec![
            ("$OUT", text(outside.path().to_path_buf())),
            ("$SECRET", text(secret)),
            ("$TOKEN", text(home.data().join("tokens.toml"))),
            ("$SOCKET", text(home.socket())),
            ("$PORT", tcp.local_addr().unwrap().port().to_string()),
            ("$UDP", udp.local_addr().unwrap().port().to_string()),
            ("$NAME", name),
            ("$VICTIM", victim.id().to_string()),
        ];
        let daemon = start(&home, setting);
        Self { daemon, _outside: outside, victim, _tcp: tcp, udp, _abstract: listener, variables }
    }

    fn command(&self, attempt: &Attempt) -> String {
        let put_in = |line: String, (name, value): &(&str, String)| line.replace(name, value);
        self.variables.iter().fold(attempt.command.to_owned(), put_in)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// `dshd serve` with a scripted model.
fn served(home: &Home, setting: &str) -> tokio::process::Command {
    let script = home.path("home/script.jsonl");
    std::fs::write(&script, "{\"parts\":[{\"text\":\"ok\"}]}\n").unwrap();
    let scripted = "default_provider = \"scripted\"\n[providers.scripted]\n";
    home.configure(&format!("{scripted}script = \"{}\"\n", script.display()));
    let mut command = home.dshd(["serve"]);
    command.env(SANDBOX, setting);
    command
}

fn start(home: &Home, setting: &str) -> Daemon {
    Daemon::spawn(home, served(home, setting))
}

/// Lets the model ask for a command at the next prompt.
fn plays(home: &Home, command: &str) {
    let call = json!({ "step": 1, "parts": [{ "tool": "bash", "arguments": { "command": command } }] });
    let script = format!("{call}\n{{\"parts\":[{{\"text\":\"ok\"}}]}}\n");
    std::fs::write(home.path("home/script.jsonl"), script).unwrap();
}

/// Runs a command by the tool, and gives back what the model is told.
async fn run(daemon: &Daemon, peer: &mut Peer, session: &str, command: &str) -> String {
    plays(daemon.home(), command);
    let id = peer.send_prompt(session, "go").await;
    let result = peer.event("tool/result").await;
    assert_eq!(peer.reply(id).await["result"]["status"], "ok");
    text_of(&result["event"]["data"]["message"])
}

/// Whether bubblewrap is here; where it may lack, the test says so.
fn has_bwrap() -> bool {
    let there = std::process::Command::new("bwrap").arg("--version").output().is_ok();
    if !there {
        assert!(std::env::var_os("DSHD_CI").is_none(), "bubblewrap is missing: apt-get install bubblewrap");
        eprintln!("SKIPPED: bubblewrap is missing (apt-get install bubblewrap)");
    }
    there
}

/// Whether the machine itself lets a process trace another of the same user.
fn may_trace() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope.trim() == "0")
}

async fn check(setting: &str, expected: impl Fn(&Attempt) -> Outcome) {
    let house = House::new(setting).await;
    let mut peer = house.daemon.peer().await;
    let mut wrong = Vec::new();
    for (number, attempt) in TABLE.iter().enumerate() {
        if setting == "off" && attempt.command == TRACE && !may_trace() {
            continue;
        }
        let said = run(&house.daemon, &mut peer, &format!("s{number}"), &house.command(attempt)).await;
        assert!(!said.contains("no sandbox works"), "{setting}: {said}");
        let arrived = house.udp.recv(&mut [0; 8]).is_ok();
        let outcome = if arrived || said.lines().any(|line| line == "yes") { Done } else { Refused };
        if outcome != expected(attempt) {
            wrong.push(format!("{setting}: {}: {outcome:?}: {said}", attempt.name));
        }
    }
    peer.leave_unread();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn under_bubblewrap_commands_do_what_the_table_says() {
    if has_bwrap() {
        check("bwrap", |attempt| attempt.bwrap).await;
    }
}

#[tokio::test]
async fn under_landlock_commands_do_what_the_table_says() {
    check("landlock", |attempt| attempt.landlock).await;
}

#[tokio::test]
async fn without_a_sandbox_commands_do_what_the_table_says() {
    check("off", |attempt| attempt.off).await;
}

#[tokio::test]
async fn where_no_sandbox_works_a_command_is_refused_and_the_reason_told() {
    let home = Home::new();
    std::fs::create_dir(home.path("bin")).unwrap();
    let mut command = served(&home, "bwrap");
    command.env("PATH", home.path("bin"));
    let daemon = Daemon::spawn(&home, command);
    let mut peer = daemon.peer().await;
    let said = run(&daemon, &mut peer, "s", "echo hi").await;
    assert!(said.contains("none works here: bwrap: not installed"), "{said}");
    assert!(said.contains("install bubblewrap"), "{said}");
    let told = peer.take_aside();
    let context = json!(told).to_string();
    assert!(context.contains("Commands don't run: no sandbox works on this machine."), "{context}");
    // With full access nothing need hold it.
    peer.call("session/update", json!({ "sessionId": "s", "permissionMode": "full-access" })).await;
    let said = run(&daemon, &mut peer, "s", "echo hi").await;
    assert!(said.contains("cannot start bash"), "{said}");
    peer.leave_unread();
}

#[tokio::test]
async fn a_read_only_session_writes_nothing_but_temporary_files() {
    for setting in SETTINGS.into_iter().filter(|setting| *setting != "off" && usable(setting)) {
        let home = Home::new();
        let daemon = start(&home, setting);
        let mut peer = daemon.connect().await;
        peer.initialize(json!({ "cwd": home.work(), "permissionMode": "read-only" })).await;
        let command = "echo x > new; cat notes.txt; f=$(mktemp) && echo x > $f && echo temporary";
        let said = run(&daemon, &mut peer, "s", command).await;
        assert!(said.contains("two\ntemporary"), "{setting}: {said}");
        assert!(!home.work().join("new").exists(), "{setting}");
        peer.leave_unread();
    }
}

#[tokio::test]
async fn the_network_is_there_from_the_reload_on_that_allows_it() {
    for setting in SETTINGS.into_iter().filter(|setting| *setting != "off" && usable(setting)) {
        let home = Home::new();
        let daemon = start(&home, setting);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let mut peer = daemon.peer().await;
        let line = format!("exec 3<> /dev/tcp/127.0.0.1/{port} && echo yes");
        let said = run(&daemon, &mut peer, "s", &line).await;
        assert!(!said.starts_with("yes"), "{setting}: {said}");
        let file = home.path("home/.config/dshd/dshd.toml");
        let configured = std::fs::read_to_string(file).unwrap();
        home.configure(&format!("{configured}[tools]\nnetwork = true\n"));
        daemon.signal(rustix::process::Signal::HUP);
        daemon.wait_for_line("the configuration was read again");
        let said = run(&daemon, &mut peer, "s", &line).await;
        assert!(said.starts_with("yes"), "{setting}: {said}");
        peer.leave_unread();
    }
}

/// A tree of processes that get away from their command in every way there is. Each has `$MARK` on its command line, and
/// `tree` is written when all are there.
const TREE: &str = r#"
    (exec -a $MARK sleep 600) &
    setsid bash -c 'exec -a $MARK sleep 600' > /dev/null 2>&1 < /dev/null &
    (setsid bash -c '(setsid bash -c "exec -a $MARK sleep 600" > /dev/null 2>&1 &)' &)
    env -i /usr/bin/setsid /bin/bash -c '(/bin/bash -c "exec -a $MARK /bin/sleep 600" > /dev/null 2>&1 &)' &
    (trap '' TERM HUP INT; exec -a $MARK sleep 600) &
    while test $(cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\0' '\n' | grep -cx $MARK) -lt 5; do sleep 0.01; done
    echo > tree
"#;
const TREE_COUNT: usize = 5;
const SETTINGS: [&str; 3] = ["bwrap", "landlock", "off"];

/// Living processes whose first word is this.
fn marked(mark: &str) -> usize {
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let lines = numbers.filter_map(|number| std::fs::read(format!("/proc/{number}/cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).next() == Some(mark.as_bytes())).count()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    within(what, async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

static TREES: AtomicUsize = AtomicUsize::new(0);

/// A daemon whose agent has started the tree; the command runs on if `rest` does.
async fn grown(setting: &str, rest: &str) -> (Daemon, Peer, u64, String) {
    let home = Home::new();
    let daemon = start(&home, setting);
    let mark = format!("tree-{setting}-{}-{}", std::process::id(), TREES.fetch_add(1, Ordering::Relaxed));
    let command = format!("{}\n{rest}", TREE.replace("$MARK", &mark));
    plays(&home, &command);
    let mut peer = daemon.peer().await;
    let id = peer.send_prompt("s", "grow").await;
    until("the tree", || home.work().join("tree").exists() && marked(&mark) == TREE_COUNT).await;
    (daemon, peer, id, mark)
}

fn usable(setting: &str) -> bool {
    setting != "bwrap" || has_bwrap()
}

/// The kernel gives orphans to whoever is next, and nobody ended them.
#[tokio::test]
async fn a_daemon_that_is_killed_leaves_no_process_of_its_commands_within_a_second() {
    for setting in SETTINGS.into_iter().filter(|setting| usable(setting)) {
        let (daemon, mut peer, _, mark) = grown(setting, "sleep 600").await;
        daemon.kill().await;
        let gone = async {
            while marked(&mark) > 0 {
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(std::time::Duration::from_secs(1), gone).await.is_ok();
        assert!(in_time, "{setting}: {} live on", marked(&mark));
        peer.leave_unread();
    }
}

#[tokio::test]
async fn what_an_ended_command_left_lives_on_and_dies_with_a_daemon_that_is_killed() {
    for setting in SETTINGS.into_iter().filter(|setting| usable(setting)) {
        let (daemon, mut peer, id, mark) = grown(setting, "true").await;
        assert_eq!(peer.reply(id).await["result"]["status"], "ok");
        assert_eq!(marked(&mark), TREE_COUNT, "{setting}");
        daemon.kill().await;
        until("their end", || marked(&mark) == 0).await;
        peer.leave_unread();
    }
}

#[tokio::test]
async fn a_cancel_leaves_no_process_of_a_command_under_any_sandbox() {
    for setting in SETTINGS.into_iter().filter(|setting| usable(setting)) {
        let (daemon, mut peer, id, mark) = grown(setting, "sleep 600").await;
        peer.call("session/cancel", json!({ "sessionId": "s" })).await;
        assert_eq!(peer.reply(id).await["result"]["status"], "aborted", "{setting}");
        assert_eq!(marked(&mark), 0, "{setting}");
        peer.leave_unread();
        drop(daemon);
    }
}
