//! Whatever a log's bytes are, opening it gives a prefix of valid events or refuses; it never panics.

use std::path::Path;

use dshd::event::{Seq, SessionId};
use dshd::store::file::FileStore;
use dshd::store::{Header, SessionStore as _};

/// The only log in a data directory.
fn log_in(directory: &Path) -> Option<std::path::PathBuf> {
    std::fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { log_in(&path) } else { path.ends_with("log.jsonl").then_some(path) }
    })
}

#[test]
fn recovery() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let home = tempfile::tempdir().unwrap();
    let id = SessionId::new("s").unwrap();
    let store = FileStore::open(home.path()).unwrap();
    let header = Header { id: id.clone(), created_at: 0, cwd: "/".to_owned(), parent_session: None };
    drop(runtime.block_on(store.create(header)).unwrap());
    let path = log_in(home.path()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    bolero::check!().for_each(|bytes: &[u8]| {
        std::fs::write(&path, [&whole[..], bytes].concat()).unwrap();
        let store = FileStore::open(home.path()).unwrap();
        let (sender, mut batches) = tokio::sync::mpsc::channel(4);
        runtime.block_on(async {
            let collect = async {
                let mut due = 0;
                while let Some(batch) = batches.recv().await {
                    for event in batch {
                        let event: dshd::event::SessionEvent = event;
                        assert_eq!(event.seq, Seq(due));
                        due += 1;
                    }
                }
            };
            let _ = tokio::join!(store.open(&id, sender), collect);
        });
    });
}
