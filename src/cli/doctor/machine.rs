//! What the machine offers: sandboxes, limits, a clock.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use tokio::process::Command;
use tokio::time::timeout;

use super::super::human;
use super::Check;
use crate::clock::now_ms;
use crate::config::Config;

/// A sandbox is built within this, or it is stuck.
const SANDBOX_MAX: Duration = Duration::from_secs(5);

/// The beginning of 2026 in epoch milliseconds: no dshd ran before.
const BORN_MS: u64 = 1_767_225_600_000;

/// Clocks of file systems may differ by this.
const AHEAD_MAX_MS: u64 = 60_000;

/// Descriptors beside those of clients, sessions and children.
const OTHER_FILES: u64 = 64;

/// What tools could be confined by.
pub(super) async fn sandbox() -> Vec<Check> {
    let bwrap = match try_bwrap().await {
        Ok(version) => Check::ok("bwrap", version),
        Err((why, help)) => Check::warn("bwrap", format!("not usable: {why}"), help),
    };
    vec![bwrap, landlock(), seccomp()]
}

/// Builds a sandbox as tools would get it, around a program that does nothing.
async fn try_bwrap() -> Result<String, (String, String)> {
    let args = ["--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc"];
    let mut command = Command::new("bwrap");
    command.args(args).args(["--dev", "/dev", "--die-with-parent", "true"]);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(SANDBOX_MAX, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err((error.to_string(), "install bubblewrap".to_owned())),
        Err(_) => return Err(("it is stuck".to_owned(), "try it: bwrap --ro-bind / / true".to_owned())),
    };
    if output.status.success() {
        return Ok("builds sandboxes".to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let help = if is_off("/proc/sys/kernel/unprivileged_userns_clone") {
        "sysctl kernel.unprivileged_userns_clone=1"
    } else if is_on("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") {
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap"
    } else if is_off("/proc/sys/user/max_user_namespaces") {
        "sysctl user.max_user_namespaces=10000"
    } else {
        "in a container allow user namespaces; else Landlock is used"
    };
    Err((said, help.to_owned()))
}

fn is_off(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

fn is_on(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

fn landlock() -> Check {
    const NAME: &str = "landlock";
    match fs::read_to_string("/sys/kernel/security/lsm") {
        Ok(modules) if modules.trim().split(',').any(|module| module == "landlock") => {
            Check::ok(NAME, "the kernel has it switched on")
        }
        Ok(_) => Check::warn(
            NAME,
            "the kernel has it not switched on",
            "add landlock to lsm= on the kernel's command line",
        ),
        Err(error) => {
            let text = format!("cannot be told: /sys/kernel/security/lsm: {error}");
            Check::warn(NAME, text, "mount -t securityfs securityfs /sys/kernel/security")
        }
    }
}

fn seccomp() -> Check {
    const NAME: &str = "seccomp";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.starts_with("Seccomp:")) {
        Check::ok(NAME, "the kernel has it")
    } else {
        Check::warn(NAME, "the kernel lacks it, so Landlock alone can't keep the network off", "use bwrap")
    }
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
