//! Prompts a session and follows it, over as many connections as it takes: stop and start the daemon meanwhile and see it
//! go on.
//!
//! `cargo run --example follow -- unix:/run/user/1000/dshd/dshd.sock my-session "What is in this directory?"`

use std::io::Write as _;

use dshd::client::session::{Dial, From, Options, Session, Update};
use dshd::client::{Address, ConnectOptions};
use dshd::event::SessionId;
use dshd::protocol::{ContentBlock, InitializeParams, SettledPrompt};
use serde::Deserialize;

#[derive(Deserialize)]
struct Told {
    event: Option<Event>,
}

#[derive(Deserialize)]
struct Event {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    chunk: Option<Chunk>,
}

#[derive(Deserialize)]
struct Chunk {
    text: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(id), Some(text)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: follow ADDRESS SESSION TEXT".into());
    };
    let address: Address = address.parse()?;
    let cwd = std::env::current_dir()?.to_string_lossy().into_owned();
    let hello = InitializeParams { cwd: Some(cwd), ..InitializeParams::default() };
    let dial = Dial::address(address, ConnectOptions::default(), hello);
    let (session, mut updates) =
        Session::open(dial, SessionId::new(&id)?, From::Now, Options::default()).await?;

    let mut prompt = std::pin::pin!(session.prompt(vec![ContentBlock::Text { text }]));
    let mut out = std::io::stdout();
    loop {
        tokio::select! {
            biased;
            // Updates first: those before the reply belong before it.
            Some(update) = updates.next() => match update {
                Update::Told(told) => {
                    let told = serde_json::from_str::<Told>(told.params.get()).ok();
                    let chunk = told.and_then(|told| told.event?.data.chunk);
                    if let Some(text) = chunk.and_then(|chunk| chunk.text) {
                        out.write_all(text.as_bytes())?;
                        out.flush()?;
                    }
                }
                Update::Lost { why, retry_in } => eprintln!("\nlost: {why}; again in {} ms", retry_in.as_millis()),
                Update::Back => eprintln!("back"),
                Update::Replaced => eprintln!("another history of this session"),
                Update::Ended(error) => return Err(error.into()),
            },
            settled = &mut prompt => {
                let settled: SettledPrompt = settled?;
                writeln!(out, "\n{:?}", settled.status)?;
                return Ok(());
            }
        }
    }
}
