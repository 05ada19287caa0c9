//! Pictures beside the text: read here, so that the daemon needs no access to them.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::Failure;
use crate::image::Image;
use crate::protocol::ContentBlock;

/// Bytes of all pictures of a prompt: as base64 they are a third more, and a request is one line of at most 16 MiB.
const BYTES_MAX: u64 = 11 * 1024 * 1024;

/// Reads the pictures, in their order.
///
/// # Errors
/// Wrong usage: a file that can't be read, is no picture, or is too large.
pub(super) fn blocks(files: &[PathBuf], cwd: &Path) -> Result<Vec<ContentBlock>, Failure> {
    let mut room = BYTES_MAX;
    files.iter().map(|file| block(&cwd.join(file), &mut room)).collect()
}

fn block(path: &Path, room: &mut u64) -> Result<ContentBlock, Failure> {
    let shown = path.display();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(*room + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::usage(format!("cannot read the image {shown}: {error}")))?;
    let Some(left) = room.checked_sub(bytes.len() as u64) else {
        return Err(Failure::usage(format!("{shown}: the images of a prompt have more than 11 MiB"))
            .with_help("make them smaller, or name the files in the prompt"));
    };
    *room = left;
    let image = Image::of(&bytes).map_err(|error| {
        Failure::usage(format!("{shown} is {error}"))
            .with_help("name the file in the prompt instead, and the agent reads it")
    })?;
    let mime_type = image.kind.media_type().to_owned();
    Ok(ContentBlock::Image { data: STANDARD.encode(&bytes), mime_type })
}
