//! Blobs as files: `blobs/<sha256>` beside the log, written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{BlobId, Inner, failed, log, open_log};
use crate::event::SessionId;
use crate::store::StoreError;

impl Inner {
    /// Writes a blob under a name of its own, brings it to stable storage, gives it its name, and brings that there, too.
    pub(super) fn put_blob(&self, id: &SessionId, blob: BlobId, bytes: &[u8]) -> Result<(), StoreError> {
        self.refuse_failed()?;
        let session = self.directory(id);
        drop(open_log(&session.join("log.jsonl"))?);
        let directory = session.join("blobs");
        let path = directory.join(blob.to_string());
        let fail = |error: io::Error| failed(&path, &error);
        log::make_private(&directory).map_err(fail)?;
        if !path.exists() {
            let whole = Unnamed::new(&directory, blob);
            let file = whole.create().map_err(fail)?;
            self.syncer.disk().write(&file, bytes).map_err(fail)?;
            self.syncer.disk().sync(&file).map_err(fail)?;
            whole.name(&path).map_err(fail)?;
        }
        // Who named it before us may have been killed before it did this.
        [&directory, &session].into_iter().try_for_each(|above| sync_directory(above)).map_err(fail)
    }

    pub(super) fn blob(&self, id: &SessionId, blob: BlobId) -> Result<Option<Bytes>, StoreError> {
        let session = self.directory(id);
        let path = session.join("blobs").join(blob.to_string());
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(Bytes::from(bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                open_log(&session.join("log.jsonl")).map(|_log| None)
            }
            Err(error) => Err(failed(&path, &error)),
        }
    }
}

pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A file that has no name yet that anybody knows. It goes away unless it is given one.
struct Unnamed(PathBuf);

impl Unnamed {
    fn new(directory: &Path, blob: BlobId) -> Self {
        Self(directory.join(format!("{blob}.{}.tmp", uuid::Uuid::new_v4())))
    }

    fn create(&self) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.0)
    }

    fn name(&self, path: &Path) -> io::Result<()> {
        fs::rename(&self.0, path)
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        // Once it is named there is nothing here.
        let _ = fs::remove_file(&self.0);
    }
}
