//! Pictures on their way to a model: base64 written straight into the request's JSON, or words in place of a picture.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Serialize, Serializer};

use crate::event::{Attachment, Block, Message};

/// The pictures of a request, by their attachment's id.
#[derive(Clone, Debug, Default)]
pub struct Images(HashMap<String, Bytes>);

impl Images {
    /// Takes a picture along.
    pub fn add(&mut self, attachment: &Attachment, bytes: Bytes) {
        self.0.insert(attachment.attachment_id.clone(), bytes);
    }

    /// What a request says of a message: its texts and pictures, in their order.
    pub(super) fn said<'a>(&'a self, message: &'a Message) -> impl Iterator<Item = Said<'a>> {
        message.content.iter().filter_map(|block| match block {
            Block::Text { text } => Some(Said::Text(text)),
            Block::Image { attachment } => Some(self.picture(attachment)),
            Block::Reasoning { .. } | Block::ToolCall { .. } => None,
        })
    }

    /// The words of a message: its texts joined as they are, and a line for each picture that does not go along.
    pub(super) fn words<'a>(&'a self, message: &'a Message) -> Cow<'a, str> {
        let mut words = Cow::Borrowed("");
        for said in self.said(message) {
            match said {
                Said::Text(text) if words.is_empty() => words = Cow::Borrowed(text),
                Said::Text(text) => words.to_mut().push_str(text),
                Said::Missing(line) => {
                    let before = if words.is_empty() { "" } else { "\n" };
                    let _ = write!(words.to_mut(), "{before}{line}");
                }
                Said::Picture(_) => {}
            }
        }
        words
    }

    /// The pictures of a message that go along.
    pub(super) fn pictures<'a>(&'a self, message: &'a Message) -> impl Iterator<Item = Picture<'a>> {
        self.said(message).filter_map(|said| match said {
            Said::Picture(picture) => Some(picture),
            Said::Text(_) | Said::Missing(_) => None,
        })
    }

    fn picture<'a>(&'a self, attachment: &'a Attachment) -> Said<'a> {
        match self.0.get(&attachment.attachment_id) {
            Some(bytes) => Said::Picture(Picture { media_type: &attachment.media_type, bytes }),
            None => Said::Missing(instead(attachment)),
        }
    }
}

/// What stands in place of a picture that does not go along.
fn instead(attachment: &Attachment) -> String {
    let Attachment { media_type, width, height, name, .. } = attachment;
    let name = name.as_ref().map_or_else(String::new, |name| format!(" {name:?}"));
    format!("[an image{name} ({media_type}, {width}x{height}) that is not shown]")
}

/// A piece of a message.
#[derive(Clone, Debug)]
pub(super) enum Said<'a> {
    /// Words.
    Text(&'a str),
    /// A picture.
    Picture(Picture<'a>),
    /// Words in place of a picture.
    Missing(String),
}

/// A picture that goes along.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture<'a> {
    pub(super) media_type: &'a str,
    bytes: &'a Bytes,
}

impl<'a> Picture<'a> {
    /// Its bytes as base64.
    pub(super) fn base64(self) -> Base64<'a> {
        Base64(self)
    }

    /// It as a `data:` URL.
    pub(super) fn data_url(self) -> DataUrl<'a> {
        DataUrl(self)
    }
}

/// A picture's bytes, written as base64.
pub(super) struct Base64<'a>(Picture<'a>);

impl fmt::Display for Base64<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Base64Display::new(self.0.bytes, &STANDARD).fmt(f)
    }
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A picture, written as a `data:` URL.
pub(super) struct DataUrl<'a>(Picture<'a>);

impl fmt::Display for DataUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data:{};base64,{}", self.0.media_type, Base64(self.0))
    }
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Role, Source, SourceKind};

    pub(crate) fn attachment(id: &str) -> Attachment {
        Attachment {
            attachment_id: id.to_owned(),
            media_type: "image/png".to_owned(),
            bytes: 3,
            width: 2,
            height: 1,
            name: None,
        }
    }

    #[test]
    fn a_picture_is_written_as_base64_and_what_is_missing_as_words() {
        let mut images = Images::default();
        images.add(&attachment("a"), Bytes::from_static(b"\0\x01\xFF"));
        let content = vec![
            Block::text("one"),
            Block::Image { attachment: attachment("a") },
            Block::text(" two"),
            Block::Image { attachment: Attachment { name: Some("x.png".to_owned()), ..attachment("b") } },
        ];
        let message = Message::new(Role::User, Source::of(SourceKind::User), content);
        let picture = images.pictures(&message).next().unwrap();
        assert_eq!(serde_json::to_string(&picture.base64()).unwrap(), r#""AAH/""#);
        assert_eq!(serde_json::to_string(&picture.data_url()).unwrap(), r#""data:image/png;base64,AAH/""#);
        assert_eq!(
            images.words(&message),
            "one two\n[an image \"x.png\" (image/png, 2x1) that is not shown]"
        );
    }
}
