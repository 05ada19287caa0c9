//! Plans against conversations of every shape.

use proptest::prelude::*;

use super::*;
use crate::event::{Block, Source};

fn message(role: Role, kind: SourceKind, text: usize) -> Message {
    Message::new(role, Source::of(kind), vec![Block::text("x".repeat(text))])
}

/// What follows what: a prompt, or an answer with so many calls and the sizes of their results.
#[derive(Clone, Debug)]
enum Part {
    Prompt(usize),
    Context(usize),
    Answer(usize),
    Calls(Vec<usize>),
}

fn conversation(parts: &[Part]) -> Vec<Arc<Message>> {
    let mut messages = vec![Arc::new(message(Role::System, SourceKind::SystemPrompt, 400))];
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Prompt(size) => messages.push(Arc::new(message(Role::User, SourceKind::User, *size))),
            Part::Context(size) => {
                messages.push(Arc::new(message(Role::User, SourceKind::RuntimeContext, *size)));
            }
            Part::Answer(size) => {
                messages.push(Arc::new(message(Role::Assistant, SourceKind::Model, *size)));
            }
            Part::Calls(results) => {
                let mut answer = message(Role::Assistant, SourceKind::Model, 10);
                for call in 0..results.len() {
                    let (id, name) = (format!("{at}.{call}"), "bash".to_owned());
                    answer.content.push(Block::ToolCall { id, name, arguments: "{}".to_owned() });
                }
                messages.push(Arc::new(answer));
                for (call, size) in results.iter().enumerate() {
                    let mut result = message(Role::Tool, SourceKind::Tool, *size);
                    result.tool_call_id = Some(format!("{at}.{call}"));
                    messages.push(Arc::new(result));
                }
            }
        }
    }
    messages
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let one = prop_oneof![
        1 => (0..4000_usize).prop_map(Part::Prompt),
        1 => (0..400_usize).prop_map(Part::Context),
        2 => (0..4000_usize).prop_map(Part::Answer),
        4 => proptest::collection::vec(0..20_000_usize, 1..4).prop_map(Part::Calls),
    ];
    proptest::collection::vec(one, 1..40)
}

/// What the conversation is after the plan, a summary of 200 bytes in the place of what it takes.
fn carried_out(messages: &[Arc<Message>], plan: &Plan) -> Vec<Arc<Message>> {
    let mut after = messages.to_vec();
    for cut in &plan.cuts {
        after[cut.at] = Arc::new(super::super::shortened(&messages[cut.at], cut.keep));
    }
    if let Some(run) = plan.summary.clone() {
        let summary = Arc::new(message(Role::User, SourceKind::Compaction, 200));
        after.splice(run, [summary]);
    }
    after
}

/// The results that stand behind each call, by its id; panics when one is without the other.
fn assert_paired(messages: &[Arc<Message>]) {
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        if message.role == Role::Tool {
            let id = message.tool_call_id.clone().unwrap();
            assert_eq!(open.first(), Some(&id), "a result without its call");
            open.remove(0);
        } else {
            assert!(open.is_empty(), "calls without results: {open:?}");
            for block in &message.content {
                if let Block::ToolCall { id, .. } = block {
                    open.push(id.clone());
                }
            }
        }
    }
    assert!(open.is_empty(), "calls without results: {open:?}");
}

fn is_from(kind: SourceKind) -> impl Fn(&&Arc<Message>) -> bool {
    move |message| message.source.kind == kind
}

proptest! {
    #[test]
    fn the_instructions_the_newest_prompt_and_pairs_stay(parts in parts(), room in 100..20_000_u64, factor in 1..4_u64) {
        let messages = conversation(&parts);
        let estimate: u64 = messages.iter().map(|message| tokens_of(message)).sum();
        let first = messages.iter().find(is_from(SourceKind::User));
        let own = first.map_or_else(MessageId::random, |message| message.id.clone());
        let mut now = messages.clone();
        let mut load = estimate * factor;
        for _ in 0..3 {
            let plan = Given::new(&now, load, room, &own).plan();
            let after = carried_out(&now, &plan);
            assert_paired(&after);
            prop_assert_eq!(after[0].role, Role::System);
            let newest = |all: &[Arc<Message>]| all.iter().rfind(is_from(SourceKind::User)).map(|message| message.id.clone());
            prop_assert_eq!(newest(&after), newest(&now));
            prop_assert_eq!(after.iter().any(|message| message.id == own), now.iter().any(|message| message.id == own));
            prop_assert_eq!(&after.last().unwrap().role, &now.last().unwrap().role);
            if plan == Plan::default() {
                break;
            }
            let size = |all: &[Arc<Message>]| all.iter().map(|message| tokens_of(message)).sum::<u64>();
            prop_assert!(size(&after) < size(&now), "{plan:?}");
            now = after;
            load = size(&now);
        }
    }

    #[test]
    fn a_turn_of_many_calls_always_fits_afterwards(results in proptest::collection::vec(0..60_000_usize, 1..60), room in 2_000..50_000_u64) {
        let parts: Vec<Part> = std::iter::once(Part::Prompt(100)).chain(results.into_iter().map(|size| Part::Calls(vec![size]))).collect();
        let mut now = conversation(&parts);
        let own = now[1].id.clone();
        let size = |all: &[Arc<Message>]| all.iter().map(|message| tokens_of(message)).sum::<u64>();
        for _ in 0..3 {
            if size(&now) <= room {
                break;
            }
            let plan = Given::new(&now, size(&now), room, &own).plan();
            now = carried_out(&now, &plan);
        }
        prop_assert!(size(&now) <= room, "{} of {room}", size(&now));
    }
}

#[test]
fn old_results_go_first_and_a_summary_comes_only_when_that_is_not_enough() {
    let mut parts = vec![Part::Prompt(40)];
    parts.extend((0..10).map(|_| Part::Calls(vec![4000])));
    let messages = conversation(&parts);
    let own = messages[1].id.clone();
    let plan = Given::new(&messages, 11_000, 9_000, &own).plan();
    assert_eq!(plan.summary, None);
    // The last exchange is kept, and as many before it as fit into a fifth of the room.
    assert_eq!(plan.cuts.first(), Some(&Cut { at: 3, keep: 0 }));
    assert!(plan.cuts.len() < 10 && plan.cuts.iter().all(|cut| cut.keep == 0), "{plan:?}");
    let talk: Vec<Part> = (0..20).flat_map(|_| [Part::Prompt(2000), Part::Answer(2000)]).collect();
    let messages = conversation(&talk);
    let plan = Given::new(&messages, 21_000, 10_000, &MessageId::random()).plan();
    assert_eq!(plan.summary.map(|run| run.start), Some(1));
}

#[test]
fn a_result_larger_than_the_window_is_cut_and_its_start_stays() {
    let messages = conversation(&[Part::Prompt(40), Part::Calls(vec![400_000])]);
    let own = messages[1].id.clone();
    let plan = Given::new(&messages, 100_000, 4_000, &own).plan();
    let [Cut { at: 3, keep }] = plan.cuts[..] else { panic!("{plan:?}") };
    assert!(keep > 1000 && keep < 8_000, "{keep}");
}

#[test]
fn a_lone_summary_is_not_summarised_again() {
    let messages = conversation(&[Part::Answer(40_000), Part::Prompt(40)]);
    let plan = Given::new(&messages, 10_000, 1_000, &messages[2].id).plan();
    assert_eq!(plan, Plan::default());
}

/// A summary that was longer than what it summarised made the conversation grow.
#[test]
fn what_is_hardly_longer_than_a_summary_stays() {
    let parts = [Part::Prompt(0), Part::Calls(vec![100]), Part::Prompt(0), Part::Answer(2000)];
    let messages = conversation(&parts);
    let own = messages[1].id.clone();
    assert_eq!(Given::new(&messages, 1000, 100, &own).plan().summary, None);
    let parts =
        [Part::Prompt(0), Part::Calls(vec![500]), Part::Answer(500), Part::Prompt(0), Part::Answer(2000)];
    let messages = conversation(&parts);
    assert!(Given::new(&messages, 1000, 100, &own).plan().summary.is_some());
}
