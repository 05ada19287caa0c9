//! `session/working-directory/get` and `/set`.

use std::path::PathBuf;
use std::sync::Arc;

use super::caller::Caller;
use super::{Outcome, Started, invalid};
use crate::protocol::{DirectoryParams, DirectoryResult, SetDirectoryParams};
use crate::rpc::RpcError;
use crate::session::Answer;

/// Asks for a session's directory; an unknown session is made in memory.
///
/// # Errors
/// None at once.
pub fn get(caller: &Arc<Caller>, params: &DirectoryParams) -> Result<Started, RpcError> {
    let new = caller.new_session()?;
    Ok(answer(caller.shared.runtime.working_directory(&params.session_id, new)))
}

/// Changes it.
///
/// # Errors
/// `invalid_params`; what the directory lacks comes later.
pub fn set(caller: &Arc<Caller>, params: SetDirectoryParams) -> Result<Started, RpcError> {
    if params.path.is_empty() || params.path.contains('\0') {
        return Err(invalid("path", "expected a path, absolute or relative to the current directory"));
    }
    let new = caller.new_session()?;
    let path = PathBuf::from(params.path);
    Ok(answer(caller.shared.runtime.set_working_directory(&params.session_id, new, path)))
}

fn answer(directory: Answer<PathBuf>) -> Started {
    Started::later(async move {
        let cwd = directory.await?.to_string_lossy().into_owned();
        Outcome::of(&DirectoryResult { cwd })
    })
}
