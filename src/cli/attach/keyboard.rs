//! The terminal's keys, one by one: raw while this lives, put back when it is dropped, on a panic too.

use std::io;
use std::os::fd::AsFd as _;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::shutdown::Scope;

/// Reads of the keyboard that wait; beyond them keys wait in the terminal.
const READS_MAX: usize = 64;

/// Bytes of one read.
const READ_BYTES: usize = 4096;

/// How soon the reading thread sees that it is not wanted any more.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The keyboard of the terminal on stdin.
pub(in super::super) struct Keyboard {
    before: Termios,
    keys: mpsc::Receiver<Vec<u8>>,
    over: CancellationToken,
}

impl Keyboard {
    /// Takes the terminal: keys come at once, and Ctrl-C is a key.
    pub(in super::super) fn take() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN);
        raw.input_modes.remove(InputModes::IXON | InputModes::ICRNL);
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        let (sender, keys) = mpsc::channel(READS_MAX);
        let over = CancellationToken::new();
        let until = over.clone();
        Scope::new().spawn_blocking(move || read(&sender, &until));
        Ok(Self { before, keys, over })
    }

    /// What was typed next; `None`: the terminal is gone. Cancel safe.
    pub(in super::super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.keys.recv().await
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.over.cancel();
        // A terminal that is gone needs no mending.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

fn read(keys: &mpsc::Sender<Vec<u8>>, over: &CancellationToken) {
    let stdin = io::stdin();
    let mut bytes = [0; READ_BYTES];
    while !over.is_cancelled() {
        let mut ready = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        match poll(&mut ready, Some(&LOOK_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if keys.blocking_send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        }
    }
}
