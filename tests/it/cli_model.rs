//! Commands, daemon and a model server: what a person sees of a turn, and what is asked of models.

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::model_server::{ModelServer, Reply, chat};
use crate::support::{Home, Terminal, finish};

/// `dshd` in a shell that has a key for this server.
fn dshd(home: &Home, server: &ModelServer, args: &[&str]) -> Command {
    let mut command = home.dshd(args);
    command
        .env("DEEPSEEK_API_KEY", "sk-test")
        .env("DEEPSEEK_BASE_URL", server.url())
        .env("DSHD_PROVIDERS__DEEPSEEK_OFFICIAL__MAX_RETRIES", "0");
    command
}

#[tokio::test]
async fn an_auto_started_daemon_has_the_key_and_the_address_of_the_shell() {
    let (home, server) = (Home::new(), ModelServer::start().await);
    server.push(chat::reply(&["Hel", "lo"]));
    let ran = finish(dshd(&home, &server, &["prompt", "--json", "hi"]), b"").await.expect_code(0);
    let result = ran.json_lines().pop().unwrap();
    assert_eq!(result["text"], "Hello");
    assert_eq!(result.get("scripted"), None);
    assert_eq!(server.request().await.header("authorization"), Some("Bearer sk-test"));
}

#[tokio::test]
async fn a_terminal_shows_text_as_it_is_written_and_tools_as_they_end() {
    let (home, server) = (Home::new(), ModelServer::start().await);
    server.push(chat::calls(&[("c1", "bash", r#"{"command":"echo out; exit 7"}"#)]));
    let (reply, live) = Reply::live();
    server.push(reply);
    let terminal = Terminal::run(dshd(&home, &server, &["prompt", "--thinking", "hi"]));
    live.send(chat::reasoning("Hmm. ")).await;
    terminal.shows("Hmm. ").await;
    live.send(chat::text("The first half")).await;
    terminal.shows("The first half").await;
    live.send(chat::text(" and \u{1b}]0;title\u{7}the second")).await;
    for part in [chat::finish("stop"), chat::usage(), chat::DONE.to_owned()] {
        live.send(part).await;
    }
    live.end().await;
    let (status, seen) = terminal.end().await;
    assert_eq!(status.code(), Some(0), "{seen}");
    assert!(seen.contains("The first half and the second\r\n"), "{seen}");
    assert!(seen.contains("\u{1b}[31m●\u{1b}[0m bash   echo out; exit 7"), "{seen}");
    assert!(seen.contains("  exit 7\r\n"), "{seen}");
    assert!(seen.contains("✓\u{1b}[0m ok   2 steps · 1 tool · "), "{seen}");
}

#[tokio::test]
async fn without_colours_a_terminal_gets_words() {
    let (home, server) = (Home::new(), ModelServer::start().await);
    server.push(chat::calls(&[("c1", "bash", r#"{"command":"exit 7"}"#)]));
    server.push(chat::reply(&["done"]));
    let mut command = dshd(&home, &server, &["prompt", "hi"]);
    command.env("NO_COLOR", "1");
    let (_, seen) = Terminal::run(command).end().await;
    assert!(seen.contains("tool: bash exit 7  exit 7\r\n"), "{seen}");
    assert!(!seen.contains('\u{1b}'), "{seen}");
}

#[tokio::test]
async fn ctrl_c_ends_the_turn_and_its_processes() {
    let (home, server) = (Home::new(), ModelServer::start().await);
    server.push(chat::calls(&[("c1", "bash", r#"{"command":"sleep 600"}"#)]));
    let terminal = Terminal::run(dshd(&home, &server, &["prompt", "-s", "s1", "hi"]));
    terminal.shows("bash sleep 600").await;
    kill_process(Pid::from_raw(terminal.pid()).unwrap(), Signal::INT).unwrap();
    let (status, seen) = terminal.end().await;
    assert_eq!(status.code(), Some(130), "{seen}");
    assert!(seen.contains("^C cancelling… done (1 process tree ended)"), "{seen}");
    let end = home.run(["log", "s1", "--raw", "-n", "1"]).await.expect_code(0).json();
    assert_eq!(end["data"]["reason"]["kind"], "aborted");
}

#[tokio::test]
async fn a_refused_key_is_an_error_and_never_a_scripted_answer() {
    let (home, server) = (Home::new(), ModelServer::start().await);
    server.push(Reply::status(401).json(r#"{"error":{"message":"Authentication Fails"}}"#));
    let ran = finish(dshd(&home, &server, &["prompt", "-s", "s1", "hi"]), b"").await.expect_code(1);
    assert_eq!(ran.stdout, "");
    let said = "error: the model refused the key (401, provider deepseek-official)\n\
                help: dshd login deepseek-official, or set DEEPSEEK_API_KEY; \
                session s1 is kept: dshd prompt -s s1 …\n";
    assert_eq!(ran.stderr, said);
}

#[tokio::test]
async fn a_running_session_is_busy_and_can_be_cancelled_from_elsewhere() {
    let (home, server) = (Home::new(), ModelServer::start().await);
    let (reply, live) = Reply::live();
    server.push(reply);
    let first = finish(dshd(&home, &server, &["prompt", "-s", "s1", "hi"]), b"");
    let others = async {
        server.request().await;
        let busy = finish(dshd(&home, &server, &["prompt", "-s", "s1", "again"]), b"").await;
        assert!(busy.expect_code(5).stderr.contains("busy"));
        let running = home.run(["sessions", "--running", "--json"]).await.expect_code(0).json();
        assert_eq!(running["sessions"][0]["sessionId"], "s1");
        let cancelled = home.run(["cancel", "--all", "--json"]).await.expect_code(0).json();
        assert_eq!(cancelled["sessions"][0], serde_json::json!({ "sessionId": "s1", "cancelled": true }));
        live.closed().await;
    };
    let (ran, ()) = tokio::join!(first, others);
    assert!(ran.expect_code(1).stderr.contains("cancelled, not from here"));
}

#[tokio::test]
async fn models_can_be_asked_for_a_word() {
    let (home, server) = (Home::new(), ModelServer::start().await);
    home.configure(
        "default_provider = \"local\"\ndefault_model = \"small\"\n\
         [providers.local]\nkind = \"chat\"\napi_key_env = \"LOCAL_KEY\"\n",
    );
    let check = || {
        let mut command = home.dshd(["models", "--check", "--json"]);
        command.env("LOCAL_KEY", "k").env("DSHD_PROVIDERS__LOCAL__BASE_URL", server.url());
        command
    };
    server.push(chat::reply(&["ok"]));
    let told = finish(check(), b"").await.expect_code(0).json();
    assert_eq!(told["checks"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(told["checks"][0]["model"], "small");
    assert_eq!(told["checks"][0]["ok"], true);
    server.push(Reply::status(401).json(r#"{"error":{"message":"no"}}"#));
    let told = finish(check(), b"").await.expect_code(1).json();
    assert_eq!(told["checks"][0]["message"], "the key was refused (401)");
}
