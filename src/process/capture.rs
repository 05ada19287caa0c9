//! What is kept of a child's output: its start and its end, in bounded memory, and how much was between.

use super::spool::Spooled;

/// How much is kept of one stream, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Of its start.
    pub head: usize,
    /// Of its end.
    pub tail: usize,
}

/// What was kept. Without `omitted` the whole is in `head`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The start.
    pub head: Vec<u8>,
    /// The end.
    pub tail: Vec<u8>,
    /// Bytes between them that are not in memory.
    pub omitted: u64,
    /// The file that has them, if there is one.
    pub spooled: Option<Spooled>,
}

/// Takes a stream in.
#[derive(Debug)]
pub(super) struct Capture {
    caps: Caps,
    head: Vec<u8>,
    /// A ring once it is `caps.tail` long: the oldest byte is at `oldest`.
    tail: Vec<u8>,
    oldest: usize,
    /// Bytes that were to be kept at the end.
    after_head: u64,
    pub(super) spooled: Option<Spooled>,
}

impl Capture {
    pub(super) fn new(caps: Caps) -> Self {
        Self { caps, head: Vec::new(), tail: Vec::new(), oldest: 0, after_head: 0, spooled: None }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (to_head, rest) = bytes.split_at(bytes.len().min(self.caps.head - self.head.len()));
        self.head.extend_from_slice(to_head);
        self.after_head += rest.len() as u64;
        self.push_tail(rest);
    }

    /// The start, which is the whole as long as it is not full.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether so many bytes more are beyond the start.
    pub(super) fn overflows_with(&self, count: usize) -> bool {
        count > self.caps.head - self.head.len()
    }

    fn push_tail(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.caps.tail)..];
        let (to_grow, rest) = bytes.split_at(bytes.len().min(self.caps.tail - self.tail.len()));
        self.tail.extend_from_slice(to_grow);
        // From here the ring is full, or there is nothing left.
        let (to_end, to_start) = rest.split_at(rest.len().min(self.tail.len() - self.oldest));
        self.tail[self.oldest..self.oldest + to_end.len()].copy_from_slice(to_end);
        self.tail[..to_start.len()].copy_from_slice(to_start);
        self.oldest = (self.oldest + rest.len()) % self.caps.tail.max(1);
    }

    /// What was kept so far.
    pub(super) fn now(&self) -> Captured {
        let mut head = self.head.clone();
        let mut tail = Vec::with_capacity(self.tail.len());
        tail.extend_from_slice(&self.tail[self.oldest..]);
        tail.extend_from_slice(&self.tail[..self.oldest]);
        let omitted = self.after_head - tail.len() as u64;
        if omitted == 0 {
            head.append(&mut tail);
        }
        Captured { head, tail, omitted, spooled: self.spooled.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn start_and_end_are_kept_however_the_bytes_are_split(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            head in 0_usize..16,
            tail in 0_usize..16,
        ) {
            let whole = chunks.concat();
            let mut capture = Capture::new(Caps { head, tail });
            for chunk in &chunks {
                capture.push(chunk);
            }
            let captured = capture.now();
            if whole.len() <= head + tail {
                prop_assert_eq!(captured, Captured { head: whole, ..Captured::default() });
            } else {
                prop_assert_eq!(&captured.head, &whole[..head]);
                prop_assert_eq!(&captured.tail, &whole[whole.len() - tail..]);
                prop_assert_eq!(captured.omitted, (whole.len() - head - tail) as u64);
            }
        }
    }
}
