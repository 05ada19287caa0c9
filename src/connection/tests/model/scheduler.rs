//! A scheduler that polls futures one at a time, in an order that a seed decides.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Numbers from a seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    /// The next number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// The next size below `bound`.
    pub(super) fn size(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).unwrap()
    }

    /// Numbers of their own for another part.
    pub(super) fn fork(&mut self) -> Self {
        Self::new(self.below(u64::MAX))
    }
}

/// Steps before tasks of the runtime itself (reads of the store) get their turn, at most.
const STEPS: u64 = 8;

struct Flag {
    ready: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        if let Some(outer) = self.outer.lock().unwrap().take() {
            outer.wake();
        }
    }
}

struct Part<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    flag: Arc<Flag>,
}

/// Futures that are polled in the seed's order. Done when all are.
pub(super) struct Scheduler<'a> {
    parts: Vec<Part<'a>>,
    random: Random,
}

impl<'a> Scheduler<'a> {
    pub(super) fn new(random: Random) -> Self {
        Self { parts: Vec::new(), random }
    }

    pub(super) fn add(&mut self, future: impl Future<Output = ()> + 'a) {
        let flag = Arc::new(Flag { ready: AtomicBool::new(true), outer: Mutex::default() });
        self.parts.push(Part { future: Box::pin(future), flag });
    }
}

impl Future for Scheduler<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        for part in &self.parts {
            *part.flag.outer.lock().unwrap() = Some(context.waker().clone());
        }
        for _ in 0..=self.random.below(STEPS) {
            let ready: Vec<usize> = (0..self.parts.len())
                .filter(|at| self.parts[*at].flag.ready.load(Ordering::Acquire))
                .collect();
            let Some(bound) = u64::try_from(ready.len()).ok().filter(|bound| *bound > 0) else {
                return Poll::Pending;
            };
            let at = ready[self.random.size(bound)];
            let part = &mut self.parts[at];
            part.flag.ready.store(false, Ordering::Release);
            let waker = Waker::from(Arc::clone(&part.flag));
            if part.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(self.parts.swap_remove(at));
                if self.parts.is_empty() {
                    return Poll::Ready(());
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Lets others go first, once.
pub(super) async fn turn() {
    let mut given = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
