//! A program that works for us over its pipes until we end it: leader of a process group of its own, which ends with it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};

use super::family::{self, KILL_WAIT};
use super::group::Group;
use super::mark::{self, Mark, Of};
use super::run::End;
use super::sandbox::Confinement;
use super::start::{self, StartError, What};

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program, looked up in the PATH of `environment`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Where.
    pub directory: PathBuf,
    /// All variables that it sees.
    pub environment: Vec<(OsString, OsString)>,
    /// What holds it.
    pub confinement: Confinement,
}

/// The ways to a running program.
#[derive(Debug)]
pub struct Pipes {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it says.
    pub stdout: ChildStdout,
    /// What it says of itself.
    pub stderr: ChildStderr,
}

/// A running program. Dropped, it is killed with its group.
#[derive(Debug)]
pub struct Service {
    group: Group,
    mark: Mark,
}

impl Service {
    /// Starts it.
    ///
    /// # Errors
    /// When it could not be started or watched.
    pub async fn start(program: &Program) -> Result<(Self, Pipes), StartError> {
        let mark = Mark::new(mark::next_life(), 0, false);
        let what = What {
            program: &program.program,
            arguments: &program.arguments,
            directory: &program.directory,
            environment: &program.environment,
            confinement: &program.confinement,
        };
        let starting = start::start(what, mark, Stdio::piped()).await?;
        let (mut group, output) = starting.running().await?;
        let input = group.take_input();
        let (Some(stdin), (Some(stdout), Some(stderr))) = (input, output) else {
            let source = io::Error::other("the child has no pipes");
            return Err(StartError::Program { program: program.program.clone(), source });
        };
        Ok((Self { group, mark }, Pipes { stdin, stdout, stderr }))
    }

    /// Ends it and its group. Whoever calls this has let go of its stdin: the program gets `grace` to end by that, then
    /// as long again to end by SIGTERM, then it is killed. What has left its group is killed then, too.
    pub async fn end(self, grace: Duration) -> End {
        let by_itself = timeout(grace, self.group.program_ended()).await;
        if by_itself.is_err() {
            self.group.terminate();
            if timeout(grace, self.group.program_ended()).await.is_err() {
                self.group.kill();
            }
        }
        let end = match timeout(KILL_WAIT, self.group.end()).await {
            Ok(Ok(end)) => end,
            Ok(Err(error)) => {
                tracing::warn!(%error, "could not learn how a program ended");
                End::Stuck
            }
            Err(_) => End::Stuck,
        };
        family::kill(Of::Call(self.mark), Instant::now() + KILL_WAIT).await;
        end
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const GRACE: Duration = Duration::from_millis(200);

    async fn shell(line: &str) -> (Service, Pipes) {
        let program = Program {
            program: "bash".into(),
            arguments: vec!["-c".into(), line.into()],
            directory: "/".into(),
            environment: crate::process::allowed(std::env::vars_os(), &[]),
            confinement: Confinement::none(),
        };
        Service::start(&program).await.unwrap()
    }

    #[tokio::test]
    async fn it_is_spoken_with_and_ends_when_its_input_does() {
        let (service, mut pipes) = shell("read line; echo got $line; cat > /dev/null; exit 3").await;
        pipes.stdin.write_all(b"hello\n").await.unwrap();
        let mut said = BufReader::new(pipes.stdout).lines();
        let line = timeout(PATIENCE, said.next_line()).await.unwrap().unwrap();
        assert_eq!(line.as_deref(), Some("got hello"));
        drop(pipes.stdin);
        assert_eq!(timeout(PATIENCE, service.end(PATIENCE)).await.unwrap(), End::Exited(3));
    }

    #[tokio::test]
    async fn one_that_will_not_end_is_killed_with_its_children() {
        let (service, mut pipes) = shell("trap '' TERM; sleep 600 & echo; sleep 600; sleep 600").await;
        let mut line = [0; 1];
        timeout(PATIENCE, pipes.stdout.read_exact(&mut line)).await.unwrap().unwrap();
        drop(pipes.stdin);
        assert_eq!(timeout(PATIENCE, service.end(GRACE)).await.unwrap(), End::Signalled(9));
        // Both sleeps held this pipe.
        let mut rest = Vec::new();
        timeout(PATIENCE, pipes.stdout.read_to_end(&mut rest)).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let program = Program {
            program: "no-such-program".into(),
            arguments: Vec::new(),
            directory: "/".into(),
            environment: crate::process::allowed(std::env::vars_os(), &[]),
            confinement: Confinement::none(),
        };
        let error = Service::start(&program).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot start no-such-program");
    }
}
