//! Makes certificates: a CA of our own, and what it signs for the daemon and for clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, date_time_ymd,
};
use rustls::pki_types::ServerName;
use zeroize::Zeroizing;

use crate::auth::certificate::Certificate;
use crate::client::tls::first_certificate;
use crate::config::write_private;

/// How long a CA is good, and what it signs.
const CA_LIFE: Duration = Duration::from_hours(24 * 3650);
const LEAF_LIFE: Duration = Duration::from_hours(24 * 397);
/// The CA's own name. It stays, so that what was signed before and after fits the same CA.
const CA_NAME: &str = "dshd CA";
/// Names under which a daemon is always reached on its own machine.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueError {
    /// A file is there already.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// A file can't be read or written.
    #[error("cannot {doing} {}: {reason}", .path.display())]
    File {
        /// `read` or `write`.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No certificate can be for such a name.
    #[error("\"{0}\" is no host's name and no address")]
    Name(String),
    /// The CA's certificate and key are not of one another.
    #[error("{} is not the key of the CA beside it", .0.display())]
    OtherCa(PathBuf),
    /// The library refuses.
    #[error("the certificate cannot be made: {0}")]
    Failed(#[from] rcgen::Error),
}

/// A directory of certificates: `ca.pem`, `ca.key`, `server.pem`, `server.key`.
#[derive(Clone, Debug)]
pub(super) struct Shelf(pub(super) PathBuf);

impl Shelf {
    pub(super) fn ca(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    fn ca_key(&self) -> PathBuf {
        self.0.join("ca.key")
    }

    pub(super) fn server(&self) -> PathBuf {
        self.0.join("server.pem")
    }

    pub(super) fn server_key(&self) -> PathBuf {
        self.0.join("server.key")
    }

    /// Makes a CA and the daemon's certificate. Nothing is overwritten.
    pub(super) fn init(&self, names: &[String]) -> Result<(), IssueError> {
        let names = server_names(names)?;
        for path in [self.ca(), self.ca_key(), self.server(), self.server_key()] {
            absent(&path)?;
        }
        let (ca_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
        let ca = ca_params().self_signed(&ca_key)?.pem();
        write(&self.ca_key(), &ca_key.serialize_pem())?;
        write(&self.ca(), &ca)?;
        let issuer = Issuer::new(ca_params(), ca_key);
        self.sign_server(names, &key, &issuer, &ca)?;
        write(&self.server_key(), &key.serialize_pem())
    }

    /// Makes the daemon's certificate anew, for the names that it has unless others are given. With its key, which
    /// pins stay good for, unless it is to be new.
    pub(super) fn renew(&self, names: &[String], new_key: bool) -> Result<(), IssueError> {
        let (issuer, ca) = self.issuer()?;
        let names =
            if names.is_empty() { read_certificate(&self.server())?.names } else { server_names(names)? };
        let key = if new_key { KeyPair::generate()? } else { read_key(&self.server_key())? };
        // With a new key both files change, and a daemon that reads them in between keeps what it has.
        self.sign_server(names, &key, &issuer, &ca)?;
        if new_key { write(&self.server_key(), &key.serialize_pem()) } else { Ok(()) }
    }

    /// Makes a certificate for a client, where `client_ca` asks for one: its files.
    pub(super) fn client(&self, name: &str) -> Result<(PathBuf, PathBuf), IssueError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(is_name) || ["ca", "server"].contains(&name) {
            return Err(IssueError::Name(name.to_owned()));
        }
        let (cert, key_path) = (self.0.join(format!("{name}.pem")), self.0.join(format!("{name}.key")));
        absent(&cert)?;
        absent(&key_path)?;
        let (issuer, _) = self.issuer()?;
        let key = KeyPair::generate()?;
        let mut params = leaf_params(name, Vec::new(), ExtendedKeyUsagePurpose::ClientAuth)?;
        params.distinguished_name.push(DnType::CommonName, name);
        write(&key_path, &key.serialize_pem())?;
        write(&cert, &params.signed_by(&key, &issuer)?.pem())?;
        Ok((cert, key_path))
    }

    fn sign_server(
        &self,
        names: Vec<String>,
        key: &KeyPair,
        issuer: &Issuer<'_, KeyPair>,
        ca: &str,
    ) -> Result<(), IssueError> {
        let common = names.first().cloned().unwrap_or_default();
        let params = leaf_params(&common, names, ExtendedKeyUsagePurpose::ServerAuth)?;
        let leaf = params.signed_by(key, issuer)?.pem();
        // With the CA, so that a client can trust its key alone.
        write(&self.server(), &format!("{leaf}{ca}"))
    }

    fn issuer(&self) -> Result<(Issuer<'static, KeyPair>, String), IssueError> {
        let key = read_key(&self.ca_key())?;
        let ca = read(&self.ca())?;
        let pin = crate::auth::certificate::Pin::of_key(&key.subject_public_key_info());
        if read_certificate(&self.ca())?.pin != pin {
            return Err(IssueError::OtherCa(self.ca_key()));
        }
        Ok((Issuer::new(ca_params(), key), ca.to_string()))
    }
}

/// What a certificate file says.
pub(super) fn read_certificate(path: &Path) -> Result<Certificate, IssueError> {
    first_certificate(path).map_err(|error| IssueError::File {
        doing: "read",
        path: path.to_path_buf(),
        reason: error.to_string(),
    })
}

fn absent(path: &Path) -> Result<(), IssueError> {
    if path.exists() { Err(IssueError::Exists(path.to_path_buf())) } else { Ok(()) }
}

fn read(path: &Path) -> Result<Zeroizing<String>, IssueError> {
    let failed = |error: std::io::Error| IssueError::File {
        doing: "read",
        path: path.to_path_buf(),
        reason: error.to_string(),
    };
    fs::read_to_string(path).map(Zeroizing::new).map_err(failed)
}

fn read_key(path: &Path) -> Result<KeyPair, IssueError> {
    KeyPair::from_pem(&read(path)?).map_err(|error| IssueError::File {
        doing: "read",
        path: path.to_path_buf(),
        reason: error.to_string(),
    })
}

fn write(path: &Path, text: &str) -> Result<(), IssueError> {
    write_private(path, text).map_err(|error| IssueError::File {
        doing: "write",
        path: path.to_path_buf(),
        reason: error.to_string(),
    })
}

/// The names that were given and the local ones, each once.
fn server_names(given: &[String]) -> Result<Vec<String>, IssueError> {
    let mut names: Vec<String> = Vec::new();
    for name in given.iter().map(String::as_str).chain(LOCAL_NAMES) {
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if ServerName::try_from(name).is_err() {
            return Err(IssueError::Name(name.to_owned()));
        }
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(CA_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_life(&mut params, CA_LIFE);
    params
}

fn leaf_params(
    common: &str,
    names: Vec<String>,
    purpose: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = named(common);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    set_life(&mut params, LEAF_LIFE);
    Ok(params)
}

fn named(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// From yesterday, for clocks that are behind.
fn set_life(params: &mut CertificateParams, life: Duration) {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let from = today.checked_sub(1.day()).unwrap_or(today);
    let month_and_day = u8::try_from(from.month()).ok().zip(u8::try_from(from.day()).ok());
    let (month, day) = month_and_day.unwrap_or((1, 1));
    params.not_before = date_time_ymd(i32::from(from.year()), month, day);
    params.not_after = params.not_before + life;
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn shelf() -> (tempfile::TempDir, Shelf) {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf(dir.path().join("tls"));
        (dir, shelf)
    }

    #[test]
    fn what_is_made_is_private_and_for_the_names_and_nothing_is_overwritten() {
        let (_dir, shelf) = shelf();
        shelf.init(&["db.example".to_owned(), "10.0.0.7".to_owned()]).unwrap();
        for file in [shelf.ca(), shelf.ca_key(), shelf.server(), shelf.server_key()] {
            assert_eq!(
                fs::metadata(&file).unwrap().permissions().mode() & 0o777,
                0o600,
                "{}",
                file.display()
            );
        }
        let names = read_certificate(&shelf.server()).unwrap().names;
        assert_eq!(names, ["db.example", "10.0.0.7", "localhost", "127.0.0.1", "::1"]);
        let before = fs::read(shelf.server()).unwrap();
        assert!(matches!(shelf.init(&["x".to_owned()]), Err(IssueError::Exists(_))));
        assert_eq!(fs::read(shelf.server()).unwrap(), before);
    }

    #[test]
    fn a_renewed_certificate_keeps_its_names_and_its_key_unless_others_are_wanted() {
        let (_dir, shelf) = shelf();
        shelf.init(&["a.example".to_owned()]).unwrap();
        let first = read_certificate(&shelf.server()).unwrap();
        let text = fs::read(shelf.server()).unwrap();
        shelf.renew(&[], false).unwrap();
        let second = read_certificate(&shelf.server()).unwrap();
        assert_eq!((second.names, second.pin), (first.names, first.pin));
        assert_ne!(fs::read(shelf.server()).unwrap(), text);
        shelf.renew(&["b.example".to_owned()], true).unwrap();
        let third = read_certificate(&shelf.server()).unwrap();
        assert_eq!(third.names[0], "b.example");
        assert_ne!(third.pin, first.pin);
    }

    #[test]
    fn a_key_that_is_not_the_cas_signs_nothing() {
        let (_dir, shelf) = shelf();
        shelf.init(&[]).unwrap();
        fs::copy(shelf.server_key(), shelf.ca_key()).unwrap();
        assert!(matches!(shelf.renew(&[], false), Err(IssueError::OtherCa(_))));
        assert!(matches!(shelf.client("laptop"), Err(IssueError::OtherCa(_))));
    }

    #[test]
    fn what_can_be_no_name_is_refused() {
        let (_dir, shelf) = shelf();
        for name in ["", "a b", "a/b"] {
            assert!(matches!(shelf.init(&[name.to_owned()]), Err(IssueError::Name(_))), "{name}");
        }
        shelf.init(&[]).unwrap();
        for name in ["", "../x", "ca", "server"] {
            assert!(matches!(shelf.client(name), Err(IssueError::Name(_))), "{name}");
        }
    }
}
