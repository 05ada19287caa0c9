//! `dshd attach`: a live view of a session that others can share. It reconnects by itself.

mod canvas;
mod choose;
mod editor;
pub(super) mod keyboard;
mod live;
mod piped;

use std::io::IsTerminal as _;
use std::sync::Arc;

use clap::Args;
use serde_json::value::RawValue;

use super::reach::{self, Reached, Start};
use super::{Failure, Globals, exit, refusal};
use crate::client::session::{Dial, DialError, From, Options, Session, SessionError};
use crate::config::Loaded;
use crate::event::{Epoch, PermissionMode, Seq, SessionId};
use crate::protocol::{
    Completion, CreateParams, CreateResult, InitializeParams, LastSeq, ListedSession, Method, PositiveInt,
    ReadParams, ReadResult,
};

/// Arguments of `dshd attach`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_long_help = "EXAMPLES:
  dshd attach
  dshd attach 3f9c --since all
  dshd attach 3f9c --json | jq -c .event.type")]
pub struct AttachArgs {
    /// The session, or the beginning of its id; else the one that runs in this directory
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// The last session of this directory
    #[arg(long = "continue", short = 'c', conflicts_with = "id")]
    pub last: bool,
    /// Only watch
    #[arg(long)]
    pub read_only: bool,
    /// Show from after this seq, or all; else about a screenful
    #[arg(long, value_name = "SEQ|all")]
    pub since: Option<String>,
    /// Make the session when there is none of this id
    #[arg(long, requires = "id")]
    pub create: bool,
    /// Keys that leave: one as ctrl-q, or text
    #[arg(long, value_name = "KEYS", default_value = "~.")]
    pub detach_keys: String,
    /// Never start a daemon [env: DSHD_AUTOSTART=0] [config: client.autostart]
    #[arg(long)]
    pub no_autostart: bool,
}

/// Events that are about a screenful.
const RECENT_EVENTS: u64 = 60;

/// Events asked for at once.
const PAGE_EVENTS: PositiveInt = PositiveInt(1000);

/// What is shown before what comes, and where that begins.
struct Past {
    events: Vec<Box<RawValue>>,
    epoch: Epoch,
    last: Option<Seq>,
}

pub(super) async fn run(args: AttachArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let detach = detach_keys(&args.detach_keys)?;
    let since = since(args.since.as_deref())?;
    let on_terminal = !globals.args.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let hello = hello(globals, on_terminal && !args.read_only);
    let start = Start::allowed(args.no_autostart, globals, &loaded);
    let mut reached = reach::daemon(globals, &loaded, start, &hello).await?;
    reached.notifications.close();
    let chosen = choose::session(&reached, &args, globals, &hello).await?;
    let past = past(&reached, &chosen.session_id, since).await?;
    let from = match past.last {
        Some(seq) => From::After(past.epoch, seq),
        None => From::Now,
    };
    let options = Options::default();
    let (session, updates) =
        Session::open(dial(globals, &loaded, &hello), chosen.session_id.clone(), from, options)
            .await
            .map_err(|error| ended(&error, &chosen.session_id))?;
    reached.client.close().await;
    if !on_terminal {
        return piped::run(&session, updates, past, globals).await;
    }
    let header = header(&chosen, globals);
    live::run(session, updates, past, live::Setup { header, detach, read_only: args.read_only }).await
}

fn hello(globals: &Globals, answers: bool) -> InitializeParams {
    let cwd = globals.environment.cwd();
    let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf());
    InitializeParams {
        // A directory whose name is not UTF-8 can begin no session, and can watch any.
        cwd: cwd.into_os_string().into_string().ok(),
        completion: Some(Completion::Receipt),
        deltas: Some(true),
        client: Some(reach::ourselves()),
        approvals: Some(answers),
        ..InitializeParams::default()
    }
}

/// The way to the daemon, found anew each time. None is started again.
fn dial(globals: &Globals, loaded: &Loaded, hello: &InitializeParams) -> Dial {
    let parts = Arc::new((globals.clone(), loaded.clone(), hello.clone()));
    Dial::by(move || {
        let parts = Arc::clone(&parts);
        Box::pin(async move {
            let (globals, loaded, hello) = &*parts;
            match reach::daemon(globals, loaded, Start::Never, hello).await {
                Ok(Reached { client, notifications, .. }) => Ok((client, notifications)),
                Err(failure) if is_lasting(&failure) => Err(DialError::Never(failure.message)),
                Err(failure) => Err(DialError::Later(failure.message)),
            }
        })
    })
}

fn is_lasting(failure: &Failure) -> bool {
    matches!(failure.code, exit::PROTOCOL | exit::NOT_ALLOWED | exit::CONFIG | exit::USAGE)
}

/// What is shown of what was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Recent,
    All,
    After(u64),
}

fn since(text: Option<&str>) -> Result<Since, Failure> {
    match text {
        None => Ok(Since::Recent),
        Some("all") => Ok(Since::All),
        Some(seq) => seq.parse().map(Since::After).map_err(|_| {
            Failure::usage(format!("--since takes a seq or \"all\", not {seq:?}"))
                .with_help("dshd log ID shows seqs")
        }),
    }
}

async fn past(reached: &Reached, id: &SessionId, since: Since) -> Result<Past, Failure> {
    let read = async |since: Option<Seq>, limit| {
        let params = ReadParams { session_id: id.clone(), since: Some(LastSeq(since)), limit: Some(limit) };
        reached.call::<_, ReadResult>(Method::Read, &params).await
    };
    let first = read(None, PositiveInt(1)).await?;
    let last = first.last_seq.0.map_or(0, |seq| seq.0);
    let mut from = match since {
        Since::Recent => last.checked_sub(RECENT_EVENTS).map(Seq),
        Since::All => None,
        Since::After(seq) => Some(Seq(seq.min(last))),
    };
    let mut events = Vec::new();
    loop {
        let page = read(from, PAGE_EVENTS).await?;
        events.extend(page.events);
        match page.next_since {
            Some(next) => from = Some(next),
            None => return Ok(Past { events, epoch: page.epoch, last: page.last_seq.0 }),
        }
    }
}

fn header(session: &ListedSession, globals: &Globals) -> String {
    let mut parts = vec![
        format!("session {}", session.session_id),
        super::human::short_path(&session.cwd, &globals.environment),
    ];
    parts.extend(session.permission_mode.map(|mode| PermissionMode::from(mode).as_str().to_owned()));
    parts.extend(session.title.as_deref().map(|title| super::escape::one_line(title, 60)));
    parts.join(" · ")
}

/// `ctrl-q` is one key; other text is itself.
fn detach_keys(text: &str) -> Result<Vec<u8>, Failure> {
    let control = text.strip_prefix("ctrl-").or_else(|| text.strip_prefix('^'));
    match control.map(str::as_bytes) {
        Some([letter @ (b'a'..=b'z' | b'A'..=b'Z')]) => Ok(vec![letter.to_ascii_lowercase() - b'a' + 1]),
        Some(_) => Err(Failure::usage(format!("--detach-keys {text}: expected a letter after ctrl-"))),
        None => Ok(text.as_bytes().to_vec()),
    }
}

/// What the end of a session means for the user.
fn ended(error: &SessionError, id: &SessionId) -> Failure {
    match error {
        SessionError::Closed { cause } => Failure::new(
            exit::NO_SESSION,
            "session_closed",
            format!("session {id} was {}", cause.replace('_', " ")),
        )
        .with_help("dshd sessions"),
        SessionError::Refused(refused) => match refused.rpc() {
            Some(rpc) if rpc.kind == "session_not_found" => {
                Failure::new(exit::NO_SESSION, "session_not_found", format!("there is no session {id}"))
            }
            _ => Failure::new(exit::REFUSED, "refused", error.to_string()),
        },
        SessionError::GaveUp { .. } | SessionError::Unreachable(_) | SessionError::Dropped => {
            Failure::new(exit::UNREACHABLE, refusal::NO_DAEMON, error.to_string()).with_help("dshd status")
        }
    }
}

/// Makes a session of this id.
async fn create(reached: &Reached, id: &SessionId) -> Result<(), Failure> {
    let params = CreateParams { session_id: Some(id.clone()), ..CreateParams::default() };
    reached.call::<_, CreateResult>(Method::Create, &params).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_leave_are_one_control_key_or_text() {
        assert_eq!(detach_keys("~.").unwrap(), b"~.");
        assert_eq!(detach_keys("ctrl-q").unwrap(), [0x11]);
        assert_eq!(detach_keys("^Q").unwrap(), [0x11]);
        assert!(detach_keys("ctrl-1").is_err());
    }

    #[test]
    fn since_is_a_seq_or_all() {
        assert_eq!(since(Some("all")).unwrap(), Since::All);
        assert_eq!(since(Some("12")).unwrap(), Since::After(12));
        assert!(since(Some("yesterday")).is_err());
    }
}
