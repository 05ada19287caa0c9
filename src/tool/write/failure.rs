//! Why a file was not changed, and what the model is told of it.

use std::io;
use std::path::Path;

use crate::config::ByteSize;
use crate::tool::paths::PathError;
use crate::tool::{Failed, ToolOutput, clip};

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub(in crate::tool) enum FileError {
    #[error(transparent)]
    Path(PathError),
    #[error("not found")]
    NotFound,
    #[error("{0}")]
    NotRegularFile(&'static str),
    #[error("{0}")]
    NotText(&'static str),
    #[error("{size} bytes")]
    Large { size: u64, max: ByteSize },
    #[error("not read in this session")]
    NotObserved,
    #[error("changed since it was read")]
    Changed,
    #[error("cancelled")]
    Cancelled,
    #[error(transparent)]
    Io(io::Error),
    /// The new content is in place, but it may not survive a loss of power.
    #[error("not synced: {0}")]
    NotSynced(io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            Self::NotFound
        } else {
            Self::Io(error)
        }
    }
}

impl From<rustix::io::Errno> for FileError {
    fn from(errno: rustix::io::Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl From<PathError> for FileError {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Io(error) => error.into(),
            PathError::ReadOnly | PathError::Outside { .. } | PathError::Hidden | PathError::Frozen => {
                Self::Path(error)
            }
        }
    }
}

impl FileError {
    /// The failed call's output. `path` is the file as the model named it.
    pub(in crate::tool) fn output(&self, path: &Path) -> ToolOutput {
        let shown = clip::line(&path.display().to_string());
        let (code, text) = match self {
            Self::Path(error) => {
                let why = clip::line(&error.to_string());
                (Failed::SandboxDenied, format!("may not write {shown}: {why}"))
            }
            Self::NotFound => (Failed::NotFound, format!("file not found: {shown}")),
            Self::NotRegularFile(kind) => {
                (Failed::NotRegularFile, format!("{shown} is {kind}, not a regular file"))
            }
            Self::NotText(kind) => {
                (Failed::NotText, format!("cannot change {shown}: it is not text but {kind}"))
            }
            Self::NotObserved => (
                Failed::NotObserved,
                format!("{shown} has not been read in this session; read it before you change it"),
            ),
            Self::Changed => (
                Failed::Changed,
                format!("{shown} has changed since it was last read; read it again before you change it"),
            ),
            Self::Cancelled => (Failed::Aborted, "the call was cancelled; nothing was written".to_owned()),
            Self::Large { size, max } => {
                return ToolOutput::failed_without_code(&format!(
                    "{shown} is or would become {size} bytes long, more than {max} (tools.edit_bytes); change it \
                     by a command"
                ));
            }
            Self::Io(error) => {
                return ToolOutput::failed_without_code(&format!("cannot write {shown}: {error}"));
            }
            Self::NotSynced(error) => {
                return ToolOutput::failed_without_code(&format!(
                    "{shown} has its new content, but the disk did not confirm it: {error}"
                ));
            }
        };
        ToolOutput::failed(code, &text)
    }
}
