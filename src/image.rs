//! What a picture is, told from its first bytes: its type and its size in pixels. Nothing is decoded.

/// The types that models take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
}

/// A picture's type and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its type.
    pub kind: Kind,
    /// Its width in pixels, at least 1.
    pub width: u32,
    /// Its height in pixels, at least 1.
    pub height: u32,
}

/// Why bytes are no picture that a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The bytes begin like none of the types.
    #[error("no PNG, JPEG, GIF or WebP image")]
    Unknown,
    /// They begin like one, but it has no size.
    #[error("a damaged {} image", .0.media_type())]
    Damaged(Kind),
}

impl Kind {
    /// Its media type, e.g. `image/png`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// Whether a media type that somebody wrote means this type.
    pub fn is_called(self, media_type: &str) -> bool {
        media_type.eq_ignore_ascii_case(self.media_type())
            || (self == Self::Jpeg && media_type.eq_ignore_ascii_case("image/jpg"))
    }

    /// The type of bytes that begin so.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1A\n") {
            Some(Self::Png)
        } else if bytes.starts_with(b"\xFF\xD8\xFF") {
            Some(Self::Jpeg)
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            Some(Self::Gif)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            Some(Self::Webp)
        } else {
            None
        }
    }
}

impl Image {
    /// Looks at a picture's bytes.
    ///
    /// # Errors
    /// They are none, or damaged before their size.
    pub fn of(bytes: &[u8]) -> Result<Self, ImageError> {
        let kind = Kind::of(bytes).ok_or(ImageError::Unknown)?;
        let size = match kind {
            Kind::Png => png(bytes),
            Kind::Jpeg => jpeg(bytes),
            Kind::Gif => gif(bytes),
            Kind::Webp => webp(bytes),
        };
        match size {
            Some((width, height)) if width > 0 && height > 0 => Ok(Self { kind, width, height }),
            Some(_) | None => Err(ImageError::Damaged(kind)),
        }
    }
}

fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    let side = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    (bytes.get(12..16)? == b"IHDR").then_some(())?;
    Some((side(16)?, side(20)?))
}

fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    Some((little(bytes, 6)?, little(bytes, 8)?))
}

/// Sixteen bits, low byte first.
fn little(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

/// Walks the segments to the one that begins a frame.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let big = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let mut at = 2;
    loop {
        (*bytes.get(at)? == 0xFF).then_some(())?;
        match *bytes.get(at + 1)? {
            // Fill bytes.
            0xFF => at += 1,
            // Markers without length.
            0x01 | 0xD0..=0xD8 => at += 2,
            // A frame; C4, C8 and CC are tables and such.
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                return Some((big(at + 7)?.into(), big(at + 5)?.into()));
            }
            // The picture's data, or its end, before any frame.
            0xD9 | 0xDA => return None,
            _ => {
                let length = big(at + 2)?;
                at += 2 + usize::from(length.max(2));
            }
        }
    }
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    let byte = |at: usize| bytes.get(at).copied().map(u32::from);
    match bytes.get(12..16)? {
        b"VP8 " => {
            (bytes.get(23..26)? == b"\x9D\x01\x2A").then_some(())?;
            Some((little(bytes, 26)? & 0x3FFF, little(bytes, 28)? & 0x3FFF))
        }
        b"VP8L" => {
            (byte(20)? == 0x2F).then_some(())?;
            let bits = u32::from_le_bytes(bytes.get(21..25)?.try_into().ok()?);
            Some(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
        }
        b"VP8X" => {
            let side = |at: usize| Some(byte(at)? | byte(at + 1)? << 8 | byte(at + 2)? << 16);
            Some((side(24)? + 1, side(27)? + 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn riff(chunk: &[u8]) -> Vec<u8> {
        [b"RIFF\0\0\0\0WEBP", chunk].concat()
    }

    #[track_caller]
    fn check(bytes: &[u8], kind: Kind, width: u32, height: u32) {
        assert_eq!(Image::of(bytes), Ok(Image { kind, width, height }));
        for end in 0..bytes.len() {
            assert!(Image::of(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn types_and_sizes_are_read_from_the_first_bytes() {
        check(b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\x01\x02\0\0\0\x03", Kind::Png, 258, 3);
        check(b"GIF89a\x02\x01\x03\0", Kind::Gif, 258, 3);
        check(
            b"\xFF\xD8\xFF\xE0\0\x04JF\xFF\xFF\xDB\0\x03x\xFF\xC2\0\x11\x08\0\x03\x01\x02",
            Kind::Jpeg,
            258,
            3,
        );
        check(&riff(b"VP8 \0\0\0\0\0\0\0\x9D\x01\x2A\x02\x41\x03\0"), Kind::Webp, 258, 3);
        check(&riff(b"VP8L\0\0\0\0\x2F\x01\x81\0\0"), Kind::Webp, 258, 3);
        check(&riff(b"VP8X\0\0\0\0\0\0\0\0\x01\x01\0\x02\0\0"), Kind::Webp, 258, 3);
    }

    #[test]
    fn what_is_no_picture_is_said_to_be_none() {
        for bytes in [&b""[..], b"plain", b"BM", b"%PDF-1.7", b"<svg/>", b"RIFF\0\0\0\0WAVE"] {
            assert_eq!(Image::of(bytes), Err(ImageError::Unknown));
        }
        assert_eq!(Image::of(b"GIF89a\0\0\x03\0").unwrap_err().to_string(), "a damaged image/gif image");
        assert_eq!(Image::of(b"\xFF\xD8\xFF\xD9").unwrap_err(), ImageError::Damaged(Kind::Jpeg));
    }

    #[test]
    fn media_types_are_compared_as_people_write_them() {
        assert!(Kind::Png.is_called("image/PNG") && Kind::Jpeg.is_called("image/jpg"));
        assert!(!Kind::Png.is_called("image/jpg") && !Kind::Png.is_called("png"));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(start in 0_usize..4, rest: Vec<u8>) {
            let starts = [&b"\xFF\xD8\xFF"[..], b"RIFF\0\0\0\0WEBPVP8X", b"\x89PNG\r\n\x1A\n", b"GIF89a"];
            if let Ok(image) = Image::of(&[starts[start], &rest[..]].concat()) {
                prop_assert!(image.width > 0 && image.height > 0);
            }
        }
    }
}
