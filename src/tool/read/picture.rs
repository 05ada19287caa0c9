//! A file that is a picture, for a model that takes pictures.

use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use serde::Serialize;

use super::window::{self, ReadError};
use super::{failure, framed_as};
use crate::config::ByteSize;
use crate::event::{Attachment, Block};
use crate::image::{Image, ImageError};
use crate::tool::{Failed, Guard, ToolContext, ToolOutput, clip};

#[derive(Serialize)]
struct Meta {
    path: String,
}

/// Shows the file if it is a picture; says what it is instead (`kind`) if it is none.
pub(super) async fn show(
    path: &Path,
    kind: &'static str,
    bytes_max: ByteSize,
    context: &ToolContext,
) -> Result<ToolOutput, ToolOutput> {
    let (owned, guard) = (path.to_owned(), context.guard.clone());
    let reading = tokio::task::spawn_blocking(move || start_of(&owned, &guard, bytes_max));
    let bytes = tokio::select! {
        biased;
        () = context.cancel.cancelled() => {
            return Err(ToolOutput::failed(Failed::Aborted, "the call was cancelled"));
        }
        read = reading => read.map_err(|error| {
            tracing::error!(%error, "reading an image failed inside");
            ToolOutput::failed_without_code("reading failed inside; this is a bug")
        })?,
    };
    let bytes = bytes.map_err(|error| failure(path, &error))?;
    let shown = clip::line(&path.display().to_string());
    let image = match Image::of(&bytes) {
        Ok(image) => image,
        Err(ImageError::Unknown) => return Err(failure(path, &ReadError::NotText(kind))),
        Err(error @ ImageError::Damaged(_)) => {
            return Err(ToolOutput::failed(Failed::NotText, &format!("cannot show {shown}: it is {error}")));
        }
    };
    if bytes.len() > bytes_max.bytes() {
        let text = format!(
            "cannot show {shown}: the image is over limits.image_bytes ({bytes_max}); make it smaller"
        );
        return Err(ToolOutput::failed(Failed::NotText, &text));
    }
    let length = bytes.len();
    let kept = context.blobs.put(Bytes::from(bytes)).await;
    let blob =
        kept.map_err(|error| ToolOutput::failed_without_code(&format!("cannot keep {shown}: {error}")))?;
    let attachment = Attachment {
        attachment_id: blob.to_string(),
        media_type: image.kind.media_type().to_owned(),
        bytes: length as u64,
        width: image.width,
        height: image.height,
        name: path.file_name().map(|name| name.to_string_lossy().into_owned()),
    };
    let words = format!("({}, {}x{}, {length} bytes)", attachment.media_type, image.width, image.height);
    let mut output = ToolOutput::ok(framed_as("image", path, &words));
    output.images.push(Block::Image { attachment });
    Ok(output.with_meta(&Meta { path: path.display().to_string() }))
}

/// The file's bytes, or one more than a picture may have.
fn start_of(path: &Path, guard: &Guard, bytes_max: ByteSize) -> Result<Vec<u8>, ReadError> {
    let (file, _) = window::open(path, guard)?;
    let mut bytes = Vec::new();
    file.take(bytes_max.0 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
