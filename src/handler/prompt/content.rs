//! A prompt's content: texts as they are, pictures decoded, looked at and named by what they are.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

use crate::config::ByteSize;
use crate::event::{Attachment, Block};
use crate::handler::invalid;
use crate::image::Image;
use crate::protocol::ContentBlock;
use crate::rpc::{ErrorKind, RpcError};
use crate::store::BlobId;

/// Padded or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bytes of pictures, by their names.
type Pictures = Vec<(BlobId, Bytes)>;

/// The blocks, and the bytes of the pictures that they name.
pub(super) fn read(
    blocks: Vec<ContentBlock>,
    image_bytes_max: ByteSize,
) -> Result<(Vec<Block>, Pictures), RpcError> {
    if blocks.is_empty() {
        return Err(invalid("contentBlocks", "expected one block or more"));
    }
    let mut content = Vec::with_capacity(blocks.len());
    let mut pictures = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        content.push(match block {
            ContentBlock::Text { text } => Block::Text { text },
            ContentBlock::Image { data, mime_type } => {
                let (attachment, picture) = picture(at, &data, &mime_type, image_bytes_max)?;
                pictures.push(picture);
                Block::Image { attachment }
            }
        });
    }
    Ok((content, pictures))
}

fn picture(
    at: usize,
    data: &str,
    mime_type: &str,
    max: ByteSize,
) -> Result<(Attachment, (BlobId, Bytes)), RpcError> {
    // Four characters are three bytes, so what is too large needs no decoding.
    if data.len() / 4 * 3 > max.bytes().saturating_add(3) {
        return Err(too_large(at, data.len() / 4 * 3, max));
    }
    let bytes = BASE64.decode(data).map_err(|error| wrong(at, "data", &format!("no base64: {error}")))?;
    if bytes.len() > max.bytes() {
        return Err(too_large(at, bytes.len(), max));
    }
    let image = Image::of(&bytes).map_err(|error| wrong(at, "data", &error.to_string()))?;
    let media_type = image.kind.media_type();
    if !image.kind.is_called(mime_type) {
        let message = format!("expected {media_type:?}, which the data is, got {mime_type:?}");
        return Err(wrong(at, "mimeType", &message));
    }
    let blob = BlobId::of(&bytes);
    let attachment = Attachment {
        attachment_id: blob.to_string(),
        media_type: media_type.to_owned(),
        bytes: bytes.len() as u64,
        width: image.width,
        height: image.height,
        name: None,
    };
    Ok((attachment, (blob, Bytes::from(bytes))))
}

fn too_large(at: usize, bytes: usize, max: ByteSize) -> RpcError {
    let message = format!(
        "contentBlocks[{at}].data: an image of {bytes} bytes is over limits.image_bytes ({max}); make it smaller"
    );
    RpcError::new(ErrorKind::LimitExceeded, message).with("limit", &"image_bytes").with("max", &max.0)
}

fn wrong(at: usize, field: &str, message: &str) -> RpcError {
    let path = format!("contentBlocks[{at}].{field}");
    RpcError::new(ErrorKind::InvalidParams, format!("{path}: {message}")).with("path", &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: ByteSize = ByteSize(40);
    const GIF: &[u8] = b"GIF89a\x02\0\x01\0";

    fn image(data: &str, mime_type: &str) -> ContentBlock {
        ContentBlock::Image { data: data.to_owned(), mime_type: mime_type.to_owned() }
    }

    #[track_caller]
    fn refused(block: ContentBlock, kind: ErrorKind, message: &str) {
        let text = ContentBlock::Text { text: "look".to_owned() };
        let error = read(vec![text, block], MAX).unwrap_err();
        assert_eq!(error.kind, kind);
        assert!(error.message.starts_with(message), "{}", error.message);
    }

    #[test]
    fn a_picture_is_named_by_what_it_is() {
        let data = BASE64.encode(GIF);
        let (content, pictures) = read(vec![image(&data, "image/gif")], MAX).unwrap();
        let [Block::Image { attachment }] = content.as_slice() else { panic!("{content:?}") };
        assert_eq!((attachment.width, attachment.height, attachment.bytes), (2, 1, 10));
        assert_eq!(attachment.attachment_id, BlobId::of(GIF).to_string());
        assert_eq!(pictures, [(BlobId::of(GIF), Bytes::from_static(GIF))]);
        let unpadded = data.trim_end_matches('=');
        assert!(unpadded.len() < data.len() && read(vec![image(unpadded, "image/gif")], MAX).is_ok());
    }

    #[test]
    fn what_is_wrong_with_a_picture_is_told_by_its_path() {
        let wrong = ErrorKind::InvalidParams;
        refused(image("%", "image/gif"), wrong, "contentBlocks[1].data: no base64");
        refused(image("aGVsbG8=", "image/png"), wrong, "contentBlocks[1].data: no PNG, JPEG, GIF or WebP");
        refused(image("R0lGODlh", "image/gif"), wrong, "contentBlocks[1].data: a damaged image/gif");
        refused(
            image(&BASE64.encode(GIF), "image/png"),
            wrong,
            "contentBlocks[1].mimeType: expected \"image/gif\", which the data is, got \"image/png\"",
        );
        for bytes in [41, 44, 4000] {
            let data = BASE64.encode(vec![0; bytes]);
            refused(
                image(&data, "image/gif"),
                ErrorKind::LimitExceeded,
                "contentBlocks[1].data: an image of",
            );
        }
    }
}
