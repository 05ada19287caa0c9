//! `dshd log` without a daemon.

use serde_json::value::RawValue;

use super::super::{Failure, Globals, exit, offline};
use super::select::Selection;
use super::{LogArgs, Output};
use crate::config::Loaded;
use crate::event::Seq;
use crate::store::{PageLimit, SessionStore};

/// What is read at once.
const PAGE: PageLimit = PageLimit { events: 1000, bytes: 1024 * 1024 };

/// Prints what is stored.
///
/// # Errors
/// For the user; `no_daemon` when nothing is stored here.
pub(super) async fn print(
    no_daemon: Failure,
    args: &LogArgs,
    globals: &Globals,
    loaded: &Loaded,
    selection: Selection,
) -> Result<u8, Failure> {
    let store = offline::store(no_daemon, loaded)?;
    let session = offline::find(&store, &args.id).await?;
    let mut after = selection.start().map(Seq);
    let mut output = Output::new(&session, args, globals, selection);
    loop {
        let page = store.read(&session, after, PAGE).await.map_err(|error| offline::failed(&error))?;
        for line in &page.lines {
            let event: &RawValue = serde_json::from_slice(&line.json)
                .map_err(|error| Failure::bug(format!("cannot read event {}: {error}", line.seq)))?;
            output.epoch = Some(line.epoch);
            output.take(event)?;
            after = Some(line.seq);
        }
        if !page.more || output.is_done {
            break;
        }
    }
    output.flush_last()?;
    Ok(exit::OK)
}
