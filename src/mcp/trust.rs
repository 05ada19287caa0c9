//! The files of workspaces that the user trusts: each by its path and its content, so that a changed one is asked about
//! again. Written by `dshd mcp trust`, read at each step that finds such a file.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::write_private;

const FILE_NAME: &str = "mcp-trust.json";
/// Files that are kept; the oldest are forgotten first.
const ENTRIES_MAX: usize = 1000;
/// Largest book.
const BOOK_BYTES_MAX: u64 = 4 << 20;

/// Why the book can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It can't be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The book.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not what we wrote.
    #[error("{} is damaged ({source}); remove it, and trust the workspaces again", path.display())]
    Damaged {
        /// The book.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

/// What the book says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It is trusted as it is.
    Trusted,
    /// It was trusted with another content.
    Changed,
    /// Nothing.
    Unknown,
}

/// The book.
#[derive(Clone, Debug)]
pub struct TrustBook {
    path: PathBuf,
}

/// A file that is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedFile {
    /// Where, its directory resolved.
    pub file: PathBuf,
    /// Its content's SHA-256, hexadecimal.
    pub sha256: String,
    /// Since when, ISO 8601.
    pub since: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Book {
    trusted: Vec<TrustedFile>,
}

impl TrustBook {
    /// The book of a data directory.
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(FILE_NAME) }
    }

    /// All that is trusted, the oldest first.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn list(&self) -> Result<Vec<TrustedFile>, TrustError> {
        self.read().map(|book| book.trusted)
    }

    /// What it says of a file with this content.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn look_up(&self, file: &Path, digest: &str) -> Result<Trust, TrustError> {
        let book = self.read()?;
        let known = book.trusted.iter().find(|known| known.file == file);
        Ok(match known {
            Some(known) if known.sha256 == digest => Trust::Trusted,
            Some(_) => Trust::Changed,
            None => Trust::Unknown,
        })
    }

    /// Trusts a file with this content, from now on.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn trust(&self, file: &Path, digest: &str) -> Result<(), TrustError> {
        let mut book = self.read()?;
        book.trusted.retain(|known| known.file != file);
        let since = format!("{:.3}", jiff::Timestamp::now());
        book.trusted.push(TrustedFile { file: file.to_path_buf(), sha256: digest.to_owned(), since });
        let surplus = book.trusted.len().saturating_sub(ENTRIES_MAX);
        book.trusted.drain(..surplus);
        self.write(&book)
    }

    /// Forgets the files of a directory. Says which.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn forget(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>, TrustError> {
        let mut book = self.read()?;
        let (gone, kept): (Vec<_>, Vec<_>) =
            book.trusted.into_iter().partition(|known| files.contains(&known.file));
        book.trusted = kept;
        if !gone.is_empty() {
            self.write(&book)?;
        }
        Ok(gone.into_iter().map(|known| known.file).collect())
    }

    fn failed(&self, source: io::Error) -> TrustError {
        TrustError::Io { path: self.path.clone(), source }
    }

    fn read(&self) -> Result<Book, TrustError> {
        let bytes = match fs::metadata(&self.path) {
            Ok(metadata) if metadata.len() > BOOK_BYTES_MAX => {
                return Err(self.failed(io::Error::other("it is too large")));
            }
            Ok(_) => fs::read(&self.path).map_err(|error| self.failed(error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Book::default()),
            Err(error) => return Err(self.failed(error)),
        };
        serde_json::from_slice(&bytes)
            .map_err(|source| TrustError::Damaged { path: self.path.clone(), source })
    }

    fn write(&self, book: &Book) -> Result<(), TrustError> {
        let text = serde_json::to_string_pretty(book)
            .map_err(|source| TrustError::Damaged { path: self.path.clone(), source })?;
        write_private(&self.path, &(text + "\n")).map_err(|error| self.failed(error))
    }
}

/// A content's SHA-256, hexadecimal.
pub(super) fn digest(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_trusted_by_path_and_content_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let book = TrustBook::new(dir.path());
        let file = Path::new("/w/.mcp.json");
        assert_eq!(book.look_up(file, &digest(b"a")).unwrap(), Trust::Unknown);
        book.trust(file, &digest(b"a")).unwrap();
        assert_eq!(book.look_up(file, &digest(b"a")).unwrap(), Trust::Trusted);
        assert_eq!(book.look_up(file, &digest(b"b")).unwrap(), Trust::Changed);
        assert_eq!(book.look_up(Path::new("/v/.mcp.json"), &digest(b"a")).unwrap(), Trust::Unknown);
        book.trust(file, &digest(b"b")).unwrap();
        assert_eq!(book.list().unwrap().len(), 1);
        assert_eq!(book.forget(&[file.to_path_buf()]).unwrap(), [file]);
        assert_eq!(book.look_up(file, &digest(b"b")).unwrap(), Trust::Unknown);
    }

    #[test]
    fn the_book_is_ours_alone() {
        let dir = tempfile::tempdir().unwrap();
        TrustBook::new(dir.path()).trust(Path::new("/w/.mcp.json"), "00").unwrap();
        let mode = fs::metadata(dir.path().join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_book_trusts_nothing_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), "[]").unwrap();
        let error = TrustBook::new(dir.path()).list().unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
    }

    #[test]
    fn a_digest_is_a_sha256() {
        assert_eq!(digest(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
