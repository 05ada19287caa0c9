//! Changing the tokens: one writer at a time, the file replaced in one step.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

use super::super::Scope;
use super::{Token, TokenError, file, hash, new_secret, valid_name};
use crate::event::PermissionMode;

/// Longest wait for another writer.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Pause between two tries for the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Most tokens of a file; each authentication looks at all.
const TOKENS_MAX: usize = 1024;

/// A token to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it may do.
    pub scope: Scope,
    /// The highest permission mode that it may ask for.
    pub mode_max: Option<PermissionMode>,
    /// How long it lives; none: for ever.
    pub life: Option<Duration>,
}

/// The tokens as `dshd token` uses them.
#[derive(Clone, Debug)]
pub struct TokenBook {
    path: PathBuf,
}

impl TokenBook {
    /// The tokens of a file, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// All tokens by name.
    ///
    /// # Errors
    /// [`TokenError::Io`] or [`TokenError::Malformed`].
    pub fn list(&self) -> Result<Vec<Token>, TokenError> {
        file::read(&self.path)
    }

    /// Makes a token. The token and its secret, which is kept nowhere.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn create(
        &self,
        new: NewToken<'_>,
        now: Timestamp,
    ) -> Result<(Token, Zeroizing<String>), TokenError> {
        let NewToken { name, scope, mode_max, life } = new;
        if !valid_name(name) {
            return Err(TokenError::Name { name: name.to_owned() });
        }
        let _lock = self.lock().await?;
        let mut tokens = file::read(&self.path)?;
        if tokens.iter().any(|token| token.name == name) {
            return Err(TokenError::Exists { name: name.to_owned() });
        }
        if tokens.len() >= TOKENS_MAX {
            return Err(TokenError::Full { max: TOKENS_MAX });
        }
        let secret = new_secret()?;
        let end = |life| {
            let life = SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX);
            now.checked_add(life).unwrap_or(Timestamp::MAX)
        };
        let token = Token {
            name: name.to_owned(),
            scope,
            mode_max,
            hash: hash(&secret),
            created_at: now,
            expires_at: life.map(end),
        };
        tokens.push(token.clone());
        file::write(&self.path, &tokens)?;
        Ok((token, secret))
    }

    /// Removes a token.
    ///
    /// # Errors
    /// [`TokenError`]; [`TokenError::Unknown`] when there is none of that name.
    pub async fn revoke(&self, name: &str) -> Result<(), TokenError> {
        let _lock = self.lock().await?;
        let mut tokens = file::read(&self.path)?;
        let before = tokens.len();
        tokens.retain(|token| token.name != name);
        if tokens.len() == before {
            let known = tokens.into_iter().map(|token| token.name).collect();
            return Err(TokenError::Unknown { name: name.to_owned(), known });
        }
        file::write(&self.path, &tokens)
    }

    /// Holds the writers' lock; it ends with the file.
    async fn lock(&self) -> Result<File, TokenError> {
        let path = self.path.with_extension("lock");
        let failed = |error| TokenError::Io { doing: "lock", path: path.clone(), error };
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let locked = tokio::time::timeout(LOCK_WAIT, async {
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(()),
                    Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
                    Err(TryLockError::Error(error)) => return Err(failed(error)),
                }
            }
        })
        .await;
        match locked {
            Ok(locked) => locked.map(|()| file),
            Err(_) => Err(TokenError::Held { path }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> (tempfile::TempDir, TokenBook) {
        let dir = tempfile::tempdir().unwrap();
        let book = TokenBook::new(&dir.path().join("tokens.toml"));
        (dir, book)
    }

    #[tokio::test]
    async fn what_was_created_is_listed_by_name() {
        let (_dir, book) = book();
        let now = Timestamp::now();
        book.create(
            NewToken { name: "b", scope: Scope::Observe, mode_max: None, life: Some(Duration::from_mins(1)) },
            now,
        )
        .await
        .unwrap();
        book.create(NewToken { name: "a", scope: Scope::Control, mode_max: None, life: None }, now)
            .await
            .unwrap();
        let listed = book.list().unwrap();
        assert_eq!(listed.iter().map(|token| token.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((listed[0].scope, listed[0].expires_at), (Scope::Control, None));
        let end = listed[1].expires_at.unwrap();
        assert_eq!(end.as_second() - listed[1].created_at.as_second(), 60);
    }

    #[tokio::test]
    async fn writers_at_once_lose_no_token() {
        let (_dir, book) = book();
        let names: Vec<String> = (0..16).map(|index| format!("token-{index}")).collect();
        let creations = names.iter().map(|name| {
            book.create(
                NewToken { name, scope: Scope::Control, mode_max: None, life: None },
                Timestamp::now(),
            )
        });
        for created in futures_util::future::join_all(creations).await {
            created.unwrap();
        }
        assert_eq!(book.list().unwrap().len(), 16);
    }

    #[tokio::test]
    async fn a_name_is_taken_once_and_must_be_a_name() {
        let (_dir, book) = book();
        let now = Timestamp::now();
        book.create(NewToken { name: "a", scope: Scope::Control, mode_max: None, life: None }, now)
            .await
            .unwrap();
        let again = book
            .create(NewToken { name: "a", scope: Scope::Control, mode_max: None, life: None }, now)
            .await
            .unwrap_err();
        assert!(matches!(again, TokenError::Exists { .. }));
        for name in ["", "a b", "../x", "ü", &"x".repeat(65)] {
            let refused = book
                .create(NewToken { name, scope: Scope::Control, mode_max: None, life: None }, now)
                .await
                .unwrap_err();
            assert!(matches!(refused, TokenError::Name { .. }), "{name}");
        }
    }

    #[tokio::test]
    async fn revoking_what_is_not_there_names_what_is() {
        let (_dir, book) = book();
        book.create(
            NewToken { name: "laptop", scope: Scope::Control, mode_max: None, life: None },
            Timestamp::now(),
        )
        .await
        .unwrap();
        let refused = book.revoke("labtop").await.unwrap_err();
        assert!(matches!(refused, TokenError::Unknown { known, .. } if known == ["laptop"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_never_ends_is_not_waited_for_for_ever() {
        let (_dir, book) = book();
        let _held = book.lock().await.unwrap();
        let refused = book.revoke("x").await.unwrap_err();
        assert!(matches!(refused, TokenError::Held { .. }), "{refused}");
    }
}
