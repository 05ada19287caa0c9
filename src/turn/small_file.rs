//! The start of a small file, read so that neither a pipe nor a device can hold the reader up.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// At most `bytes_max` bytes of a regular file; `None` when it is something else, or can't be read.
pub(super) fn read(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    // Opening alone acts on some devices, and it may have become another when it is open.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        assert_eq!(read(&pipe, 10), None);
        assert_eq!(read(directory.path(), 10), None);
        std::fs::write(directory.path().join("file"), "0123456789abc").unwrap();
        assert_eq!(read(&directory.path().join("file"), 10).unwrap(), b"0123456789");
    }
}
