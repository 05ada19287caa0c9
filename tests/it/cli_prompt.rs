//! `dshd prompt` against a daemon that says what the test wants: what goes to stdout and stderr, and how it ends.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Fake, Home, Peer, Ran, finish, within};

/// A daemon's side of one prompt.
struct Turn {
    command: Peer,
    prompt: Value,
    seq: u64,
}

impl Turn {
    /// Takes a prompt and tells that it is in the log.
    async fn begin(fake: &Fake) -> Self {
        let mut command = fake.greet().await;
        let prompt = command.request("session/prompt").await;
        let mut turn = Self { command, prompt, seq: 0 };
        let inserted = json!({
            "target": "next-turn", "start": 0, "idempotencyKey": turn.prompt["params"]["idempotencyKey"],
            "inserted": [turn.user_message()],
        });
        turn.event("agent/inbox/spliced", inserted).await;
        turn.event("turn/start", json!({ "turn": 1 })).await;
        let message = turn.user_message();
        turn.event("user/message", message).await;
        turn
    }

    fn user_message(&self) -> Value {
        json!({
            "role": "user", "id": "m1", "source": { "kind": "user" },
            "content": self.prompt["params"]["contentBlocks"],
        })
    }

    fn session(&self) -> &Value {
        &self.prompt["params"]["sessionId"]
    }

    async fn notify(&mut self, event: Value) {
        let params = json!({ "sessionId": self.session(), "epoch": 5, "event": event });
        let line = json!({ "jsonrpc": "2.0", "method": "session.event", "params": params });
        self.command.send_line(&line.to_string()).await;
    }

    async fn event(&mut self, kind: &str, data: Value) {
        let event = json!({ "type": kind, "seq": self.seq, "time": 1000 + self.seq, "data": data });
        self.seq += 1;
        self.notify(event).await;
    }

    async fn delta(&mut self, text: &str) {
        let chunk = json!({ "type": "text-delta", "index": 0, "text": text });
        let data = json!({ "turn": 1, "step": 1, "attempt": 1, "chunk": chunk });
        self.notify(json!({ "type": "assistant/chunk", "transient": true, "data": data })).await;
    }

    async fn says(&mut self, blocks: Value) {
        let source = json!({ "kind": "model", "provider": "deepseek-official", "model": "deepseek-flash" });
        let message = json!({ "role": "assistant", "id": "a1", "content": blocks, "source": source });
        let usage = json!({
            "inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 3, "cacheWriteTokens": 0, "totalTokens": 18,
        });
        self.event("assistant/message", json!({ "turn": 1, "step": 1, "message": message, "usage": usage }))
            .await;
    }

    async fn runs(&mut self, command: &str, result: &str) {
        let arguments = json!({ "command": command }).to_string();
        let call = json!({ "turn": 1, "step": 1, "callId": "c1", "name": "bash", "arguments": arguments });
        self.event("tool/call", call).await;
        let message = json!({
            "role": "tool", "id": "r1", "toolCallId": "c1", "isError": false,
            "source": { "kind": "tool", "callId": "c1" }, "content": [{ "type": "text", "text": result }],
        });
        self.event("tool/result", json!({ "turn": 1, "step": 1, "message": message })).await;
    }

    /// Ends the turn and answers the prompt; the command says nothing more.
    async fn end(mut self, status: &str, reason: Value) {
        self.event("turn/end", json!({ "turn": 1, "reason": reason })).await;
        let result = json!({ "messageId": "m1", "status": status, "reason": reason });
        let prompt = self.prompt.clone();
        self.command.answer(&prompt, result).await;
        self.command.expect_eof().await;
    }
}

fn text(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

async fn prompt(home: &Home, args: &[&str], daemon: impl AsyncFnOnce(&Fake)) -> Ran {
    let fake = Fake::listen(home);
    let args = ["prompt"].iter().chain(args);
    let (ran, ()) = tokio::join!(home.run(args), daemon(&fake));
    ran
}

#[tokio::test]
async fn a_pipe_gets_the_answer_and_not_what_came_before_the_tools() {
    let home = Home::new();
    let ran = prompt(&home, &["list", "them"], async |fake| {
        let mut turn = Turn::begin(fake).await;
        assert_eq!(turn.prompt["params"]["contentBlocks"], text("list them"));
        turn.delta("Let me ").await;
        turn.delta("look.").await;
        let call = json!({ "type": "tool-call", "id": "c1", "name": "bash", "arguments": "{}" });
        turn.says(json!([{ "type": "text", "text": "Let me look." }, call])).await;
        turn.runs("ls", "a\nb").await;
        turn.delta("Two: a ").await;
        turn.says(text("Two: a and b.")).await;
        turn.end("ok", json!({ "kind": "completed" })).await;
    })
    .await
    .expect_code(0);
    assert_eq!(ran.stdout, "Two: a and b.\n");
    assert_eq!(ran.stderr, "");
}

#[tokio::test]
async fn commentary_goes_to_stderr_when_it_is_asked_for() {
    let home = Home::new();
    let ran = prompt(&home, &["-v", "go"], async |fake| {
        let mut turn = Turn::begin(fake).await;
        turn.runs("cargo test", "no\n[exit code: 101]").await;
        turn.says(text("It fails.")).await;
        turn.end("ok", json!({ "kind": "completed" })).await;
    })
    .await
    .expect_code(0);
    assert_eq!(ran.stdout, "It fails.\n");
    assert!(ran.stderr.contains("tool: bash cargo test  exit 101\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("ok: 1 step · 1 tool · "), "{}", ran.stderr);
    assert!(ran.stderr.contains(" · 13 in (3 cached) / 5 out · session "), "{}", ran.stderr);
}

#[tokio::test]
async fn json_is_the_events_unchanged_and_then_a_result() {
    let home = Home::new();
    let ran = prompt(&home, &["--json", "-s", "s 1", "go"], async |fake| {
        let mut turn = Turn::begin(fake).await;
        let odd =
            r#"{"sessionId":"s 1","epoch":5,"event":{"type":"x/y","seq":3,"time":1,"data":{"n":1.50}}}"#;
        turn.command.send_line(&format!(r#"{{"method":"session.event","params":{odd}}}"#)).await;
        turn.delta("hel").await;
        turn.says(text("hello")).await;
        turn.end("ok", json!({ "kind": "completed" })).await;
    })
    .await
    .expect_code(0);
    let odd = r#"{"sessionId":"s 1","epoch":5,"event":{"type":"x/y","seq":3,"time":1,"data":{"n":1.50}}}"#;
    assert_eq!(ran.stdout.lines().nth(3), Some(odd));
    let lines = ran.json_lines();
    let (result, events) = lines.split_last().unwrap();
    assert!(events.iter().all(|event| event["sessionId"] == "s 1" && event["event"]["type"].is_string()));
    assert_eq!(events.last().unwrap()["event"]["type"], "turn/end");
    assert_eq!(result["type"], "result");
    assert_eq!(result["sessionId"], "s 1");
    assert_eq!(result["status"], "ok");
    assert_eq!(result["reason"], json!({ "kind": "completed" }));
    assert_eq!(result["text"], "hello");
    assert_eq!(result["usage"]["totalTokens"], 18);
    assert!(result["durationMs"].is_u64());
    assert_eq!(result.get("scripted"), None);
}

#[tokio::test]
async fn a_refused_key_ends_with_the_way_to_set_one() {
    let home = Home::new();
    let ran = prompt(&home, &["-s", "s1", "go"], async |fake| {
        let mut turn = Turn::begin(fake).await;
        turn.event(
            "request/context",
            json!({ "provider": "deepseek-official", "model": "m", "contextWindow": 1 }),
        )
        .await;
        let error = json!({ "message": "Authentication Fails", "code": "AUTH", "status": 401 });
        turn.end("error", json!({ "kind": "error", "error": error })).await;
    })
    .await
    .expect_code(1);
    assert_eq!(ran.stdout, "");
    let said = "error: the model refused the key (401, provider deepseek-official)\n\
                help: dshd login deepseek-official, or set DEEPSEEK_API_KEY; \
                session s1 is kept: dshd prompt -s s1 …\n";
    assert_eq!(ran.stderr, said);
}

#[tokio::test]
async fn what_was_said_before_a_failure_stays() {
    let home = Home::new();
    let ran = prompt(&home, &["go"], async |fake| {
        let mut turn = Turn::begin(fake).await;
        turn.delta("half an ans").await;
        let failure = json!({ "message": "the stream broke", "code": "TRANSPORT" });
        turn.event("assistant/attempt", json!({ "turn": 1, "step": 1, "failure": failure })).await;
        turn.end("error", json!({ "kind": "error", "error": failure })).await;
    })
    .await
    .expect_code(1);
    assert_eq!(ran.stdout, "half an ans\n");
    assert!(ran.stderr.starts_with("error: the stream broke ("), "{}", ran.stderr);
}

#[tokio::test]
async fn a_busy_session_is_exit_code_5() {
    let home = Home::new();
    let ran = prompt(&home, &["-s", "s1", "go"], async |fake| {
        let mut command = fake.greet().await;
        let prompt = command.request("session/prompt").await;
        assert_eq!(prompt["params"]["whenBusy"], "reject");
        let data = json!({ "kind": "session_busy", "sessionId": "s1", "messageId": "m0" });
        command.refuse(&prompt, -32005, "session s1 is busy with another prompt", data).await;
        command.expect_eof().await;
    })
    .await
    .expect_code(5);
    assert!(ran.stderr.starts_with("error: session s1 is busy"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--when-busy queue"), "{}", ran.stderr);
}

#[tokio::test]
async fn the_answer_goes_to_a_file_too() {
    let home = Home::new();
    let ran = prompt(&home, &["-q", "-o", "answer.txt", "go"], async |fake| {
        let mut turn = Turn::begin(fake).await;
        turn.says(text("hello")).await;
        turn.end("ok", json!({ "kind": "completed" })).await;
    })
    .await
    .expect_code(0);
    assert_eq!(ran.stdout, "hello\n");
    assert_eq!(std::fs::read_to_string(home.work().join("answer.txt")).unwrap(), "hello\n");
}

#[tokio::test]
async fn flags_become_the_settings_of_the_new_session() {
    let home = Home::new();
    let args =
        ["-m", "local/qwen", "--effort", "high", "--mode", "read-only", "-C", "src", "--when-busy", "queue"];
    let args: Vec<&str> = args.into_iter().chain(["--idempotency-key", "k1", "go"]).collect();
    prompt(&home, &args, async |fake| {
        let mut command = fake.accept().await;
        let hello = command.request("initialize").await;
        let params = &hello["params"];
        assert_eq!(params["provider"], "local");
        assert_eq!(params["model"], "qwen");
        assert_eq!(params["reasoningEffort"], "high");
        assert_eq!(params["permissionMode"], "read-only");
        assert_eq!(params["cwd"], json!(home.work().join("src").canonicalize().unwrap()));
        command.answer(&hello, crate::support::hello_of(1)).await;
        let prompt = command.request("session/prompt").await;
        assert_eq!(prompt["params"]["whenBusy"], "queue");
        assert_eq!(prompt["params"]["idempotencyKey"], "k1");
        command.refuse(&prompt, -32001, "too much", json!({ "kind": "overloaded" })).await;
        command.expect_eof().await;
    })
    .await
    .expect_code(1);
}

#[tokio::test]
async fn settings_of_new_sessions_are_refused_for_one_that_exists() {
    let home = Home::new();
    let ran = prompt(&home, &["-m", "x", "-s", "s1", "go"], async |fake| {
        let mut command = fake.greet().await;
        let resume = command.request("session/resume").await;
        command.answer(&resume, json!({ "epoch": 1, "lastSeq": 3 })).await;
        command.expect_eof().await;
    })
    .await
    .expect_code(64);
    assert!(ran.stderr.contains("--model is for new sessions"), "{}", ran.stderr);
}

#[tokio::test]
async fn continue_takes_the_last_session_of_the_directory() {
    let home = Home::new();
    prompt(&home, &["-c", "go"], async |fake| {
        let mut command = fake.greet().await;
        let list = command.request("session/list").await;
        assert_eq!(list["params"]["cwd"], json!(home.work().canonicalize().unwrap()));
        let session = json!({
            "sessionId": "s7", "title": null, "cwd": "/w", "createdAt": 1, "updatedAt": 2, "status": "idle",
            "lastSeq": 4,
        });
        command.answer(&list, json!({ "sessions": [session] })).await;
        let prompt = command.request("session/prompt").await;
        assert_eq!(prompt["params"]["sessionId"], "s7");
        command.refuse(&prompt, -32001, "too much", json!({ "kind": "overloaded" })).await;
        command.expect_eof().await;
    })
    .await
    .expect_code(1);
}

#[tokio::test]
async fn detach_leaves_with_the_session_once_the_prompt_is_safe() {
    let home = Home::new();
    let ran = prompt(&home, &["--detach", "-s", "s1", "go"], async |fake| {
        let mut command = fake.accept().await;
        let hello = command.request("initialize").await;
        assert_eq!(hello["params"]["completion"], "receipt");
        command.answer(&hello, crate::support::hello_of(1)).await;
        let prompt = command.request("session/prompt").await;
        command.answer(&prompt, json!({ "messageId": "m1" })).await;
        command.expect_eof().await;
    })
    .await
    .expect_code(3);
    assert_eq!(ran.stdout, "s1\n");
    assert!(ran.stderr.contains("still running: dshd log -f s1, or dshd cancel s1"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_timeout_leaves_the_turn_running() {
    let home = Home::new();
    let ran = prompt(&home, &["--timeout", "2s", "-s", "s1", "--json", "go"], async |fake| {
        let mut turn = Turn::begin(fake).await;
        turn.command.expect_eof().await;
    })
    .await
    .expect_code(3);
    assert_eq!(ran.json_lines().last().unwrap()["status"], "running");
}

#[tokio::test]
async fn a_daemon_that_goes_away_is_told_with_where_the_prompt_is() {
    let home = Home::new();
    let ran = prompt(&home, &["-s", "s1", "go"], async |fake| {
        Turn::begin(fake).await;
    })
    .await
    .expect_code(69);
    assert!(ran.stderr.contains("the prompt is in session s1: dshd log s1"), "{}", ran.stderr);
}

#[tokio::test]
async fn the_same_key_again_prints_the_first_answer_from_the_log() {
    let home = Home::new();
    let ran = prompt(&home, &["-s", "s1", "--idempotency-key", "k", "go"], async |fake| {
        let mut command = fake.greet().await;
        let prompt = command.request("session/prompt").await;
        let result = json!({ "messageId": "m1", "status": "ok", "reason": { "kind": "completed" } });
        command.answer(&prompt, result).await;
        let read = command.request("session/read").await;
        let message = json!({ "role": "user", "id": "m1", "source": { "kind": "user" }, "content": [] });
        let said = json!({
            "role": "assistant", "id": "a", "content": text("as before"), "source": { "kind": "model" },
        });
        let events = json!([
            { "type": "turn/start", "seq": 0, "time": 1, "data": { "turn": 1 } },
            { "type": "user/message", "seq": 1, "time": 1, "data": message },
            { "type": "assistant/message", "seq": 2, "time": 1, "data": { "turn": 1, "step": 1, "message": said } },
            { "type": "turn/end", "seq": 3, "time": 1, "data": { "turn": 1, "reason": { "kind": "completed" } } },
        ]);
        command.answer(&read, json!({ "events": events, "epoch": 5, "lastSeq": 3 })).await;
        command.expect_eof().await;
    })
    .await
    .expect_code(0);
    assert_eq!(ran.stdout, "as before\n");
}

async fn interrupted(signal: Signal, code: i32) {
    let home = Home::new();
    let fake = Fake::listen(&home);
    let child = home.dshd(["prompt", "-s", "s1", "go"]).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    let mut turn = Turn::begin(&fake).await;
    let call = json!({ "turn": 1, "step": 1, "callId": "c1", "name": "bash", "arguments": "{}" });
    turn.event("tool/call", call).await;
    kill_process(pid, signal).unwrap();
    let cancel = turn.command.request("session/cancel").await;
    assert_eq!(cancel["params"], json!({ "sessionId": "s1", "messageId": "m1" }));
    turn.command.answer(&cancel, json!({ "cancelled": true })).await;
    turn.end("aborted", json!({ "kind": "aborted", "reason": { "kind": "user" } })).await;
    let output = within("the command", child.wait_with_output()).await.unwrap();
    assert_eq!(output.status.code(), Some(code));
}

#[tokio::test]
async fn ctrl_c_cancels_our_own_prompt_and_waits_for_its_end() {
    interrupted(Signal::INT, 130).await;
}

#[tokio::test]
async fn sigterm_cancels_as_ctrl_c_does() {
    interrupted(Signal::TERM, 143).await;
}

#[tokio::test]
async fn a_second_ctrl_c_leaves_at_once() {
    let home = Home::new();
    let fake = Fake::listen(&home);
    let child = home.dshd(["prompt", "go"]).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    let mut turn = Turn::begin(&fake).await;
    kill_process(pid, Signal::INT).unwrap();
    turn.command.request("session/cancel").await;
    kill_process(pid, Signal::INT).unwrap();
    let output = within("the command", child.wait_with_output()).await.unwrap();
    assert_eq!(output.status.code(), Some(130));
    turn.command.expect_eof().await;
}

#[tokio::test]
async fn a_reader_of_stdout_that_goes_away_ends_the_command_quietly() {
    let home = Home::new();
    let fake = Fake::listen(&home);
    let mut command = home.dshd(["prompt", "--json", "go"]);
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer);
    let child = command.spawn().unwrap();
    drop((command, reader));
    let mut turn = Turn::begin(&fake).await;
    turn.command.expect_eof().await;
    let output = within("the command", child.wait_with_output()).await.unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(output.stderr, b"");
}

/// The text that a prompt sends.
async fn text_of(home: &Home, args: &[&str], stdin: &[u8]) -> String {
    let fake = Fake::listen(home);
    let daemon = async {
        let mut command = fake.greet().await;
        let prompt = command.request("session/prompt").await;
        command.refuse(&prompt, -32001, "too much", json!({ "kind": "overloaded" })).await;
        command.expect_eof().await;
        prompt["params"]["contentBlocks"][0]["text"].as_str().unwrap().to_owned()
    };
    let args = ["prompt"].iter().chain(args);
    let (ran, text) = tokio::join!(home.run_with(args, stdin), daemon);
    ran.expect_code(1);
    text
}

#[tokio::test]
async fn stdin_is_the_prompt_when_there_is_no_text() {
    assert_eq!(text_of(&Home::new(), &[], b"from a pipe\n").await, "from a pipe\n");
    assert_eq!(text_of(&Home::new(), &["-"], b"from a pipe").await, "from a pipe");
}

#[tokio::test]
async fn stdin_is_added_only_when_asked_for() {
    assert_eq!(text_of(&Home::new(), &["review"], b"diff").await, "review");
    assert_eq!(text_of(&Home::new(), &["--stdin", "review"], b"diff").await, "review\n\n```\ndiff\n```");
}

#[tokio::test]
async fn an_empty_prompt_is_wrong_usage() {
    let home = Home::new();
    let ran = finish(home.dshd(["prompt"]), b"").await.expect_code(64);
    assert!(ran.stderr.starts_with("error: the prompt is empty\nhelp: "), "{}", ran.stderr);
}
