//! Content blocks of prompts. Read by hand: a tagged enum would lose the path of what is wrong.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// A piece of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// Base64.
        data: String,
        /// E.g. `image/png`.
        mime_type: String,
    },
}

impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields {
            #[serde(rename = "type")]
            kind: String,
            text: Option<String>,
            data: Option<String>,
            mime_type: Option<String>,
        }
        let fields = Fields::deserialize(deserializer)?;
        match fields.kind.as_str() {
            "text" => Ok(Self::Text { text: fields.text.ok_or_else(|| D::Error::missing_field("text"))? }),
            "image" => Ok(Self::Image {
                data: fields.data.ok_or_else(|| D::Error::missing_field("data"))?,
                mime_type: fields.mime_type.ok_or_else(|| D::Error::missing_field("mimeType"))?,
            }),
            other => Err(D::Error::custom(format!("type: expected \"text\" or \"image\", got {other:?}"))),
        }
    }
}
