//! Zombies that nobody else reaps: orphans of commands, which the daemon has adopted.
//!
//! Whoever started a child reaps it at once. So a zombie that is there at several looks in a row, each after a pause of
//! our own counting, is nobody's.

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio_util::sync::CancellationToken;

use super::{group, walk};

/// How often we look.
const PAUSE: Duration = Duration::from_secs(2);
/// At which look in a row a zombie is nobody's.
const LOOKS: u32 = 3;

/// Reaps adopted zombies until the end.
pub async fn reap_orphans(end: CancellationToken) {
    let mut known = HashMap::new();
    while end.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_some() {
        if !group::any_started() {
            continue;
        }
        let looked = tokio::task::spawn_blocking(move || look(&known)).await;
        known = looked.unwrap_or_default();
    }
}

/// Counts how often each zombie was seen, and reaps those that nobody else does.
fn look(known: &HashMap<Pid, u32>) -> HashMap<Pid, u32> {
    let children = walk::children().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot look for ended processes");
        Vec::new()
    });
    let mut seen = HashMap::new();
    for zombie in children.into_iter().filter(|child| child.is_zombie) {
        let looks = known.get(&zombie.pid).copied().unwrap_or(0) + 1;
        if looks < LOOKS {
            seen.insert(zombie.pid, looks);
        } else if let Err(error) =
            waitid(WaitId::Pid(zombie.pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
        {
            tracing::debug!(pid = zombie.pid.as_raw_pid(), %error, "an ended process was reaped by another");
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_reaped_at_the_third_look_and_not_before() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let mut known = HashMap::new();
        for looks in 1..LOOKS {
            // Others of this process's tests may be between.
            known = look(&known).into_iter().filter(|(found, _)| *found == pid).collect();
            assert_eq!(known, HashMap::from([(pid, looks)]));
        }
        assert!(!look(&known).contains_key(&pid));
        assert!(child.wait().is_err(), "it was reaped");
    }
}
