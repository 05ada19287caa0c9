//! Reading the store when no daemon runs. Nothing is opened for writing, and nothing is made.

use super::{Failure, exit, listing, tell};
use crate::config::Loaded;
use crate::event::SessionId;
use crate::store::file::FileStore;
use crate::store::{ListQuery, SessionStore, StoreError, Summary};

/// Opens the store of the data directory and says that it is read without a daemon.
///
/// # Errors
/// `no_daemon`, as it was told, when there is no store either.
pub(super) fn store(no_daemon: Failure, loaded: &Loaded) -> Result<FileStore, Failure> {
    let data_dir = &loaded.paths.data_dir;
    if !data_dir.join("sessions").is_dir() {
        return Err(no_daemon);
    }
    tell::say(&format!("no dshd is running; read from {}", data_dir.display()));
    FileStore::open(data_dir).map_err(|error| failed(&error))
}

/// All sessions, newest first.
///
/// # Errors
/// For the user.
pub(super) async fn list(store: &FileStore) -> Result<Vec<Summary>, Failure> {
    let listing = store.list(ListQuery::ALL).await.map_err(|error| failed(&error))?;
    Ok(listing.sessions)
}

/// The session that a user means.
///
/// # Errors
/// For the user: none, or several.
pub(super) async fn find(store: &FileStore, id: &str) -> Result<SessionId, Failure> {
    let ids = list(store).await?.into_iter().map(|summary| summary.header.id);
    listing::choose(id, ids.filter(|found| found.as_str().starts_with(id)).collect())
}

/// What a failure of the store means for the user.
pub(super) fn failed(error: &StoreError) -> Failure {
    let (code, kind) = match error {
        StoreError::NotFound => (exit::NO_SESSION, "session_not_found"),
        StoreError::Corrupt { .. } => (exit::STORAGE, "session_corrupt"),
        StoreError::Exists
        | StoreError::Locked { .. }
        | StoreError::Version(_)
        | StoreError::OutOfOrder { .. }
        | StoreError::Failed(_) => (exit::STORAGE, "storage_failed"),
    };
    Failure::new(code, kind, error.to_string())
}
