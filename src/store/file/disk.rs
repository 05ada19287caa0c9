//! The system calls that may fail, in one place, so that tests can make the N-th one fail.

use std::fs::File;
use std::io::{self, Write as _};

/// The disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) faults: std::sync::Arc<tests::Faults>,
}

impl Disk {
    /// One `write(2)`; a short one is an error, and what it wrote must be cut off.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "tests inject faults here"))]
    pub(super) fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Some(part) = self.faults.write(bytes.len()) {
            file.write_all(&bytes[..part])?;
            return Err(io::Error::other("injected"));
        }
        loop {
            match file.write(bytes) {
                Ok(written) if written == bytes.len() => return Ok(()),
                Ok(written) => {
                    let message = format!("wrote {written} of {} bytes", bytes.len());
                    return Err(io::Error::new(io::ErrorKind::WriteZero, message));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// `fdatasync(2)`.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "tests inject faults here"))]
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        #[cfg(test)]
        let _syncing = self.faults.sync()?;
        file.sync_data()
    }

    /// `ftruncate(2)`.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "tests inject faults here"))]
    pub(super) fn truncate(&self, file: &File, end: u64) -> io::Result<()> {
        #[cfg(test)]
        if self.faults.truncate() {
            return Err(io::Error::other("injected"));
        }
        file.set_len(end)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Duration;

    /// How long a lingering sync gives a second one the chance to come.
    const LINGER: Duration = Duration::from_millis(200);

    /// Which calls fail: the N-th, counted from 1; 0 none.
    #[derive(Debug, Default)]
    pub(crate) struct Faults {
        pub(crate) write_at: AtomicUsize,
        pub(crate) sync_at: AtomicUsize,
        pub(crate) no_truncate: AtomicBool,
        pub(crate) syncs: AtomicUsize,
        /// Whether syncs wait for a second one to begin before they end.
        pub(crate) linger: AtomicBool,
        at_once: Mutex<AtOnce>,
        changed: Condvar,
    }

    #[derive(Debug, Default)]
    struct AtOnce {
        now: usize,
        most: usize,
    }

    /// A sync that is under way.
    pub(super) struct Syncing<'a>(&'a Faults);

    impl Drop for Syncing<'_> {
        fn drop(&mut self) {
            self.0.at_once.lock().unwrap_or_else(PoisonError::into_inner).now -= 1;
        }
    }

    impl Faults {
        /// How much of the bytes a failing write writes.
        pub(super) fn write(&self, len: usize) -> Option<usize> {
            due(&self.write_at).then_some(len / 2)
        }

        pub(super) fn sync(&self) -> io::Result<Syncing<'_>> {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            let mut at_once = self.at_once.lock().unwrap_or_else(PoisonError::into_inner);
            at_once.now += 1;
            at_once.most = at_once.most.max(at_once.now);
            self.changed.notify_all();
            if self.linger.load(Ordering::Relaxed) {
                let alone = |at_once: &mut AtOnce| at_once.now < 2;
                drop(self.changed.wait_timeout_while(at_once, LINGER, alone));
            } else {
                drop(at_once);
            }
            let syncing = Syncing(self);
            if due(&self.sync_at) { Err(io::Error::other("injected")) } else { Ok(syncing) }
        }

        /// The most syncs that were under way at the same time.
        pub(crate) fn most_at_once(&self) -> usize {
            self.at_once.lock().unwrap_or_else(PoisonError::into_inner).most
        }

        pub(super) fn truncate(&self) -> bool {
            self.no_truncate.load(Ordering::Relaxed)
        }
    }

    fn due(countdown: &AtomicUsize) -> bool {
        let before = countdown.load(Ordering::Relaxed);
        if before > 0 {
            countdown.store(before - 1, Ordering::Relaxed);
        }
        before == 1
    }
}
