//! What a certificate says: its names, how long it is good, its public key. Enough of DER for that and no more; whether
//! it is to be trusted is decided by rustls alone. Called by `listener`, `client` and `cli`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

/// SHA-256 of a public key (the certificate's `SubjectPublicKeyInfo`), written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pin([u8; 32]);

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// DNS names and addresses that it is for.
    pub names: Vec<String>,
    /// From when it is good.
    pub not_before: Timestamp,
    /// Until when.
    pub not_after: Timestamp,
    /// Its public key.
    pub pin: Pin,
}

/// A text is no pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected sha256: and 64 hexadecimal digits or base64, as dshd tls fingerprint prints, got \"{0}\"")]
pub struct PinError(String);

impl FromStr for Pin {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PinError(text.to_owned());
        let digest = text.strip_prefix("sha256:").ok_or_else(wrong)?;
        let bytes = if digest.len() == 64 { from_hex(digest) } else { STANDARD.decode(digest).ok() };
        Ok(Self(bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)?))
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::try_from(digit(&pair[0])? * 16 + digit(&pair[1])?).ok()).collect()
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Pin {
    /// That of a public key in DER.
    pub fn of_key(spki: &[u8]) -> Self {
        Self(Sha256::digest(spki).into())
    }

    /// That of the public key of a certificate in DER.
    pub fn of(der: &[u8]) -> Option<Self> {
        Certificate::read(der).map(|certificate| certificate.pin)
    }
}

const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// `subjectAltName` as an encoded object identifier.
const ALT_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Bytes that begin with an element of DER.
struct Elements<'a>(&'a [u8]);

/// One element: its tag, its content, and all of it.
#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    /// The next one; `None` at the end, and where there is none.
    fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        let whole = &self.0[..self.0.len() - after.len()];
        self.0 = after;
        Some(Element { tag, content, whole })
    }
}

impl<'a> Elements<'a> {
    fn tagged(&mut self, tag: u8) -> Option<Element<'a>> {
        self.next().filter(|element| element.tag == tag)
    }
}

impl Certificate {
    /// Reads a certificate in DER; `None` when it is none.
    pub fn read(der: &[u8]) -> Option<Self> {
        let certificate = Elements(der).tagged(SEQUENCE)?;
        let mut fields = Elements(Elements(certificate.content).tagged(SEQUENCE)?.content);
        if fields.0.first() == Some(&VERSION) {
            fields.next()?;
        }
        // The serial number, the algorithm and the issuer.
        fields.nth(2)?;
        let mut validity = Elements(fields.tagged(SEQUENCE)?.content);
        let not_before = time(validity.next()?)?;
        let not_after = time(validity.next()?)?;
        let _subject = fields.tagged(SEQUENCE)?;
        let key = fields.tagged(SEQUENCE)?;
        let extensions = fields.find(|field| field.tag == EXTENSIONS);
        let names = extensions.map_or_else(Vec::new, |extensions| names(extensions.content));
        Some(Self { names, not_before, not_after, pin: Pin::of_key(key.whole) })
    }
}

/// The names of the extensions; none where there are none.
fn names(extensions: &[u8]) -> Vec<String> {
    let list = Elements(extensions).tagged(SEQUENCE).map_or(&[][..], |list| list.content);
    let of_names = |extension: &Element<'_>| {
        Elements(extension.content).next().is_some_and(|id| id.content == ALT_NAMES)
    };
    let Some(extension) = Elements(list).find(of_names) else { return Vec::new() };
    let value = Elements(extension.content).find(|element| element.tag == OCTETS);
    let names = value.and_then(|value| Elements(value.content).tagged(SEQUENCE));
    names.map_or_else(Vec::new, |names| Elements(names.content).filter_map(name).collect())
}

fn name(element: Element<'_>) -> Option<String> {
    match element.tag {
        DNS_NAME => String::from_utf8(element.content.to_vec()).ok(),
        IP_ADDRESS => match element.content.len() {
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(element.content).ok()?).to_string()),
            16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(element.content).ok()?).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// `YYMMDDHHMMSSZ` of 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn time(element: Element<'_>) -> Option<Timestamp> {
    let text = std::str::from_utf8(element.content).ok()?.strip_suffix('Z')?;
    let (year, rest) = match element.tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    let date = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, PublicKeyData as _, date_time_ymd};

    use super::*;

    fn certificate() -> (Vec<u8>, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let names = ["a.example", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2026, 1, 2);
        params.not_after = date_time_ymd(2151, 3, 4);
        (params.self_signed(&key).unwrap().der().to_vec(), key)
    }

    #[test]
    fn a_certificate_tells_its_names_its_time_and_its_key() {
        let (der, key) = certificate();
        let read = Certificate::read(&der).unwrap();
        assert_eq!(read.names, ["a.example", "127.0.0.1", "::1"]);
        assert_eq!(read.not_before.to_string(), "2026-01-02T00:00:00Z");
        assert_eq!(read.not_after.to_string(), "2151-03-04T00:00:00Z");
        let spki: [u8; 32] = Sha256::digest(key.subject_public_key_info()).into();
        assert_eq!(read.pin, Pin(spki));
    }

    #[test]
    fn a_pin_is_read_as_it_is_written_and_in_base64() {
        let pin = Pin([7; 32]);
        assert_eq!(pin.to_string().parse(), Ok(pin));
        assert_eq!(format!("sha256:{}", STANDARD.encode([7; 32])).parse(), Ok(pin));
        for wrong in ["", "sha256:", "sha1:00", "sha256:07", &format!("sha256:{}", "g".repeat(64))] {
            assert!(wrong.parse::<Pin>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_read_past_their_end(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Certificate::read(&bytes);
        }

        #[test]
        fn a_certificate_that_was_cut_or_changed_is_read_or_not(at in 0_usize..400, byte: u8) {
            let (mut der, _) = certificate();
            let at = at % der.len();
            prop_assert!(Certificate::read(&der[..at]).is_none());
            der[at] = byte;
            let _ = Certificate::read(&der);
        }
    }
}
