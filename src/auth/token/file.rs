//! `tokens.toml`: a table a token, with scope, SHA-256 and times. What is not exactly that is refused, since a
//! half-understood token is a hole.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use jiff::Timestamp;
use toml_edit::{DocumentMut, Item, Table, TableLike, value};

use super::super::Scope;
use super::{Hash, Token, TokenError, hash, valid_name};
use crate::config::write_private;
use crate::event::PermissionMode;

/// Largest file of tokens.
const FILE_BYTES_MAX: u64 = 1 << 20;

const HEADER: &str =
    "# Tokens of TCP clients, written by `dshd token`. Secrets are not kept, only their SHA-256.\n\n";

/// Tells one version of a file from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file; none when there is no file.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, TokenError> {
        let metadata = metadata(path)?;
        Ok(metadata.map(|metadata| Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }))
    }
}

fn metadata(path: &Path) -> Result<Option<Metadata>, TokenError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn unreadable(path: &Path, error: io::Error) -> TokenError {
    TokenError::Io { doing: "read", path: path.to_path_buf(), error }
}

fn malformed(path: &Path, reason: impl Into<String>) -> TokenError {
    TokenError::Malformed { path: path.to_path_buf(), reason: reason.into() }
}

/// Reads a file of tokens, by name; one that is not there holds none.
pub(super) fn read(path: &Path) -> Result<Vec<Token>, TokenError> {
    let Some(metadata) = metadata(path)? else { return Ok(Vec::new()) };
    if metadata.mode() & 0o022 != 0 {
        let reason = format!("others can write it (mode {:04o}); chmod 600 it", metadata.mode() & 0o7777);
        return Err(malformed(path, reason));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(malformed(path, format!("{} bytes are too many", metadata.len())));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    parse(&text).map_err(|reason| malformed(path, reason))
}

fn parse(text: &str) -> Result<Vec<Token>, String> {
    let document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| format!("not TOML: {}", error.message()))?;
    if let Some((other, _)) = document.iter().find(|(name, _)| *name != "tokens") {
        return Err(format!("unknown key `{other}`"));
    }
    let Some(tables) = document.get("tokens") else { return Ok(Vec::new()) };
    let tables = tables.as_table_like().ok_or("`tokens` is no table")?;
    let mut tokens = Vec::new();
    for (name, item) in tables.iter() {
        let table = item.as_table_like().ok_or_else(|| format!("token {name} is no table"))?;
        tokens.push(token(name, table).map_err(|reason| format!("token {name}: {reason}"))?);
    }
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tokens)
}

fn token(name: &str, table: &dyn TableLike) -> Result<Token, String> {
    const KEYS: [&str; 5] = ["scope", "mode_max", "sha256", "created_at", "expires_at"];
    if !valid_name(name) {
        return Err("no name of a token".to_owned());
    }
    if let Some((other, _)) = table.iter().find(|(key, _)| !KEYS.contains(key)) {
        return Err(format!("unknown key `{other}`"));
    }
    let text = |key: &str| table.get(key).map(|item| item.as_str().ok_or(format!("`{key}` is no text")));
    let needed = |key: &str| text(key).unwrap_or_else(|| Err(format!("`{key}` is missing")));
    let time = |text: &str| text.parse::<Timestamp>().map_err(|error| format!("no time: {error}"));
    let scope = needed("scope")?;
    let mode = |name: &str| {
        PermissionMode::named(name)
            .ok_or_else(|| format!("`mode_max` is read-only, workspace-write or full-access, not \"{name}\""))
    };
    Ok(Token {
        name: name.to_owned(),
        scope: Scope::named(scope)
            .ok_or_else(|| format!("`scope` is observe or control, not \"{scope}\""))?,
        mode_max: text("mode_max").transpose()?.map(mode).transpose()?,
        hash: digest(needed("sha256")?)?,
        created_at: time(needed("created_at")?)?,
        expires_at: text("expires_at").transpose()?.map(time).transpose()?,
    })
}

fn digest(hex: &str) -> Result<Hash, String> {
    let mut digest = Hash::default();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let pairs = hex.as_bytes().chunks_exact(2);
    if hex.len() != 2 * digest.len() || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("`sha256` has not 64 hexadecimal digits".to_owned());
    }
    for (slot, pair) in digest.iter_mut().zip(pairs) {
        *slot = byte(pair).ok_or("`sha256` has not 64 hexadecimal digits")?;
    }
    if digest == hash("") {
        return Err("`sha256` is that of an empty secret".to_owned());
    }
    Ok(digest)
}

/// Replaces the file.
pub(super) fn write(path: &Path, tokens: &[Token]) -> Result<(), TokenError> {
    write_private(path, &render(tokens)).map_err(|error| TokenError::Io {
        doing: "write",
        path: path.to_path_buf(),
        error,
    })
}

fn render(tokens: &[Token]) -> String {
    let mut tables = Table::new();
    tables.set_implicit(true);
    for token in tokens {
        let mut table = Table::new();
        let hex = token.hash.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        table.insert("scope", value(token.scope.as_str()));
        table.insert("sha256", value(hex));
        table.insert("created_at", value(token.created_at.to_string()));
        if let Some(mode) = token.mode_max {
            table.insert("mode_max", value(mode.as_str()));
        }
        if let Some(end) = token.expires_at {
            table.insert("expires_at", value(end.to_string()));
        }
        tables.insert(&token.name, Item::Table(table));
    }
    let mut document = DocumentMut::new();
    document.insert("tokens", Item::Table(tables));
    format!("{HEADER}{document}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let reason = parse(text).expect_err("the file is wrong");
        assert!(reason.contains(expected), "{reason}");
    }

    fn hex(byte: &str) -> String {
        byte.repeat(32)
    }

    #[test]
    fn what_was_written_is_read_back() {
        let now = Timestamp::now();
        let token = |name: &str, end| Token {
            name: name.to_owned(),
            scope: Scope::Observe,
            mode_max: Some(PermissionMode::ReadOnly),
            hash: hash(name),
            created_at: now,
            expires_at: end,
        };
        let tokens = [token("a.b", None), token("c", Some(now))];
        assert_eq!(parse(&render(&tokens)).unwrap(), tokens);
        assert_eq!(parse(&render(&[])).unwrap(), []);
    }

    #[test]
    fn what_is_no_token_is_refused_with_its_name() {
        let whole = |sha: &str, more: &str| {
            format!(
                "[tokens.a]\nscope = \"control\"\nsha256 = \"{sha}\"\ncreated_at = \"2026-01-01T00:00:00Z\"\n{more}"
            )
        };
        assert_eq!(parse(&whole(&hex("ab"), "")).unwrap().len(), 1);
        refused(&whole("", ""), "token a: `sha256` has not 64");
        refused(&whole(&hex("zz"), ""), "token a: `sha256` has not 64");
        let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        refused(&whole(of_nothing, ""), "that of an empty secret");
        refused(&whole(&hex("ab"), "secret = \"x\"\n"), "token a: unknown key `secret`");
        refused(&whole(&hex("ab"), "expires_at = \"soon\"\n"), "token a: no time");
        refused(&whole(&hex("ab"), "mode_max = \"root\"\n"), "token a: `mode_max` is read-only");
        refused("[tokens.a]\nscope = \"root\"\n", "not \"root\"");
        refused("[tokens.a]\nscope = \"control\"\n", "`sha256` is missing");
        refused("token = 1\n", "unknown key `token`");
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("others can write it"));
    }
}
