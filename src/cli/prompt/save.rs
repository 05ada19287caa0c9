//! Writing the answer to a file as well, whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::super::{Failure, exit};

/// Puts `text` in place of the file.
///
/// # Errors
/// For the user, naming the file.
pub(super) fn save(path: &Path, text: &str) -> Result<(), Failure> {
    replace(path, text.as_bytes()).map_err(|error| {
        Failure::new(exit::REFUSED, "io", format!("cannot write {}: {error}", path.display()))
            .with_help("the answer is on stdout, and in the session's log")
    })
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it is no file name"))?;
    let mut new_name = std::ffi::OsString::from(".");
    new_name.push(name);
    new_name.push(format!(".{}", uuid::Uuid::new_v4()));
    let new = path.with_file_name(new_name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&new)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // Nothing is worse for its being left behind; the first error is the one to tell.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answer");
        save(&path, "one").unwrap();
        save(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let failure = save(Path::new("/nonexistent/answer"), "x").unwrap_err();
        assert!(failure.message.contains("/nonexistent/answer"), "{}", failure.message);
    }
}
