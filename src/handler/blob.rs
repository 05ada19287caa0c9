//! `session/blob`: a picture of a conversation.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::caller::Caller;
use super::{Outcome, Started, invalid};
use crate::image::Kind;
use crate::protocol::{BlobParams, BlobResult};
use crate::rpc::RpcError;
use crate::store::BlobId;

/// What has no type that is known is told as bytes.
const BYTES: &str = "application/octet-stream";

/// Reads it, without opening the log for writing.
///
/// # Errors
/// `invalid_params`; that there is no such session comes later.
pub fn start(caller: &Arc<Caller>, params: &BlobParams) -> Result<Started, RpcError> {
    if BlobId::parse(&params.attachment_id).is_none() {
        return Err(invalid(
            "attachmentId",
            "expected the attachmentId of an image block, 64 hexadecimal digits",
        ));
    }
    let answer = caller.shared.runtime.blob(&params.session_id, &params.attachment_id);
    Ok(Started::later(async move {
        let Some(bytes) = answer.await? else {
            return Err(invalid("attachmentId", "this session has no such attachment"));
        };
        let mime_type = Kind::of(&bytes).map_or(BYTES, Kind::media_type).to_owned();
        Outcome::of(&BlobResult { mime_type, data: STANDARD.encode(&bytes) })
    }))
}
