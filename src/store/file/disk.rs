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
        if self.faults.sync() {
            return Err(io::Error::other("injected"));
        }
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Which calls fail: the N-th, counted from 1; 0 none.
    #[derive(Debug, Default)]
    pub(crate) struct Faults {
        pub(crate) write_at: AtomicUsize,
        pub(crate) sync_at: AtomicUsize,
        pub(crate) no_truncate: AtomicBool,
        pub(crate) syncs: AtomicUsize,
    }

    impl Faults {
        /// How much of the bytes a failing write writes.
        pub(super) fn write(&self, len: usize) -> Option<usize> {
            due(&self.write_at).then_some(len / 2)
        }

        pub(super) fn sync(&self) -> bool {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            due(&self.sync_at)
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
