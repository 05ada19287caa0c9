//! `dshd token`: the tokens of TCP clients. Works while a daemon runs, which follows the file.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;

use super::{Failure, Globals, exit, output};
use crate::auth::Scope;
use crate::auth::token::{NewToken, Token, TokenBook, TokenError};
use crate::event::PermissionMode;
use crate::protocol::Mode;
use crate::telemetry;

/// Arguments of `dshd token`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd token create laptop > ~/.config/dshd/laptop.token
  dshd token create grafana --scope observe --expires 90d
  dshd token create ci --mode-max read-only > ci.token
  dshd token revoke laptop")]
pub struct TokenArgs {
    /// What to do
    #[command(subcommand)]
    pub action: TokenAction,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Make a token and print its secret, once
    Create {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// What it may do
        #[arg(long, value_enum, default_value_t, value_name = "SCOPE")]
        scope: ScopeName,
        /// The highest permission mode that it may ask for; without it as the address allows
        #[arg(long, value_enum, value_name = "MODE")]
        mode_max: Option<super::prompt::PermissionMode>,
        /// It ends after so long, as 90d; without it never
        #[arg(long, value_name = "DUR", value_parser = crate::config::duration::parse)]
        expires: Option<Duration>,
    },
    /// List tokens; secrets are not kept
    List {
        /// Print no header
        #[arg(long)]
        no_header: bool,
    },
    /// Remove a token: it is refused from then on, and its connections are closed
    Revoke {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// The values of `--scope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ScopeName {
    /// Everything.
    #[default]
    Control,
    /// Reading.
    Observe,
}

impl From<ScopeName> for Scope {
    fn from(name: ScopeName) -> Self {
        match name {
            ScopeName::Control => Self::Control,
            ScopeName::Observe => Self::Observe,
        }
    }
}

pub(super) async fn run(args: TokenArgs, globals: &Globals) -> Result<u8, Failure> {
    let book = TokenBook::new(&globals.load()?.paths.tokens);
    match args.action {
        TokenAction::Create { name, scope, mode_max, expires } => {
            let mode_max = mode_max.map(|mode| Mode::from(mode).into());
            let new = NewToken { name: &name, scope: scope.into(), mode_max, life: expires };
            create(&book, new, globals).await
        }
        TokenAction::List { no_header } => list(&book, no_header, globals),
        TokenAction::Revoke { name } => revoke(&book, &name, globals).await,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreatedDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    token: TokenDocument<'a>,
    secret: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenDocument<'a> {
    name: &'a str,
    scope: Scope,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode_max: Option<Mode>,
    created_at: String,
    expires_at: Option<String>,
    expired: bool,
}

impl<'a> TokenDocument<'a> {
    fn new(token: &'a Token, now: Timestamp) -> Self {
        Self {
            name: &token.name,
            scope: token.scope,
            mode_max: token.mode_max.map(Mode::from),
            created_at: iso(token.created_at),
            expires_at: token.expires_at.map(iso),
            expired: token.expired(now),
        }
    }
}

/// ISO 8601 in UTC with milliseconds.
fn iso(time: Timestamp) -> String {
    format!("{time:.3}")
}

async fn create(book: &TokenBook, new: NewToken<'_>, globals: &Globals) -> Result<u8, Failure> {
    let NewToken { name, scope, life, .. } = new;
    if life.is_some_and(|life| life.is_zero()) {
        return Err(Failure::usage("a token that ends at once is of no use").with_help("--expires 90d"));
    }
    let now = Timestamp::now();
    let (token, secret) = book.create(new, now).await?;
    if globals.args.json {
        let schema = "dshd.tokenCreated/1";
        let token = TokenDocument::new(&token, now);
        output::print_json(&CreatedDocument { schema, token, secret: &secret })?;
    } else {
        output::print(&format!("{}\n", *secret))?;
    }
    if !globals.args.quiet {
        let end =
            token.expires_at.map_or_else(|| "never ends".to_owned(), |end| format!("ends {}", iso(end)));
        let mode = token.mode_max.map_or_else(String::new, |mode| format!(", up to {}", mode.as_str()));
        telemetry::say(&format!("token {name}: scope {scope}{mode}, {end}; its secret is kept nowhere else"));
    }
    if std::io::stdout().is_terminal() {
        telemetry::say(&format!(
            "warning: the secret stays on this screen; next time: dshd token create {name} > FILE"
        ));
    }
    Ok(exit::OK)
}

#[derive(Serialize)]
struct ListDocument<'a> {
    schema: &'static str,
    tokens: Vec<TokenDocument<'a>>,
}

fn list(book: &TokenBook, no_header: bool, globals: &Globals) -> Result<u8, Failure> {
    let (tokens, now) = (book.list()?, Timestamp::now());
    let tokens: Vec<TokenDocument<'_>> = tokens.iter().map(|token| TokenDocument::new(token, now)).collect();
    if globals.args.json {
        output::print_json(&ListDocument { schema: "dshd.tokens/1", tokens })?;
    } else {
        output::print(&table(&tokens, no_header))?;
        if tokens.is_empty() && !globals.args.quiet {
            telemetry::say("no tokens; make one: dshd token create NAME");
        }
    }
    Ok(exit::OK)
}

fn table(tokens: &[TokenDocument<'_>], no_header: bool) -> String {
    let width = tokens.iter().map(|token| token.name.len()).max().unwrap_or(0).max(4);
    let mut text = String::new();
    // Writing to a text cannot fail.
    if !no_header && !tokens.is_empty() {
        let _ = writeln!(text, "{:width$}  {:7}  {:15}  {:24}  EXPIRES", "NAME", "SCOPE", "UP TO", "CREATED");
    }
    for token in tokens {
        let end = match &token.expires_at {
            None => "never".to_owned(),
            Some(end) if token.expired => format!("{end} (expired)"),
            Some(end) => end.clone(),
        };
        let scope = token.scope.as_str();
        let mode = token.mode_max.map_or("-", |mode| PermissionMode::from(mode).as_str());
        let _ = writeln!(text, "{:width$}  {scope:7}  {mode:15}  {:24}  {end}", token.name, token.created_at);
    }
    text
}

#[derive(Serialize)]
struct RevokedDocument<'a> {
    schema: &'static str,
    revoked: &'a str,
}

async fn revoke(book: &TokenBook, name: &str, globals: &Globals) -> Result<u8, Failure> {
    book.revoke(name).await?;
    if globals.args.json {
        output::print_json(&RevokedDocument { schema: "dshd.tokenRevoked/1", revoked: name })?;
    } else if !globals.args.quiet {
        telemetry::say(&format!("revoked {name}; a running daemon closes its connections"));
    }
    Ok(exit::OK)
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        let message = error.to_string();
        match error {
            TokenError::Name { .. } => Self::usage(message).with_help("dshd token create laptop"),
            TokenError::Exists { name } => Self::new(exit::REFUSED, "exists", message)
                .with_help(format!("dshd token revoke {name}, then create it again")),
            TokenError::Unknown { known, .. } => {
                let failure = Self::new(exit::REFUSED, "unknown_token", message);
                if known.is_empty() {
                    return failure.with_help("there are none; dshd token create NAME");
                }
                failure.with_help(format!("there are: {}", known.join(", ")))
            }
            TokenError::Weak { .. } => Self::new(exit::CONFIG, "config", message),
            TokenError::Malformed { .. } => Self::new(exit::CONFIG, "config", message)
                .with_help("mend the file, or remove it and create anew"),
            TokenError::Held { .. } => Self::new(exit::REFUSED, "held", message).with_help("try again"),
            TokenError::Full { .. } => Self::new(exit::REFUSED, "full", message).with_help("dshd token list"),
            TokenError::Io { .. } => Self::new(exit::STORAGE, "io", message),
            TokenError::Random { .. } => Self::new(exit::REFUSED, "random", message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_listed_in_columns_and_the_expired_are_marked() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let token = |name: &str, scope, expires_at| Token {
            name: name.to_owned(),
            scope,
            mode_max: (scope == Scope::Observe).then_some(PermissionMode::ReadOnly),
            hash: [1; 32],
            created_at: now,
            expires_at,
        };
        let tokens = [token("a", Scope::Control, None), token("grafana", Scope::Observe, Some(now))];
        let documents: Vec<_> = tokens.iter().map(|token| TokenDocument::new(token, now)).collect();
        assert_eq!(
            table(&documents, false),
            "NAME     SCOPE    UP TO            CREATED                   EXPIRES\n\
             a        control  -                2026-12-01T00:00:00.000Z  never\n\
             grafana  observe  read-only        2026-12-01T00:00:00.000Z  2026-12-01T00:00:00.000Z (expired)\n"
        );
        assert!(table(&documents, true).starts_with("a "));
    }
}
