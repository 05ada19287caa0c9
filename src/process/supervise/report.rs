//! What a supervisor tells the daemon, over a pipe: that the program runs, or why not; then how it ended.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use tokio::net::unix::pipe::Receiver;

use crate::process::run::End;

/// One report. Each is written at once, so that it is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::process) enum Report {
    /// The program runs.
    Started,
    /// It could not be started; the system's number of the error.
    Failed(i32),
    /// It has ended.
    Ended {
        /// How.
        end: End,
        /// Whether what it started goes on.
        left: bool,
    },
}

/// No report came.
#[derive(Debug, thiserror::Error)]
pub(in crate::process) enum ReportError {
    /// The supervisor ended, or never came to life.
    #[error("the supervisor ended")]
    Silent,
    /// The pipe can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

const BYTES: usize = 6;

impl Report {
    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        let (kind, left, number) = match self {
            Self::Started => (b'S', false, 0),
            Self::Failed(error) => (b'F', false, error),
            Self::Ended { end: End::Exited(code), left } => (b'E', left, code),
            Self::Ended { end: End::Signalled(signal), left } => (b'K', left, signal),
            // A supervisor sees the end of what it reports.
            Self::Ended { end: End::Stuck, left } => (b'K', left, 0),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, u8::from(left), a, b, c, d]
    }

    fn from_bytes([kind, left, a, b, c, d]: [u8; BYTES]) -> Option<Self> {
        let (number, left) = (i32::from_le_bytes([a, b, c, d]), left != 0);
        match kind {
            b'S' => Some(Self::Started),
            b'F' => Some(Self::Failed(number)),
            b'E' => Some(Self::Ended { end: End::Exited(number), left }),
            b'K' => Some(Self::Ended { end: End::Signalled(number), left }),
            _ => None,
        }
    }
}

/// The daemon's end of the pipe.
#[derive(Debug)]
pub(in crate::process) struct Reports {
    pipe: Receiver,
    ended: OnceLock<Option<(End, bool)>>,
}

impl Reports {
    /// A pipe: its reading end, and the descriptor that the supervisor writes to.
    pub(in crate::process) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        let pipe = Receiver::from_owned_fd(reader.into())?;
        Ok((Self { pipe, ended: OnceLock::new() }, writer.into()))
    }

    /// Waits until the program runs. Cancel safe.
    ///
    /// # Errors
    /// Why it does not.
    pub(in crate::process) async fn started(&self) -> Result<Report, ReportError> {
        self.next().await
    }

    /// Waits until the program, or its supervisor, has ended. Cancel safe, and may be asked again.
    pub(in crate::process) async fn ended(&self) -> io::Result<()> {
        if self.ended.get().is_some() {
            return Ok(());
        }
        let ended = match self.next().await {
            Ok(Report::Ended { end, left }) => Some((end, left)),
            Ok(Report::Started | Report::Failed(_)) | Err(ReportError::Silent) => None,
            Err(ReportError::Io(error)) => return Err(error),
        };
        self.ended.get_or_init(|| ended);
        Ok(())
    }

    /// How it ended, and whether something is left; none when the supervisor was ended before it could tell.
    pub(in crate::process) fn how_ended(&self) -> Option<(End, bool)> {
        self.ended.get().copied().flatten()
    }

    async fn next(&self) -> Result<Report, ReportError> {
        let mut bytes = [0; BYTES];
        loop {
            self.pipe.readable().await?;
            match self.pipe.try_read(&mut bytes) {
                Ok(BYTES) => return Report::from_bytes(bytes).ok_or(ReportError::Silent),
                Ok(_) => return Err(ReportError::Silent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        for report in [
            Report::Started,
            Report::Failed(2),
            Report::Ended { end: End::Exited(255), left: true },
            Report::Ended { end: End::Signalled(9), left: false },
        ] {
            assert_eq!(Report::from_bytes(report.to_bytes()), Some(report));
        }
    }

    #[tokio::test]
    async fn reports_come_one_by_one_and_the_end_of_the_pipe_is_the_end() {
        let (reports, writer) = Reports::new().unwrap();
        let mut writer = std::fs::File::from(writer);
        let ended = Report::Ended { end: End::Exited(3), left: true };
        writer.write_all(&Report::Started.to_bytes()).unwrap();
        writer.write_all(&ended.to_bytes()).unwrap();
        drop(writer);
        assert_eq!(reports.started().await.unwrap(), Report::Started);
        reports.ended().await.unwrap();
        assert_eq!(reports.how_ended(), Some((End::Exited(3), true)));
        let (silent, writer) = Reports::new().unwrap();
        drop(writer);
        assert!(matches!(silent.started().await, Err(ReportError::Silent)));
        silent.ended().await.unwrap();
        assert_eq!(silent.how_ended(), None);
    }
}
