//! What a file is: by its type in the file system, and by its first bytes.

use rustix::fs::FileType;

/// The start by which text is told from data.
pub(super) const SAMPLE_BYTES: usize = 8 * 1024;

/// Signatures of formats that models are asked about most.
const SIGNATURES: [(&[u8], &str); 19] = [
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xFF\xD8\xFF", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"BM", "a BMP image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or an office document)"),
    (b"\x1F\x8B", "gzip data"),
    (b"\x28\xB5\x2F\xFD", "zstd data"),
    (b"\xFD7zXZ\0", "xz data"),
    (b"BZh", "bzip2 data"),
    (b"7z\xBC\xAF\x27\x1C", "a 7z archive"),
    (b"\x7FELF", "an ELF executable"),
    (b"\xCF\xFA\xED\xFE", "a Mach-O executable"),
    (b"\xCA\xFE\xBA\xBE", "a Java class or Mach-O executable"),
    (b"\0asm", "a WebAssembly module"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"OggS", "Ogg media"),
    (b"\xFF\xFE", "UTF-16 text"),
    (b"\xFE\xFF", "UTF-16 text"),
];

/// What is no regular file, in words; none for a regular file.
pub(super) fn irregular(file_type: FileType) -> Option<&'static str> {
    match file_type {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        FileType::Symlink | FileType::Unknown => Some("a special file"),
    }
}

/// What a file that starts so is, unless it is text. Text has no zero byte at its start; one that only has bytes of
/// another encoding is still text.
pub(super) fn binary(start: &[u8]) -> Option<&'static str> {
    let signature =
        SIGNATURES.iter().find(|(signature, _)| start.starts_with(signature)).map(|(_, kind)| *kind);
    let riff = match start.get(8..12) {
        Some(b"WEBP") => "a WebP image",
        Some(b"WAVE") => "a WAV sound",
        Some(_) | None => "RIFF media",
    };
    if start.starts_with(b"RIFF") && memchr::memchr(0, start).is_some() {
        return Some(riff);
    }
    let unreadable =
        memchr::memchr(0, start).is_some() || std::str::from_utf8(start).is_err_and(|e| !is_cut(start, e));
    match signature {
        // "BM" or "GIF8" may begin a text, too.
        Some(kind) if unreadable => Some(kind),
        Some(_) | None => memchr::memchr(0, start).map(|_| "binary data"),
    }
}

/// Whether the text is fine but for a character that the end of the sample splits.
fn is_cut(start: &[u8], error: std::str::Utf8Error) -> bool {
    error.error_len().is_none() && start.len() - error.valid_up_to() < 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        for (start, kind) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], "a PNG image"),
            (b"\xFF\xD8\xFF\xE0\0\x10JFIF", "a JPEG image"),
            (b"%PDF-1.7\n%\xE2\xE3\xCF\xD3", "a PDF document"),
            (b"\x1F\x8B\x08\0", "gzip data"),
            (b"\x7FELF\x02\x01\x01\0", "an ELF executable"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "a WebP image"),
            (b"\xFF\xFEh\0i\0", "UTF-16 text"),
            (b"some\0thing", "binary data"),
        ] {
            assert_eq!(binary(start), Some(kind));
        }
    }

    #[test]
    fn text_is_text_in_any_encoding_and_whatever_word_it_begins_with() {
        for start in
            [&b""[..], b"plain", "那🙂".as_bytes(), b"caf\xE9 latin", b"BM is a word", b"GIF89a is a format"]
        {
            assert_eq!(binary(start), None, "{start:?}");
        }
        assert_eq!(binary(&"BM那".as_bytes()[..4]), None, "a character split by the sample's end");
    }
}
