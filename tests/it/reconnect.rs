//! The library's client over a way that is cut again and again: nothing is missed, nothing comes twice, a prompt runs once.

use std::time::Duration;

use dshd::client::session::{Dial, From, Options, Session, SessionError, Update, Updates};
use dshd::client::{Address, ConnectOptions};
use dshd::event::SessionId;
use dshd::protocol::{ContentBlock, InitializeParams, SettledPrompt, SettledStatus};
use serde_json::Value;

use crate::model_server::chat;
use crate::stage::{Stage, events, leave, text_of};
use crate::support::{Daemon, Home, Proxy, Random, of_type, seed, within};

const LONG: &str =
    r#"{"prompt":"long","parts":[{"reasoning":"hm"},{"text":["word ","é🙂 "],"repeat":700,"delayMs":1}]}"#;
const DELEGATES: &str = r#"{"prompt":"delegate","step":1,"parts":[{"tool":"subagent","arguments":{"description":"look","prompt":"long"}}]}"#;
const SHORT: &str = r#"{"parts":[{"text":["a ","b"]}]}"#;

fn dial(socket: &std::path::Path, home: &Home) -> Dial {
    let address: Address = format!("unix:{}", socket.display()).parse().unwrap();
    let hello = InitializeParams {
        cwd: Some(home.work().to_str().unwrap().to_owned()),
        ..InitializeParams::default()
    };
    Dial::address(address, ConnectOptions::default(), hello)
}

fn options() -> Options {
    Options {
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(20),
        ..Options::default()
    }
}

fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

fn says(text: &str) -> Vec<ContentBlock> {
    vec![ContentBlock::Text { text: text.to_owned() }]
}

/// What a follower was told, over all connections: its events by session, its text, how often the way was lost.
#[derive(Debug, Default)]
struct Told {
    messages: Vec<Value>,
    text: String,
    lost: u32,
}

impl Told {
    /// Reads until the session itself is idle after a turn's end.
    async fn read(&mut self, updates: &mut Updates, session: &str) {
        let mut ended = false;
        loop {
            match within("an update", updates.next()).await.expect("goes on") {
                Update::Told(told) => {
                    let params: Value = serde_json::from_str(told.params.get()).unwrap();
                    let message = serde_json::json!({ "method": told.method, "params": params });
                    let event = &message["params"]["event"];
                    if message["params"]["sessionId"] == session {
                        if event["data"]["chunk"]["type"] == "text-delta" {
                            self.text.push_str(event["data"]["chunk"]["text"].as_str().unwrap());
                        }
                        ended |= event["type"] == "turn/end";
                        if ended && message["params"]["status"] == "idle" {
                            return;
                        }
                    }
                    self.messages.push(message);
                }
                Update::Lost { .. } => self.lost += 1,
                Update::Back => {}
                other @ (Update::Replaced | Update::Ended(_)) => panic!("{other:?}"),
            }
        }
    }

    fn of(&self, session: &str) -> Vec<Value> {
        let of_session = |event: &&Value| event["params"]["sessionId"] == session;
        let messages: Vec<Value> = self.messages.iter().filter(of_session).cloned().collect();
        events(&messages).into_iter().cloned().collect()
    }
}

#[tokio::test]
async fn over_a_way_that_is_cut_again_and_again_all_comes_once_and_in_order() {
    let seed = seed();
    eprintln!("DSHD_SEED={seed}");
    let mut random = Random::new(seed);
    let daemon = Daemon::scripted(&[DELEGATES, LONG, SHORT], "");
    let home = daemon.home().clone();
    let budget = move |_nth| Some(800 + random.below(20_000));
    let proxy = Proxy::start(home.path("proxy.sock"), home.socket(), budget);
    for (session, prompt) in [("text", "long"), ("tree", "delegate")] {
        let mut peer = daemon.peer().await;
        let (through, mut updates) =
            within("open", Session::open(dial(proxy.path(), &home), id(session), From::Now, options()))
                .await
                .unwrap();
        let prompted = through.prompt::<SettledPrompt>(says(prompt));
        let mut told = Told::default();
        let (settled, ()) = tokio::join!(prompted, told.read(&mut updates, session));
        assert_eq!(settled.unwrap().status, SettledStatus::Ok);
        let whole = peer
            .call("session/read", serde_json::json!({ "sessionId": session, "since": -1, "limit": 1000 }))
            .await;
        let whole = whole["events"].as_array().unwrap();
        assert_eq!(told.of(session), *whole, "each event once, in order");
        let said: String = of_type(whole, "assistant/message")
            .iter()
            .flat_map(|event| event["data"]["message"]["content"].as_array().unwrap())
            .filter(|block| block["type"] == "text")
            .map(|block| block["text"].as_str().unwrap())
            .collect();
        assert_eq!(told.text, said, "each character once");
        for started in of_type(whole, "subagent/started") {
            let child = started["data"]["childSessionId"].as_str().unwrap();
            let whole = peer
                .call("session/read", serde_json::json!({ "sessionId": child, "since": -1, "limit": 1000 }))
                .await;
            assert_eq!(told.of(child), *whole["events"].as_array().unwrap(), "the subagent's, too");
        }
        assert_eq!(
            of_type(whole, "user/message")
                .iter()
                .filter(|event| event["data"]["source"]["kind"] == "user")
                .count(),
            1
        );
        leave(peer).await;
    }
    assert!(proxy.connections() > 10, "it was cut {} times", proxy.connections());
}

#[tokio::test]
async fn a_prompt_whose_connection_is_cut_before_its_reply_runs_once_and_is_answered() {
    let stage = Stage::new().await;
    let proxy = Proxy::start(stage.home.path("proxy.sock"), stage.home.socket(), |_nth| None);
    let (session, mut updates) =
        within("open", Session::open(dial(proxy.path(), &stage.home), id("s"), From::Now, options()))
            .await
            .unwrap();
    let live = stage.live();
    let mut told = Told::default();
    let cutting = async {
        stage.model.request().await;
        proxy.cut();
        live.send(chat::text("once") + &chat::finish("stop") + chat::DONE).await;
        live.end().await;
    };
    let prompted = session.prompt::<SettledPrompt>(says("x"));
    let (settled, (), ()) = tokio::join!(prompted, told.read(&mut updates, "s"), cutting);
    assert_eq!(settled.unwrap().status, SettledStatus::Ok);
    let events = told.of("s");
    assert_eq!(of_type(&events, "turn/start").len(), 1);
    assert_eq!(text_of(&of_type(&events, "assistant/message")[0]["data"]["message"]), "once");
    assert_eq!(told.lost, 1);
}

#[tokio::test]
async fn it_goes_on_with_the_next_daemon_and_ends_with_its_session() {
    let home = Home::new();
    home.scripted(&[SHORT], "");
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let opened = Session::open(dial(&home.socket(), &home), id("s"), From::Now, options());
    let (session, mut updates) = within("open", opened).await.unwrap();
    let mut told = Told::default();
    let prompted = session.prompt::<SettledPrompt>(says("in the first life"));
    let (settled, ()) = tokio::join!(prompted, told.read(&mut updates, "s"));
    assert_eq!(settled.unwrap().status, SettledStatus::Ok);
    daemon.kill().await;
    let daemon = Daemon::start_in(&home, [] as [&str; 0]);
    let prompted = session.prompt::<SettledPrompt>(says("in the next life"));
    let (settled, ()) = tokio::join!(prompted, told.read(&mut updates, "s"));
    assert_eq!(settled.unwrap().status, SettledStatus::Ok);
    assert_eq!(told.of("s"), home.logged("s").into_iter().map(without_crc).collect::<Vec<_>>());
    let mut other = daemon.peer().await;
    other.call("session/delete", serde_json::json!({ "sessionId": "s" })).await;
    let error = loop {
        match within("the end", updates.next()).await.expect("it says why it ends") {
            Update::Ended(error) => break error,
            Update::Told(_) | Update::Lost { .. } | Update::Back | Update::Replaced => {}
        }
    };
    assert!(matches!(error, SessionError::Closed { cause } if cause == "deleted"));
    leave(other).await;
}

fn without_crc(mut event: Value) -> Value {
    event.as_object_mut().unwrap().retain(|member, _| member != "crc" && member != "durable");
    event
}
