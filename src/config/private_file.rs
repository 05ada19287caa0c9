//! Files that hold secrets: ours alone from birth, replaced in one step.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Replaces a file by a text in one step: 0600 from birth, on stable storage, its directory 0700 when it is made here.
///
/// # Errors
/// The first I/O error; the old file is then untouched.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let fresh = dir.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // The first error is the one to tell; a leftover is harmless.
        let _ = fs::remove_file(&fresh);
        return written;
    }
    fs::File::open(dir)?.sync_all()
}
