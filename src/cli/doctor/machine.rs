//! What the machine offers: sandboxes, limits, a clock.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use tokio::time::timeout;

use super::super::human;
use super::Check;
use crate::clock::now_ms;
use crate::config::{Config, SandboxSetting};
use crate::process::sandbox::{self, Backend};
use crate::process::supervise;

/// A sandbox is tried within this, or it is stuck.
const SANDBOX_MAX: Duration = Duration::from_secs(15);

/// The beginning of 2026 in epoch milliseconds: no dshd ran before.
const BORN_MS: u64 = 1_767_225_600_000;

/// Clocks of file systems may differ by this.
const AHEAD_MAX_MS: u64 = 60_000;

/// Descriptors beside those of clients, sessions and children.
const OTHER_FILES: u64 = 64;

/// What confines commands here, and what else could: found out as the daemon finds it out.
pub(super) async fn sandbox(config: &Config) -> Vec<Check> {
    supervise::enable();
    let mut checks = Vec::new();
    for (name, setting) in [("bwrap", SandboxSetting::Bwrap), ("landlock", SandboxSetting::Landlock)] {
        checks.push(match usable(config, setting).await {
            Ok(_) => Check::ok(name, "holds commands"),
            Err(why) => Check::warn(name, why, if name == "bwrap" { bwrap_help() } else { LANDLOCK_HELP }),
        });
    }
    let used = if config.tools.sandbox == SandboxSetting::Off {
        let help = "set tools.sandbox = \"auto\", unless the machine is a sandbox itself";
        Check::warn("sandbox", "off: commands do what the daemon's user may", help)
    } else {
        match usable(config, config.tools.sandbox).await {
            Ok(backend) => Check::ok("sandbox", format!("commands are held by {}", backend.name())),
            Err(why) => Check::fail("sandbox", format!("commands don't run: {why}"), bwrap_help()),
        }
    };
    checks.push(used);
    checks
}

async fn usable(config: &Config, setting: SandboxSetting) -> Result<Backend, String> {
    let mut config = config.clone();
    config.tools.sandbox = setting;
    let probing = tokio::task::spawn_blocking(move || sandbox::available(&config));
    match timeout(SANDBOX_MAX, probing).await {
        Ok(Ok(probed)) => probed.map_err(|why| why.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it is stuck".to_owned()),
    }
}

const LANDLOCK_HELP: &str =
    "a kernel from 6.2 on with landlock in lsm= on its command line; bwrap is as good";

fn bwrap_help() -> &'static str {
    if is_off("/proc/sys/kernel/unprivileged_userns_clone") {
        "sysctl kernel.unprivileged_userns_clone=1"
    } else if is_on("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") {
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap"
    } else if is_off("/proc/sys/user/max_user_namespaces") {
        "sysctl user.max_user_namespaces=10000"
    } else {
        "install bubblewrap, and in a container allow user namespaces"
    }
}

fn is_off(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

fn is_on(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// Whether there are descriptors for all that `[limits]` lets in.
pub(super) fn limits(config: &Config) -> Check {
    const NAME: &str = "limits";
    let limits = &config.limits;
    // A log and its lease; three pipes and a pidfd.
    let needed = limits.connections as u64
        + 2 * limits.loaded_sessions as u64
        + 4 * limits.children as u64
        + OTHER_FILES;
    // No limit at all is one that is large enough.
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let text = format!("{hard} open files, [limits] may need {needed}");
    if hard == u64::MAX {
        return Check::ok(NAME, "any number of open files");
    }
    if hard >= needed {
        return Check::ok(NAME, text);
    }
    let help = format!("ulimit -Hn {needed} (LimitNOFILE={needed} in a unit), or lower limits.connections");
    Check::warn(NAME, text, help)
}

/// Whether it goes, and has not gone back since the daemon last wrote.
pub(super) fn clock(data: Option<&Path>) -> Check {
    clock_at(now_ms(), data.and_then(newest_ms))
}

fn clock_at(now: u64, written: Option<u64>) -> Check {
    const NAME: &str = "clock";
    let help = "timedatectl set-ntp true";
    if now < BORN_MS {
        return Check::fail(NAME, format!("it says {}: certificates won't be valid", human::iso(now)), help);
    }
    match written {
        Some(written) if written > now + AHEAD_MAX_MS => {
            let text = format!("it says {}, and files are of {}", human::iso(now), human::iso(written));
            Check::warn(NAME, text, help)
        }
        Some(_) | None => Check::ok(NAME, human::iso(now)),
    }
}

/// When the daemon last wrote something.
fn newest_ms(data: &Path) -> Option<u64> {
    let logs = fs::read_dir(data.join("log")).ok().into_iter().flatten().filter_map(Result::ok);
    let files = logs.map(|entry| entry.path()).chain(["daemon.json", "LOCK"].map(|name| data.join(name)));
    let times =
        files.filter_map(|path| fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    times.max().and_then(|time| u64::try_from(time.as_millis()).ok())
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn a_clock_that_stands_at_the_beginning_or_has_gone_back_is_told() {
        let now = BORN_MS + 1_000_000;
        assert_eq!(clock_at(0, None).status, Grade::Fail);
        assert_eq!(clock_at(now, None).status, Grade::Ok);
        assert_eq!(clock_at(now, Some(now)).status, Grade::Ok);
        assert_eq!(clock_at(now, Some(now + AHEAD_MAX_MS + 1)).status, Grade::Warn);
    }

    #[test]
    fn more_connections_than_descriptors_are_told() {
        let mut config = Config::default();
        config.limits.connections = 1;
        assert_eq!(limits(&config).status, Grade::Ok);
        config.limits.connections = 1 << 40;
        let check = limits(&config);
        assert!(check.status == Grade::Warn || check.text.starts_with("any number"), "{check:?}");
    }
}
