//! A task as people give it: a crate whose test fails, and a model that looks, delegates a search, edits and runs the
//! test until it passes. On every wire to a model.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::model_server::{ModelServer, Reply, anthropic, chat, responses};
use crate::stage::{events, leave, text_of};
use crate::support::{Daemon, Home, Peer, of_type};

const PROMPT: &str = "The crate's test fails. Make it pass.";
const CHILD_PROMPT: &str = "Where does src/ define the function that adds? Answer with file and line.";
const FOUND: &str = "src/sum.rs, line 2";

/// What a model does in one step.
enum Does {
    /// Calls tools: name and arguments.
    Calls(Vec<(&'static str, Value)>),
    Says(&'static str),
}

/// One step of the model, and whether it is the subagent's.
struct Step {
    child: bool,
    does: Does,
}

/// A crate with a wrong function, and what a build leaves kept out of sight.
fn make_crate(root: &Path) {
    let manifest = "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
                    [lib]\ndoctest = false\n[profile.dev]\ndebug = false\n[workspace]\n";
    let library = "mod sum;\npub use sum::add;\n\n#[test]\nfn two_and_three_are_five() {\n    \
                   assert_eq!(add(2, 3), 5);\n}\n";
    let wrong = "/// The sum of two numbers.\npub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n";
    fs::write(root.join("Cargo.toml"), manifest).unwrap();
    fs::write(root.join("src/lib.rs"), library).unwrap();
    fs::write(root.join("src/sum.rs"), wrong).unwrap();
    fs::write(root.join(".gitignore"), "target\n").unwrap();
}

/// The toolchain that builds this test, first in PATH: the home of a test has none.
fn cargo_test() -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    let directory = Path::new(&cargo).parent().unwrap().display().to_string();
    format!("PATH='{directory}':\"$PATH\" cargo test --offline --quiet")
}

fn steps() -> Vec<Step> {
    let run = || json!({ "command": cargo_test(), "description": "Run the test" });
    let todos = |first: &str, second: &str| json!({ "todos": [{ "content": "find the fault", "status": first }, { "content": "mend it", "status": second }] });
    let own = |calls| Step { child: false, does: Does::Calls(calls) };
    vec![
        own(vec![("bash", run())]),
        own(vec![("todo_write", todos("in_progress", "pending"))]),
        own(vec![
            ("read", json!({ "file_path": "src/lib.rs" })),
            ("grep", json!({ "pattern": "add", "path": "src" })),
            ("glob", json!({ "pattern": "**/*.rs" })),
        ]),
        own(vec![("subagent", json!({ "description": "Find the function", "prompt": CHILD_PROMPT }))]),
        Step { child: true, does: Does::Calls(vec![("grep", json!({ "pattern": r"fn add\(" }))]) },
        Step { child: true, does: Does::Says(FOUND) },
        own(vec![("read", json!({ "file_path": "src/sum.rs" }))]),
        own(vec![(
            "edit",
            json!({ "file_path": "src/sum.rs", "old_string": "    a - b\n", "new_string": "    a + b\n" }),
        )]),
        own(vec![("bash", run()), ("todo_write", todos("completed", "completed"))]),
        Step { child: false, does: Does::Says("add subtracted; it adds now, and the test passes.") },
    ]
}

/// The same steps as lines of a script.
fn script(steps: &[Step]) -> Vec<String> {
    let mut made = [0, 0];
    let line = |step: &Step| {
        let number = &mut made[usize::from(step.child)];
        *number += 1;
        let parts: Vec<Value> = match &step.does {
            Does::Says(text) => vec![json!({ "text": text })],
            Does::Calls(calls) => calls
                .iter()
                .map(|(name, arguments)| json!({ "tool": name, "arguments": arguments }))
                .collect(),
        };
        let prompt = if step.child { CHILD_PROMPT } else { PROMPT };
        json!({ "prompt": prompt, "step": *number, "parts": parts }).to_string()
    };
    steps.iter().map(line).collect()
}

type Calls<'a> = &'a [(&'a str, &'a str, &'a str)];

/// A wire of the model server: its name, an answer that calls, an answer that says.
type Wire = (&'static str, fn(Calls<'_>) -> Reply, fn(&[&str]) -> Reply);

/// Queues the same steps as answers of a model server, in the order in which they are asked for.
fn queue(model: &ModelServer, steps: &[Step], (_, calls_reply, reply): Wire) {
    let mut count = 0;
    for step in steps {
        match &step.does {
            Does::Says(text) => model.push(reply(&[text])),
            Does::Calls(calls) => {
                let mut raw: Vec<(String, &str, String)> = Vec::new();
                for (name, arguments) in calls {
                    count += 1;
                    raw.push((format!("call_{count}"), name, arguments.to_string()));
                }
                let calls: Vec<_> =
                    raw.iter().map(|(id, name, raw)| (id.as_str(), *name, raw.as_str())).collect();
                model.push(calls_reply(&calls));
            }
        }
    }
}

/// Gives the task and takes what comes up to the prompt's reply. Each wait is for one message: builds take their time.
async fn give(peer: &mut Peer) -> Vec<Value> {
    let id = peer.send_prompt("task", PROMPT).await;
    let mut told = Vec::new();
    loop {
        let message = peer.message().await;
        if message["id"] == id {
            assert_eq!(message["result"]["status"], "ok", "{message}");
            return told;
        }
        told.push(message);
    }
}

/// The texts of a session's tool results, in order, none of them a failure.
fn results(told: &[Value], session: impl Fn(&Value) -> bool) -> Vec<String> {
    let of_session: Vec<Value> =
        told.iter().filter(|message| session(&message["params"]["sessionId"])).cloned().collect();
    let of_session: Vec<Value> = events(&of_session).into_iter().cloned().collect();
    let results = of_type(&of_session, "tool/result").into_iter();
    results
        .map(|result| {
            let text = text_of(&result["data"]["message"]);
            assert_eq!(result["data"]["message"]["isError"], false, "{text}");
            text
        })
        .collect()
}

/// What must have come of the task, whatever the wire.
fn check(home: &Home, told: &[Value]) {
    let texts = results(told, |session| session == "task");
    let path = home.work().join("src/sum.rs");
    let [failed, listed, library, found, files, delegated, wrong, edited, passed, done] = &texts[..] else {
        panic!("{texts:#?}")
    };
    assert!(failed.contains("two_and_three_are_five") && failed.ends_with("[exit code: 101]"), "{failed}");
    assert_eq!(listed, "Updated todo list: 1 pending, 1 in progress, 0 completed.");
    assert!(library.contains("\n6:     assert_eq!(add(2, 3), 5);\n"), "{library}");
    assert!(found.contains("sum.rs\nLine 2: pub fn add(a: i32, b: i32) -> i32 {"), "{found}");
    assert!(
        files.contains("src/lib.rs") && files.contains("src/sum.rs") && !files.contains("target"),
        "{files}"
    );
    assert_eq!(delegated, FOUND);
    assert!(wrong.contains("\n3:     a - b\n"), "{wrong}");
    assert_eq!(*edited, format!("The file {} has been updated successfully.", path.display()));
    assert!(passed.contains("1 passed; 0 failed") && !passed.contains("[exit code"), "{passed}");
    assert_eq!(done, "Updated todo list: 0 pending, 0 in progress, 2 completed.");
    let childs = results(told, |session| session.is_string() && session != "task");
    assert!(childs.len() == 1 && childs[0].contains("Line 2: pub fn add("), "{childs:?}");
    let methods = |name: &str| told.iter().filter(|message| message["method"] == name).count();
    assert_eq!((methods("subagent.started"), methods("subagent.finished")), (1, 1));
    assert_eq!(
        fs::read_to_string(path).unwrap(),
        "/// The sum of two numbers.\npub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n"
    );
}

/// Plays the task over a wire of the model server.
async fn play(wire: Wire) {
    let (kind, ..) = wire;
    let home = Home::new();
    make_crate(&home.work());
    let model = ModelServer::start().await;
    let steps = steps();
    queue(&model, &steps, wire);
    home.configure(&format!(
        "default_provider = \"fake\"\ndefault_model = \"m\"\n[providers.fake]\nkind = \"{kind}\"\n\
         base_url = \"{}\"\napi_key_env = \"FAKE_KEY\"\n",
        model.url()
    ));
    let mut command = home.dshd(["serve"]);
    command.env("FAKE_KEY", "sk-test");
    let daemon = Daemon::spawn(&home, command);
    let mut peer = daemon.peer().await;
    let told = give(&mut peer).await;
    check(&home, &told);
    // Each request but the first of a session brings the result of the step before.
    let requests = model.requests();
    assert_eq!(requests.len(), steps.len());
    let last = requests.last().unwrap().text();
    for part in ["1 passed; 0 failed", FOUND, "has been updated successfully", PROMPT] {
        assert!(last.contains(part), "{part}: {last}");
    }
    assert!(!last.contains(r"fn add\\\\("), "the subagent's own steps stay its own");
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_failing_test_is_made_to_pass_by_a_script() {
    let home = Home::new();
    make_crate(&home.work());
    let lines = script(&steps());
    home.scripted(&lines.iter().map(String::as_str).collect::<Vec<_>>(), "");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let mut peer = daemon.peer().await;
    let told = give(&mut peer).await;
    check(&home, &told);
    peer.take_aside();
    leave(peer).await;
}

#[tokio::test]
async fn a_failing_test_is_made_to_pass_over_the_chat_wire() {
    play(("chat", chat::calls, chat::reply)).await;
}

#[tokio::test]
async fn a_failing_test_is_made_to_pass_over_the_anthropic_wire() {
    play(("anthropic", anthropic::calls, anthropic::reply)).await;
}

#[tokio::test]
async fn a_failing_test_is_made_to_pass_over_the_responses_wire() {
    play(("responses", responses::calls, responses::reply)).await;
}
