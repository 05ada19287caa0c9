//! The pictures that a request carries: read when it is made, the newest first, as many as it may.

use std::collections::HashSet;

use super::Turn;
use crate::event::{Attachment, Block};
use crate::provider::Images;

impl Turn {
    /// Reads the pictures of the conversation, if the model takes any. What is left out, because it is too old or no
    /// longer there, the model is told in words.
    pub(super) async fn images(&self) -> Images {
        let mut images = Images::default();
        if !self.route.abilities.images {
            return images;
        }
        for attachment in self.newest_pictures() {
            match self.blobs.get(&attachment.attachment_id).await {
                Ok(Some(bytes)) => images.add(attachment, bytes),
                Ok(None) => {
                    let id = &attachment.attachment_id;
                    tracing::warn!(session = %self.session, %id, "a picture of this session is no longer there");
                }
                Err(error) => tracing::warn!(session = %self.session, %error, "a picture can't be read"),
            }
        }
        images
    }

    fn newest_pictures(&self) -> Vec<&Attachment> {
        let mut room = self.config.limits.request_image_bytes.0;
        let mut seen = HashSet::new();
        let mut newest = Vec::new();
        let blocks = self.conversation.iter().rev().flat_map(|message| message.content.iter().rev());
        for block in blocks {
            let Block::Image { attachment } = block else { continue };
            if !seen.insert(attachment.attachment_id.as_str()) {
                continue;
            }
            let Some(left) = room.checked_sub(attachment.bytes) else { break };
            room = left;
            newest.push(attachment);
        }
        newest
    }
}
