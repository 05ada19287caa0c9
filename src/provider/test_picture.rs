//! A picture for tests of the wires: three bytes that are no picture, which no adapter looks into.

use bytes::Bytes;

use super::ModelRequest;
use crate::event::{Attachment, Block};

fn attachment(id: &str) -> Attachment {
    Attachment {
        attachment_id: id.to_owned(),
        media_type: "image/png".to_owned(),
        bytes: 3,
        width: 2,
        height: 1,
        name: None,
    }
}

/// The block that names it.
pub(super) fn block(id: &str) -> Block {
    Block::Image { attachment: attachment(id) }
}

/// Lets its bytes (`AAH/` in base64) go along with a request.
pub(super) fn with(request: &mut ModelRequest, id: &str) {
    request.images.add(&attachment(id), Bytes::from_static(b"\0\x01\xFF"));
}
