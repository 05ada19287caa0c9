//! What a log promises: nothing acknowledged is lost, nothing damaged is passed over, one writer, private files.

use tempfile::TempDir;

use super::*;
use crate::store::tests::{header, id, line};

mod blobs;
mod faults;
mod listing;
mod recovery;
mod sharing;

fn path(home: &TempDir, name: &str) -> PathBuf {
    let store = FileStore::open(home.path()).unwrap();
    store.inner.directory(&id(name)).join("log.jsonl")
}

/// A closed log of `count` events.
async fn written(home: &TempDir, name: &str, count: u64) -> PathBuf {
    let store = FileStore::open(home.path()).unwrap();
    let mut log = store.create(header(name)).await.unwrap();
    for seq in 0..count {
        log.append(&[line(seq)]).unwrap();
    }
    log.barrier().await.unwrap();
    path(home, name)
}
