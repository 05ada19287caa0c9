//! Blobs on disk: private, whole or not there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;

use super::*;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_blob_is_a_private_file_beside_its_log() {
    let home = TempDir::new().unwrap();
    let log = written(&home, "s", 1).await;
    let store = FileStore::open(home.path()).unwrap();
    let blob = BlobId::of(b"picture");
    store.put_blob(&id("s"), blob, Bytes::from_static(b"picture")).await.unwrap();
    let directory = log.parent().unwrap().join("blobs");
    assert_eq!(names(&directory), [blob.to_string()]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join(blob.to_string()))), (0o700, 0o600));
    let again = FileStore::open(home.path()).unwrap();
    assert_eq!(again.blob(&id("s"), blob).await.unwrap().as_deref(), Some(&b"picture"[..]));
}

#[tokio::test]
async fn a_blob_that_the_disk_did_not_take_is_not_there_and_can_be_kept_later() {
    let home = TempDir::new().unwrap();
    let log = written(&home, "s", 1).await;
    let disk = Disk::default();
    let store = FileStore::with_disk(home.path(), disk.clone()).unwrap();
    let blob = BlobId::of(b"picture");
    let put = || store.put_blob(&id("s"), blob, Bytes::from_static(b"picture"));
    for fault in [&disk.faults.write_at, &disk.faults.sync_at] {
        fault.store(1, Ordering::Relaxed);
        assert!(matches!(put().await, Err(StoreError::Failed(_))));
        assert!(names(&log.parent().unwrap().join("blobs")).is_empty());
        assert_eq!(store.blob(&id("s"), blob).await.unwrap(), None);
    }
    put().await.unwrap();
    assert!(store.blob(&id("s"), blob).await.unwrap().is_some());
}
