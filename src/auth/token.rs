//! Named tokens of TCP clients. `<data>/tokens.toml` holds names, scopes and SHA-256 of secrets; `dshd token` writes
//! it while a daemon runs, and the daemon follows it. Called by `connection` (authenticate) and `cli` (the rest).

mod book;
mod file;
mod held;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

pub use self::book::{NewToken, TokenBook};
use self::file::Stamp;
pub use self::held::Held;
use self::held::Holders;
use super::Scope;
use crate::event::PermissionMode;

/// What every secret begins with, so that scanners recognise a leaked one.
pub const PREFIX: &str = "dshd_";
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// Shorter texts are refused unread.
const SECRET_CHARS_MIN: usize = 32;
/// Longer texts are refused unread.
const SECRET_CHARS_MAX: usize = 512;
/// Longest name.
const NAME_CHARS_MAX: usize = 64;

/// SHA-256 of a secret.
pub(crate) type Hash = [u8; 32];

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// The highest permission mode that it may ask for; none: as its way in allows.
    pub mode_max: Option<PermissionMode>,
    /// SHA-256 of its secret.
    pub hash: Hash,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; none: never.
    pub expires_at: Option<Timestamp>,
}

impl Token {
    /// Whether it has ended.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Why a secret is not accepted. Clients are told no more than that it was not.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It is no secret of ours by its length alone.
    #[error("the token is empty, too short or too long")]
    Malformed,
    /// No token has it.
    #[error("the token is not known")]
    Unknown,
    /// The token has ended.
    #[error("the token {name} has expired")]
    Expired {
        /// Its name.
        name: String,
    },
    /// The tokens can't be read, so that nobody is admitted.
    #[error("the tokens cannot be read")]
    Unreadable(#[source] TokenError),
}

/// Why tokens can't be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file can't be read or written.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// `read`, `write` or `lock`.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The file is not what `dshd token` writes.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong, with the token's name.
        reason: String,
    },
    /// Another command holds the file too long.
    #[error("{} is held by another dshd token command", path.display())]
    Held {
        /// The lock.
        path: PathBuf,
    },
    /// A secret that could be guessed.
    #[error("the secret of {name} has {chars} characters; it needs {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX}")]
    Weak {
        /// Whose.
        name: String,
        /// Its length.
        chars: usize,
    },
    /// A name that no token can have.
    #[error("\"{name}\" is no name of a token: 1 to 64 letters, digits, `.`, `_` and `-`")]
    Name {
        /// What was given.
        name: String,
    },
    /// The name is taken.
    #[error("there is a token {name} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// No such token.
    #[error("there is no token {name}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// There are as many as a file holds.
    #[error("there are {max} tokens already; revoke some")]
    Full {
        /// How many.
        max: usize,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {reason}")]
    Random {
        /// Why.
        reason: String,
    },
}

/// The tokens as the daemon uses them: read again whenever the file has changed.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    known: Mutex<Known>,
    /// Those that are in no file.
    given: Vec<Token>,
    holders: Arc<Holders>,
}

#[derive(Debug, Default)]
struct Known {
    stamp: Option<Stamp>,
    tokens: Vec<Token>,
}

impl Tokens {
    /// The tokens of a file, which need not exist yet. Nothing is read before the first use.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), known: Mutex::default(), given: Vec::new(), holders: Arc::default() }
    }

    /// The same, and one with scope `control` whose secret is given.
    ///
    /// # Errors
    /// [`TokenError::Weak`] when the secret is empty or too short.
    pub fn with_secret(mut self, name: &str, secret: &str, now: Timestamp) -> Result<Self, TokenError> {
        if secret.len() < SECRET_CHARS_MIN || secret.len() > SECRET_CHARS_MAX {
            return Err(TokenError::Weak { name: name.to_owned(), chars: secret.len() });
        }
        self.given.push(Token {
            name: name.to_owned(),
            scope: Scope::Control,
            mode_max: None,
            hash: hash(secret),
            created_at: now,
            expires_at: None,
        });
        self.known.get_mut().unwrap_or_else(PoisonError::into_inner).tokens.clone_from(&self.given);
        Ok(self)
    }

    /// How many there are; reads the file, so that a bad one is found at start.
    ///
    /// # Errors
    /// [`TokenError::Io`] or [`TokenError::Malformed`].
    pub fn count(&self) -> Result<usize, TokenError> {
        self.with_tokens(<[Token]>::len)
    }

    /// Whom a secret belongs to. Takes as long for a wrong secret as for a right one.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn authenticate(&self, secret: &str, now: Timestamp) -> Result<Token, Refusal> {
        if secret.len() < SECRET_CHARS_MIN || secret.len() > SECRET_CHARS_MAX {
            return Err(Refusal::Malformed);
        }
        let presented = hash(secret);
        let found = self
            .with_tokens(|tokens| find(tokens, &presented).map(|index| tokens[index].clone()))
            .map_err(Refusal::Unreadable)?;
        match found {
            None => Err(Refusal::Unknown),
            Some(token) if token.expired(now) => Err(Refusal::Expired { name: token.name }),
            Some(token) => Ok(token),
        }
    }

    /// A connection has come in by a token, and ends when that does.
    pub fn hold(&self, token: Token) -> Held {
        self.holders.add(token)
    }

    /// Returns when at least one connection has come in by a token.
    pub async fn someone_holds(&self) {
        self.holders.some().await;
    }

    /// Ends the connections whose token is gone, has ended or is another now. A file that can't be read ends none: who
    /// is in was let in by a file that could, and nobody new comes in.
    pub fn end_revoked(&self, now: Timestamp) {
        let held = self.holders.tokens();
        let looked = self.with_tokens(|tokens| {
            held.into_iter().filter(|held| held.expired(now) || !tokens.contains(held)).collect::<Vec<_>>()
        });
        match looked {
            Ok(ended) => {
                self.holders.readable();
                for token in &ended {
                    self.holders.end(token, now);
                }
            }
            Err(error) => self.holders.unreadable(&error),
        }
    }

    /// Looks at the tokens of the file as it is now. One that became unreadable admits nobody.
    fn with_tokens<T>(&self, look: impl FnOnce(&[Token]) -> T) -> Result<T, TokenError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.path)?;
        if known.stamp != stamp {
            *known = Known::default();
            known.tokens = file::read(&self.path)?;
            known.tokens.extend_from_slice(&self.given);
            known.stamp = stamp;
        }
        Ok(look(&known.tokens))
    }
}

/// SHA-256 of a secret. Secrets are random and long, so that nothing slower is needed.
pub(crate) fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// The token of a hash, by comparing all of them in full.
fn find(tokens: &[Token], presented: &Hash) -> Option<usize> {
    let mut found = Choice::from(0);
    let mut index = 0_u64;
    for (at, token) in (0_u64..).zip(tokens) {
        let same = token.hash.ct_eq(presented);
        index.conditional_assign(&at, same);
        found |= same;
    }
    bool::from(found).then(|| usize::try_from(index).unwrap_or(usize::MAX))
}

/// A new secret.
fn new_secret() -> Result<Zeroizing<String>, TokenError> {
    let mut bytes = [0_u8; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| TokenError::Random { reason: error.to_string() })?;
    let secret = Zeroizing::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)));
    bytes.zeroize();
    Ok(secret)
}

fn valid_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    struct Place {
        _dir: tempfile::TempDir,
        path: PathBuf,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/tokens.toml");
        Place { _dir: dir, path }
    }

    async fn create(place: &Place, name: &str, scope: Scope, life: Option<Duration>) -> Zeroizing<String> {
        let book = TokenBook::new(&place.path);
        book.create(NewToken { name, scope, mode_max: None, life }, Timestamp::now()).await.unwrap().1
    }

    #[tokio::test]
    async fn a_created_token_admits_with_its_name_and_scope_and_no_other_does() {
        let place = place();
        let tokens = Tokens::new(&place.path);
        let laptop = create(&place, "laptop", Scope::Control, None).await;
        let grafana = create(&place, "grafana", Scope::Observe, None).await;
        assert!(laptop.starts_with(PREFIX) && laptop.len() == PREFIX.len() + 43, "{}", laptop.len());
        let now = Timestamp::now();
        let admitted = |secret: &str| tokens.authenticate(secret, now).unwrap();
        for (secret, name, scope) in
            [(&laptop, "laptop", Scope::Control), (&grafana, "grafana", Scope::Observe)]
        {
            let token = admitted(secret);
            assert_eq!((token.name.as_str(), token.scope), (name, scope));
        }
        let wrong = laptop.replace(&laptop[10..12], "__");
        assert!(matches!(tokens.authenticate(&wrong, now), Err(Refusal::Unknown)));
    }

    #[tokio::test]
    async fn empty_short_and_huge_secrets_are_refused_unread() {
        let place = place();
        let tokens = Tokens::new(&place.path);
        for secret in ["", "x", "dshd_short", &"x".repeat(513)] {
            assert!(matches!(tokens.authenticate(secret, Timestamp::now()), Err(Refusal::Malformed)));
        }
    }

    #[tokio::test]
    async fn a_revoked_token_is_refused_by_the_running_daemon() {
        let place = place();
        let tokens = Tokens::new(&place.path);
        let secret = create(&place, "laptop", Scope::Control, None).await;
        assert!(tokens.authenticate(&secret, Timestamp::now()).is_ok());
        TokenBook::new(&place.path).revoke("laptop").await.unwrap();
        assert!(matches!(tokens.authenticate(&secret, Timestamp::now()), Err(Refusal::Unknown)));
    }

    #[tokio::test]
    async fn who_is_in_by_a_token_is_told_when_it_is_revoked_expires_or_changes() {
        let place = place();
        let tokens = Tokens::new(&place.path);
        let now = Timestamp::now();
        let mut held = Vec::new();
        for (name, life) in [("kept", None), ("revoked", None), ("expired", Some(Duration::from_mins(1)))] {
            let secret = create(&place, name, Scope::Control, life).await;
            held.push(tokens.hold(tokens.authenticate(&secret, now).unwrap()));
        }
        let ended = |held: &[Held]| held.iter().map(|held| held.ended().is_cancelled()).collect::<Vec<_>>();
        tokens.end_revoked(now);
        assert_eq!(ended(&held), [false, false, false]);
        TokenBook::new(&place.path).revoke("revoked").await.unwrap();
        tokens.end_revoked(now);
        assert_eq!(ended(&held), [false, true, false]);
        tokens.end_revoked(now + jiff::SignedDuration::from_secs(61));
        assert_eq!(ended(&held), [false, true, true]);
        let text = fs::read_to_string(&place.path).unwrap();
        fs::write(&place.path, "not TOML").unwrap();
        tokens.end_revoked(now);
        assert_eq!(ended(&held), [false, true, true], "a file that can't be read ends nobody");
        fs::write(&place.path, text.replace("control", "observe")).unwrap();
        tokens.end_revoked(now);
        assert_eq!(ended(&held), [true, true, true]);
        drop(held);
        assert!(tokens.holders.tokens().is_empty());
    }

    #[tokio::test]
    async fn an_expired_token_is_refused_by_name() {
        let place = place();
        let secret = create(&place, "laptop", Scope::Control, Some(Duration::from_mins(1))).await;
        let tokens = Tokens::new(&place.path);
        let later = Timestamp::now() + jiff::SignedDuration::from_secs(61);
        assert!(tokens.authenticate(&secret, Timestamp::now()).is_ok());
        let refusal = tokens.authenticate(&secret, later).unwrap_err();
        assert_eq!(refusal.to_string(), "the token laptop has expired");
    }

    #[tokio::test]
    async fn secrets_are_not_in_the_file_and_only_we_can_read_it() {
        let place = place();
        let secret = create(&place, "laptop", Scope::Control, None).await;
        let text = fs::read_to_string(&place.path).unwrap();
        assert!(!text.contains(&secret[PREFIX.len()..]), "{text}");
        assert_eq!(fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, 0o600);
        let dir = place.path.parent().unwrap();
        assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[tokio::test]
    async fn a_file_that_became_unreadable_admits_nobody() {
        let place = place();
        let secret = create(&place, "laptop", Scope::Control, None).await;
        let tokens = Tokens::new(&place.path);
        assert!(tokens.authenticate(&secret, Timestamp::now()).is_ok());
        fs::write(&place.path, "nonsense").unwrap();
        assert!(matches!(tokens.authenticate(&secret, Timestamp::now()), Err(Refusal::Unreadable(_))));
        assert!(tokens.count().is_err());
    }

    #[test]
    fn no_file_is_no_tokens() {
        let place = place();
        assert_eq!(Tokens::new(&place.path).count().unwrap(), 0);
    }
}
