//! A pseudo terminal that a command runs on, to see what a person would.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::{Child, Command};

use super::{PATIENCE, within};

/// A command on a terminal of 80 columns.
#[derive(Debug)]
pub(crate) struct Terminal {
    child: Child,
    screen: Arc<Screen>,
    /// The side where a person types.
    keyboard: std::fs::File,
    /// Keeps the terminal there, so that its modes can be looked at when the command has ended.
    slave: OwnedFd,
    /// Ends when no process has the terminal any more.
    collector: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Screen {
    seen: Mutex<String>,
    changed: Condvar,
}

impl Terminal {
    /// Runs a command with stdin, stdout and stderr on a new terminal.
    pub(crate) fn run(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        let side = || Stdio::from(slave.try_clone().unwrap());
        let child = command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        drop(command);
        let keyboard = std::fs::File::from(master.try_clone().unwrap());
        let screen = Arc::new(Screen::default());
        let shown = Arc::clone(&screen);
        let collector = std::thread::spawn(move || shown.collect(master));
        Self { child, screen, keyboard, slave, collector }
    }

    /// Waits until a text is on the screen. It blocks no task but the test's own: the model server must be elsewhere.
    pub(crate) async fn shows(&self, part: &'static str) {
        let screen = Arc::clone(&self.screen);
        let wait = move || {
            let seen = screen.seen.lock().unwrap();
            let (seen, _) =
                screen.changed.wait_timeout_while(seen, PATIENCE, |seen| !seen.contains(part)).unwrap();
            assert!(seen.contains(part), "no {part:?} on the screen:\n{seen}");
        };
        tokio::task::spawn_blocking(wait).await.unwrap();
    }

    /// Types.
    pub(crate) fn types(&mut self, keys: &str) {
        use std::io::Write as _;
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// All that was on the screen so far.
    pub(crate) fn seen(&self) -> String {
        self.screen.seen.lock().unwrap().clone()
    }

    /// Whether keys are edited by the terminal itself and shown, as a shell wants it.
    pub(crate) fn is_cooked(&self) -> bool {
        use rustix::termios::LocalModes;
        let modes = rustix::termios::tcgetattr(&self.slave).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().and_then(|pid| i32::try_from(pid).ok()).expect("it runs")
    }

    /// Waits for the end: how it ended, and all that was on the screen.
    pub(crate) async fn end(mut self) -> (ExitStatus, String) {
        let status = within("the command's end", self.child.wait()).await.unwrap();
        assert!(self.is_cooked(), "the terminal was not put back");
        drop(self.slave);
        let collected = tokio::task::spawn_blocking(move || self.collector.join().unwrap());
        within("the terminal's end", collected).await.unwrap();
        let seen = self.screen.seen.lock().unwrap().clone();
        (status, seen)
    }
}

impl Screen {
    fn collect(&self, master: OwnedFd) {
        let mut master = std::fs::File::from(master);
        let mut bytes = [0; 4096];
        // Reading fails when the last process on the terminal has ended.
        while let Ok(read) = master.read(&mut bytes) {
            self.seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            self.changed.notify_all();
        }
    }
}
