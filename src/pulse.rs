//! A pulse: a question that every part must answer, asked by whoever wants to know that they all live.
//!
//! A part that ended by itself is no longer asked. One that panicked stays, and never answers again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Asks its parts. Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub struct Pulse {
    question: watch::Sender<u64>,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    last_id: u64,
    answers: BTreeMap<u64, watch::Receiver<u64>>,
}

/// What must answer.
#[derive(Debug)]
pub struct Part {
    id: u64,
    question: watch::Receiver<u64>,
    answer: watch::Sender<u64>,
    parts: Arc<Mutex<Parts>>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { question: watch::Sender::new(0), parts: Arc::default() }
    }
}

impl Pulse {
    /// One more that must answer.
    pub fn part(&self) -> Part {
        let answer = watch::Sender::new(*self.question.borrow());
        let mut parts = lock(&self.parts);
        parts.last_id += 1;
        let id = parts.last_id;
        parts.answers.insert(id, answer.subscribe());
        Part { id, question: self.question.subscribe(), answer, parts: Arc::clone(&self.parts) }
    }

    /// Asks, and resolves when all have answered. Cancel safe; one question at a time.
    pub async fn ask(&self) {
        self.question.send_modify(|question| *question += 1);
        let question = *self.question.borrow();
        let asked = lock(&self.parts).answers.clone();
        for (id, mut answers) in asked {
            let is_gone = answers.wait_for(|answer| *answer >= question).await.is_err();
            if is_gone && lock(&self.parts).answers.contains_key(&id) {
                // It panicked.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Part {
    /// Waits for the next question and answers it. Cancel safe.
    pub async fn answer(&mut self) {
        if self.question.changed().await.is_err() {
            // Nobody can ask any more.
            return std::future::pending().await;
        }
        self.answer.send_replace(*self.question.borrow_and_update());
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            lock(&self.parts).answers.remove(&self.id);
        }
    }
}

/// The map is whole between any two statements that could panic.
fn lock(parts: &Mutex<Parts>) -> MutexGuard<'_, Parts> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    async fn answers(mut part: Part) {
        loop {
            part.answer().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_heard_when_all_parts_answer_and_only_then() {
        let pulse = Pulse::default();
        timeout(LONG, pulse.ask()).await.unwrap();
        let (first, second) = (pulse.part(), pulse.part());
        let ask = timeout(LONG, pulse.ask());
        tokio::select! { () = answers(first) => panic!("it answers for ever"), heard = ask => assert!(heard.is_err()) }
        // The first is gone by itself.
        let ask = timeout(LONG, pulse.ask());
        tokio::select! { () = answers(second) => panic!("it answers for ever"), heard = ask => heard.unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_panicked_never_answers_again() {
        let pulse = Pulse::default();
        let part = pulse.part();
        let panicked = std::thread::spawn(move || {
            let _part = part;
            std::panic::panic_any("on purpose");
        });
        assert!(panicked.join().is_err());
        assert!(timeout(LONG, pulse.ask()).await.is_err());
    }
}
