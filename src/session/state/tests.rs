//! The state against a model: one turn at a time, one outcome a prompt, first in first out, and a replay of the log is
//! the same state.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it looks for, and shows the rest")]

use proptest::prelude::*;

use super::*;
use crate::event::{AbortCause, AskPolicy, Epoch, SessionId};
use crate::session::decide::Verdict;
use crate::session::{PromptRequest, SessionError, WhenBusy};
use crate::turn::FactEvent;

fn blank() -> State {
    let new = NewSession {
        cwd: None,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        max_tokens: None,
        reasoning_effort: None,
        permission_mode: None,
        mode_max: PermissionMode::FullAccess,
        parent: None,
        budget: Budget::default(),
    };
    State::new(&new, PathBuf::from("/"), PermissionMode::WorkspaceWrite)
}

fn prompt(text: &str, when_busy: WhenBusy, key: Option<&str>) -> PromptRequest {
    PromptRequest {
        pictures: Vec::new(),
        content: vec![Block::text(text)],
        when_busy,
        idempotency_key: key.map(str::to_owned),
        mode_max: PermissionMode::FullAccess,
        receipt: false,
    }
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

/// A session without actor: a state and the log that it came from.
struct Bench {
    state: State,
    log: Vec<SessionEvent>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { state: blank(), log: Vec::new() };
        bench.append(bench.state.decide_opening(Epoch(1), 0, AskPolicy::Ask));
        bench
    }

    fn append(&mut self, events: Vec<FactEvent>) {
        for fact in events {
            let event = SessionEvent::new(Seq(self.log.len() as u64), 7, fact.body);
            let stored = SessionEvent::decode(&event.encode().unwrap()).unwrap();
            self.state.apply(&event, false);
            self.log.push(stored);
        }
    }

    fn prompt(&mut self, request: &PromptRequest) -> Result<MessageId, SessionError> {
        match self.state.decide_prompt(&session(), request)? {
            Verdict::Repeat(keyed) => Ok(keyed.message_id),
            Verdict::Insert { message_id, event } => {
                let mut events = vec![FactEvent::from(*event)];
                if self.state.turn.is_none() {
                    events.extend(self.state.start_events().into_iter().map(FactEvent::from));
                }
                self.append(events);
                Ok(message_id)
            }
        }
    }

    fn end(&mut self, reason: &TurnEndReason) {
        if self.state.turn.is_some() {
            let mut events = self.state.decide_end(reason.clone());
            let (after, _) = self.state.decide_after(reason, true);
            events.extend(after.into_iter().map(FactEvent::from));
            self.append(events);
        }
    }

    /// The running turn takes what waits for its next step.
    fn claim(&mut self) -> Vec<MessageId> {
        if self.state.turn.is_none() {
            return Vec::new();
        }
        let (events, claimed) = self.state.decide_claim();
        self.append(events.into_iter().map(FactEvent::from).collect());
        claimed.iter().map(|message| message.id.clone()).collect()
    }

    fn steering(&self) -> Vec<MessageId> {
        self.state.steering.iter().map(|queued| queued.message.id.clone()).collect()
    }

    /// What a client is shown of a log that nobody has open.
    fn folded(&self) -> Vec<MessageId> {
        let mut fold = QueueFold::default();
        for event in &self.log {
            let json = event.encode().unwrap().into();
            fold.take(&crate::store::StoredLine { seq: event.seq, epoch: Epoch(1), json });
        }
        fold.view().queued.into_iter().map(|(id, _)| id).collect()
    }

    fn withdraw(&mut self, id: &MessageId) -> bool {
        let event = self.state.decide_withdrawal(id);
        let found = event.is_some();
        self.append(event.into_iter().map(FactEvent::from).collect());
        found
    }

    /// A crash: what is in the log is all that is left.
    fn reopen(&mut self) {
        let mut state = blank();
        self.log.iter().for_each(|event| state.apply(event, true));
        self.state = state;
        self.append(self.state.decide_opening(Epoch(2), 0, AskPolicy::Ask));
    }

    fn waiting(&self) -> Vec<MessageId> {
        self.state.queue.iter().map(|queued| queued.message.id.clone()).collect()
    }

    fn running(&self) -> Option<MessageId> {
        self.state.turn.as_ref().and_then(|turn| turn.message_id.clone())
    }
}

#[derive(Clone, Debug)]
enum Act {
    Prompt(bool),
    Steer,
    Claim,
    End,
    Withdraw(usize),
    Crash,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let one = prop_oneof![
        4 => any::<bool>().prop_map(Act::Prompt),
        3 => Just(Act::Steer),
        2 => Just(Act::Claim),
        3 => Just(Act::End),
        1 => (0..4usize).prop_map(Act::Withdraw),
        1 => Just(Act::Crash),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #[test]
    fn one_turn_at_a_time_first_in_first_out(acts in acts()) {
        let mut bench = Bench::new();
        let (mut running, mut waiting): (Option<MessageId>, VecDeque<MessageId>) = (None, VecDeque::new());
        let mut steering: VecDeque<MessageId> = VecDeque::new();
        let mut live = 0_usize;
        for (at, act) in acts.into_iter().enumerate() {
            match act {
                Act::Prompt(queue) => {
                    let when_busy = if queue { WhenBusy::Queue } else { WhenBusy::Reject };
                    let busy = running.is_some() || live > 0;
                    match bench.prompt(&prompt(&at.to_string(), when_busy, None)) {
                        Ok(id) => {
                            prop_assert!(queue || !busy);
                            waiting.push_back(id);
                            live += 1;
                            if running.is_none() {
                                running = waiting.pop_front();
                            }
                        }
                        Err(error) => {
                            let refused = matches!(error, SessionError::Busy { .. });
                            prop_assert!(refused && !queue && busy);
                        }
                    }
                }
                Act::Steer => {
                    let id = bench.prompt(&prompt(&at.to_string(), WhenBusy::Steer, None)).unwrap();
                    if running.is_some() {
                        steering.push_back(id);
                    } else {
                        waiting.push_back(id);
                        running = waiting.pop_front();
                    }
                    live += 1;
                }
                Act::Claim => {
                    let claimed = bench.claim();
                    if running.is_some() {
                        prop_assert_eq!(claimed, steering.drain(..).collect::<Vec<_>>());
                    }
                }
                Act::End => {
                    bench.end(&TurnEndReason::Completed);
                    while let Some(last) = steering.pop_back() {
                        waiting.push_front(last);
                    }
                    if running.is_some() {
                        running = waiting.pop_front();
                    }
                    if running.is_none() {
                        live = 0;
                    }
                }
                Act::Withdraw(which) => {
                    let id = steering.iter().chain(&waiting).nth(which).cloned();
                    if let Some(id) = id {
                        prop_assert!(bench.withdraw(&id));
                        waiting.retain(|other| *other != id);
                        steering.retain(|other| *other != id);
                        prop_assert!(!bench.withdraw(&id));
                    }
                    live = if running.is_some() { live } else { bench.state.queue.iter().filter(|q| !q.recovered).count() };
                }
                Act::Crash => {
                    bench.reopen();
                    running = None;
                    while let Some(last) = steering.pop_back() {
                        waiting.push_front(last);
                    }
                    live = 0;
                }
            }
            prop_assert_eq!(bench.running(), running.clone());
            prop_assert_eq!(bench.waiting(), waiting.iter().cloned().collect::<Vec<_>>());
            prop_assert_eq!(bench.steering(), steering.iter().cloned().collect::<Vec<_>>());
            prop_assert_eq!(bench.folded(), steering.iter().chain(&waiting).cloned().collect::<Vec<_>>());
        }
        let turns: Vec<u32> = bench.log.iter().filter_map(|event| match &event.body {
            EventBody::TurnStart(start) => Some(start.turn),
            _ => None,
        }).collect();
        prop_assert_eq!(turns.clone(), (1..=u32::try_from(turns.len()).unwrap()).collect::<Vec<_>>());
    }
}

#[test]
fn a_known_key_gets_the_first_outcome_also_after_a_crash() {
    let mut bench = Bench::new();
    let first = bench.prompt(&prompt("a", WhenBusy::Queue, Some("k"))).unwrap();
    assert_eq!(bench.prompt(&prompt("a", WhenBusy::Reject, Some("k"))).unwrap(), first);
    assert_eq!(bench.prompt(&prompt("b", WhenBusy::Queue, Some("k"))), Err(SessionError::KeyReused));
    bench.end(&TurnEndReason::Completed);
    bench.reopen();
    let keyed = bench.state.keyed("k").unwrap();
    assert_eq!((&keyed.message_id, &keyed.outcome.as_ref().unwrap().0), (&first, &TurnEndReason::Completed));
    let turns = bench.state.turns;
    assert_eq!(bench.prompt(&prompt("a", WhenBusy::Reject, Some("k"))).unwrap(), first);
    assert_eq!(bench.state.turns, turns);
}

#[test]
fn only_the_last_keys_are_remembered() {
    let mut bench = Bench::new();
    for at in 0..=KEYS_MAX {
        bench.prompt(&prompt("x", WhenBusy::Queue, Some(&at.to_string()))).unwrap();
        bench.end(&TurnEndReason::Completed);
    }
    assert!(bench.state.keyed("0").is_none());
    assert!(bench.state.keyed("1").is_some());
}

#[test]
fn a_turn_that_a_crash_left_open_is_closed_once_with_a_result_for_each_call() {
    let mut bench = Bench::new();
    bench.prompt(&prompt("x", WhenBusy::Queue, None)).unwrap();
    let call =
        |id: &str| Block::ToolCall { id: id.to_owned(), name: "bash".to_owned(), arguments: "{}".to_owned() };
    let message = Message::new(
        Role::Assistant,
        crate::event::Source::of(crate::event::SourceKind::Model),
        vec![call("a"), call("b")],
    );
    bench.append(vec![
        EventBody::StepStart(crate::event::StepMark { turn: 1, step: 1 }).into(),
        EventBody::AssistantMessage(crate::event::AssistantMessage {
            turn: 1,
            step: 1,
            message,
            usage: None,
            cost: None,
            interrupted: false,
        })
        .into(),
        EventBody::ToolCall(crate::event::ToolCallStarted {
            turn: 1,
            step: 1,
            call_id: "a".to_owned(),
            name: "bash".to_owned(),
            arguments: "{}".to_owned(),
        })
        .into(),
    ]);
    let before = bench.log.len();
    bench.reopen();
    let told: Vec<String> = bench.log[before..]
        .iter()
        .map(|event| match &event.body {
            EventBody::ToolResult(result) => {
                format!(
                    "{} {}",
                    result.message.tool_call_id.as_ref().unwrap(),
                    result.error.as_ref().unwrap().code
                )
            }
            EventBody::TurnEnd(end) => format!("{:?}", end.reason),
            other => other.type_name().to_owned(),
        })
        .collect();
    assert_eq!(
        told,
        ["session/opened", "a TOOL_OUTCOME_UNKNOWN", "b TOOL_NOT_STARTED", "step/end", "Interrupted"]
    );
    let before = bench.log.len();
    bench.reopen();
    assert_eq!(bench.log.len(), before + 1);
}

#[test]
fn a_prompt_that_was_told_to_a_turn_has_that_turns_outcome() {
    let mut bench = Bench::new();
    bench.prompt(&prompt("a", WhenBusy::Queue, None)).unwrap();
    let steer = bench.prompt(&prompt("b", WhenBusy::Steer, Some("k"))).unwrap();
    assert_eq!(bench.claim(), std::slice::from_ref(&steer));
    assert!(!bench.withdraw(&steer), "the turn has it already");
    bench.end(&TurnEndReason::MaxTokens);
    bench.reopen();
    assert_eq!(bench.state.keyed("k").unwrap().outcome.as_ref().unwrap().0, TurnEndReason::MaxTokens);
    assert_eq!(bench.state.turns, 1);
}

#[test]
fn a_torn_move_loses_nothing_and_doubles_nothing() {
    let mut bench = Bench::new();
    bench.prompt(&prompt("a", WhenBusy::Queue, None)).unwrap();
    let steer = bench.prompt(&prompt("b", WhenBusy::Steer, None)).unwrap();
    bench.end(&TurnEndReason::Completed);
    let whole = bench.log.clone();
    let first = whole.iter().position(|event| matches!(event.body, EventBody::TurnEnd(_))).unwrap();
    for end in first..whole.len() {
        bench.log = whole[..end].to_vec();
        bench.reopen();
        let heard = bench.state.conversation.iter().any(|told| told.message.id == steer);
        let claimed = bench.state.claimed.as_ref().is_some_and(|message| message.id == steer);
        assert!(
            bench.waiting() == std::slice::from_ref(&steer) || heard || claimed,
            "cut before event {end}"
        );
        assert!(bench.state.busy_with().is_none() && bench.steering().is_empty(), "cut before event {end}");
    }
}

#[test]
fn a_notice_wakes_an_idle_agent_and_waits_after_a_cancel() {
    let mut bench = Bench::new();
    let notice = |bench: &mut Bench| {
        let event = bench.state.decide_notice("job 1 ended".to_owned());
        bench.append(vec![event.into()]);
    };
    bench.prompt(&prompt("a", WhenBusy::Queue, None)).unwrap();
    notice(&mut bench);
    bench.end(&TurnEndReason::Aborted { reason: AbortCause::User });
    assert!(bench.state.turn.is_none() && bench.steering().len() == 1);
    bench.prompt(&prompt("b", WhenBusy::Queue, None)).unwrap();
    assert_eq!(bench.claim().len(), 1);
    notice(&mut bench);
    bench.end(&TurnEndReason::Completed);
    assert_eq!(bench.state.turn.as_ref().unwrap().turn, 3);
    assert_eq!(bench.state.claimed.as_ref().unwrap().source.kind, crate::event::SourceKind::ToolJobs);
    assert!(bench.folded().is_empty(), "no client asked for it");
}

#[test]
fn settings_come_back_from_the_log() {
    let mut bench = Bench::new();
    bench.append(vec![
        EventBody::WorkingDirectoryChange(crate::event::WorkingDirectoryChange { cwd: "/new".to_owned() })
            .into(),
    ]);
    bench.reopen();
    assert_eq!(bench.state.settings.cwd, PathBuf::from("/new"));
}

/// S12: a panic of the turn drops all that would have told a child's end.
#[test]
fn a_turn_that_ends_without_telling_its_children_tells_the_end_of_each_once() {
    for crash in [true, false] {
        let mut bench = Bench::new();
        bench.prompt(&prompt("a", WhenBusy::Reject, None)).unwrap();
        let child = |name: &str| SessionId::new(name).unwrap();
        let started = |name: &str| {
            let started =
                crate::event::SubagentStarted { child_session_id: child(name), call_id: "c".to_owned() };
            FactEvent::from(EventBody::SubagentStarted(started))
        };
        let finished = crate::event::SubagentFinished {
            child_session_id: child("told"),
            child_epoch: None,
            child_last_seq: None,
            status: "ok".to_owned(),
            stop_reason: crate::event::StopReason::Completed,
            last_assistant_message: None,
            totals: None,
        };
        bench.append(vec![started("told"), started("lost"), EventBody::SubagentFinished(finished).into()]);
        if crash {
            bench.reopen();
        } else {
            bench.end(&TurnEndReason::Aborted { reason: AbortCause::User });
        }
        let ended: Vec<_> = (bench.log.iter())
            .filter_map(|event| match &event.body {
                EventBody::SubagentFinished(finished) => Some(finished.child_session_id.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(ended, ["told", "lost"]);
        assert!(bench.state.children.is_empty());
    }
}
