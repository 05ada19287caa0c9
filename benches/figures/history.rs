//! A session of 10,000 events comes into memory: its log is read, and the conversation for the model built from it.

use std::time::Instant;

use bytes::Bytes;
use dshd::event::{
    AssistantMessage, Block, Epoch, EventBody, Message, Role, Seq, SessionEvent, SessionId, SessionOpened,
    Source, SourceKind, StepMark, ToolCallStarted, ToolResult, TurnEnd, TurnEndReason, TurnStart,
};
use dshd::store::file::FileStore;
use dshd::store::{Header, Line, SessionStore as _};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::model::{Model, Script};
use crate::{quantile, sized};

/// Events of a step: it starts, an answer calls, the call starts, its result, the step's end.
const EVENTS_A_STEP: usize = 5;

/// Opening such a log, and the first turn on it, whose request has all of it; beside a bare read of the same lines.
pub(crate) fn history() -> Value {
    let events = sized(10_000, 1_000);
    let model = Model::start(Script::at_once(20));
    let daemon = Daemon::start(&model.base_url);
    let rounds = sized(10, 2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lines = log(events);
    let began = Instant::now();
    for line in &lines {
        std::hint::black_box(serde_json::from_slice::<Value>(&line.json).unwrap());
    }
    let bare = began.elapsed().as_secs_f64() * 1e3;
    let (mut opens, mut turns) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let name = format!("long-{round}");
        runtime.block_on(store(&daemon, &name, &lines));
        let mut peer = daemon.connect();
        let began = Instant::now();
        peer.call("session/resume", &json!({ "sessionId": name }));
        opens.push(began.elapsed().as_secs_f64() * 1e3);
        let (served, began) = (model.served(), Instant::now());
        let id = peer.prompt(&name);
        peer.reply(id, |_| {});
        let beside = began.elapsed().checked_sub(model.served().checked_sub(served).unwrap()).unwrap();
        turns.push(beside.as_secs_f64() * 1e3);
    }
    opens.sort_by(f64::total_cmp);
    turns.sort_by(f64::total_cmp);
    json!({
        "events": events, "open_ms_p50": quantile(&opens, 0.5), "turn_overhead_ms_p50": quantile(&turns, 0.5),
        "generic_parse_ms": bare,
    })
}

async fn store(daemon: &Daemon, name: &str, lines: &[Line]) {
    let store = FileStore::open(&daemon.data()).unwrap();
    let cwd = daemon.cwd.to_str().unwrap().to_owned();
    let header = Header { id: SessionId::new(name).unwrap(), created_at: 0, cwd, parent_session: None };
    let mut log = store.create(header).await.unwrap();
    log.append(lines).unwrap();
    log.barrier().await.unwrap();
}

fn log(events: usize) -> Vec<Line> {
    let mut bodies = vec![
        EventBody::SessionOpened(SessionOpened { epoch: Epoch(1), recovered: None }),
        EventBody::TurnStart(TurnStart { turn: 1 }),
    ];
    let mut step = 0;
    while bodies.len() + EVENTS_A_STEP < events {
        step += 1;
        bodies.extend(step_events(step));
    }
    bodies.push(EventBody::TurnEnd(TurnEnd {
        turn: 1,
        reason: TurnEndReason::Completed,
        totals: None,
        title: None,
        permission_mode: None,
    }));
    let line = |(seq, body)| {
        let json = SessionEvent::new(Seq(seq), 1_796_078_478_976, body).encode().unwrap();
        Line { seq: Seq(seq), json: Bytes::from(json) }
    };
    (0..).zip(bodies).map(line).collect()
}

fn step_events(step: u32) -> [EventBody; EVENTS_A_STEP] {
    let mark = StepMark { turn: 1, step };
    let (id, name, arguments) = (format!("c{step}"), "read".to_owned(), format!("{{\"offset\":{step}}}"));
    let call = Block::ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() };
    let message = Message::new(Role::Assistant, Source::of(SourceKind::Model), vec![call]);
    let answer = AssistantMessage { turn: 1, step, message, usage: None, cost: None, interrupted: false };
    let started = ToolCallStarted { turn: 1, step, call_id: id.clone(), name, arguments };
    let mut message = Message::new(Role::Tool, Source::of(SourceKind::Tool), vec![Block::text("1: one")]);
    message.tool_call_id = Some(id);
    let result = ToolResult { turn: 1, step, message, error: None, meta: None };
    [
        EventBody::StepStart(mark.clone()),
        EventBody::AssistantMessage(answer),
        EventBody::ToolCall(started),
        EventBody::ToolResult(result),
        EventBody::StepEnd(mark),
    ]
}
