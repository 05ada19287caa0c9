//! Blobs: bytes too large for a log, named by what they are.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::{SessionStore, StoreError};
use crate::event::SessionId;

/// A blob's name: the SHA-256 of its bytes. As text 64 lowercase hexadecimal digits, and nothing else is one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlobId([u8; 32]);

impl BlobId {
    /// The name of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads a name; `None` when the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut name = [0; 32];
        if digits.len() != 2 * name.len() {
            return None;
        }
        for (byte, pair) in name.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(name))
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The blobs of one session. Cheap to clone.
#[derive(Clone)]
pub struct Blobs {
    store: Arc<dyn SessionStore>,
    session: SessionId,
}

impl Blobs {
    /// The blobs of a session whose log exists or will.
    pub fn new(store: Arc<dyn SessionStore>, session: SessionId) -> Self {
        Self { store, session }
    }

    /// Keeps bytes; they are on stable storage when this resolves.
    ///
    /// # Errors
    /// As [`SessionStore::put_blob`].
    pub async fn put(&self, bytes: Bytes) -> Result<BlobId, StoreError> {
        let blob = BlobId::of(&bytes);
        self.store.put_blob(&self.session, blob, bytes).await.map(|()| blob)
    }

    /// A blob's bytes, if there is one of this name.
    ///
    /// # Errors
    /// As [`SessionStore::blob`].
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        match BlobId::parse(name) {
            Some(blob) => self.store.blob(&self.session, blob).await,
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_the_digest_of_what_it_names() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(BlobId::of(b"").to_string(), empty);
    }

    #[test]
    fn nothing_but_a_digest_is_a_name() {
        let name = BlobId::of(b"x").to_string();
        for wrong in [
            "",
            "../../../etc/passwd",
            &name[1..],
            &format!("{name}0"),
            &name.to_uppercase(),
            &format!("{}/", &name[1..]),
            &format!("{}é", &name[2..]),
        ] {
            assert_eq!(BlobId::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn names_and_their_texts_are_inverse(bytes: Vec<u8>) {
            let blob = BlobId::of(&bytes);
            prop_assert_eq!(BlobId::parse(&blob.to_string()), Some(blob));
        }
    }
}
