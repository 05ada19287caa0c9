//! The units that are shipped, before the tools of the service manager that reads them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that can't read its own repository has failed, and one that is left out says so"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the units say where the program is.
const INSTALLED: &str = "/usr/bin/dshd";

/// The most exposure that a unit may have, in tenths: without and with what bwrap needs.
const EXPOSURE_MAX: &str = "20";
const EXPOSURE_BWRAP_MAX: &str = "35";

/// Copies of the units, which name the built program.
struct Units(tempfile::TempDir);

impl Units {
    fn copied() -> Self {
        let units = Self(tempfile::tempdir().unwrap());
        for name in [
            "dshd.service",
            "dshd.socket",
            "dshd-tcp.socket",
            "dshd.service.d/bwrap.conf",
            "user/dshd.service",
            "user/dshd.socket",
        ] {
            let text = fs::read_to_string(shipped(name)).unwrap();
            let copy = units.path(name);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::write(copy, text.replace(INSTALLED, env!("CARGO_BIN_EXE_dshd"))).unwrap();
        }
        units
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs systemd-analyze; none where it is not installed.
    fn analyze(&self, args: &[&str], files: &[&str]) -> Option<Output> {
        let mut command = Command::new("systemd-analyze");
        command.args(args).args(files.iter().map(|file| self.path(file)));
        match command.env("XDG_RUNTIME_DIR", self.0.path()).output() {
            Ok(output) => Some(output),
            Err(error) if std::env::var_os("DSHD_CI").is_none() => {
                eprintln!("left out: systemd-analyze can't be run: {error}");
                None
            }
            Err(error) => panic!("systemd-analyze can't be run: {error}"),
        }
    }

    fn expect_exposure_of_at_most(&self, tenths: &str) {
        let args = ["security", "--offline=true", "--no-pager", "--threshold", tenths];
        let Some(output) = self.analyze(&args, &["dshd.service"]) else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Overall exposure level"), "{output:?}");
        assert!(output.status.success(), "more than {tenths} tenths: {text}");
    }
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

#[track_caller]
fn expect_silence(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_units_of_a_machine_are_read_without_a_word() {
    let files = ["dshd.service", "dshd.socket", "dshd-tcp.socket"];
    if let Some(output) = Units::copied().analyze(&["verify"], &files) {
        expect_silence(&output);
    }
}

#[test]
fn the_units_of_a_user_are_read_without_a_word() {
    if let Some(output) =
        Units::copied().analyze(&["--user", "verify"], &["user/dshd.service", "user/dshd.socket"])
    {
        expect_silence(&output);
    }
}

#[test]
fn the_daemon_of_a_machine_is_exposed_little() {
    let units = Units::copied();
    fs::remove_dir_all(units.path("dshd.service.d")).unwrap();
    units.expect_exposure_of_at_most(EXPOSURE_MAX);
}

#[test]
fn what_bwrap_needs_exposes_it_not_much_more() {
    Units::copied().expect_exposure_of_at_most(EXPOSURE_BWRAP_MAX);
}
