//! Processes of tools, as tests see them: their numbers, whether they live, that they are gone.

use std::path::Path;

use crate::support::within;

/// Waits until a command of a tool has written its pid.
pub(crate) async fn pid_in(path: &Path) -> u32 {
    pids_in(path, 1).await[0]
}

/// Waits until commands of a tool have written so many pids, one a line.
pub(crate) async fn pids_in(path: &Path, count: usize) -> Vec<u32> {
    within("the tool's pids", async {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.ends_with('\n') && text.lines().count() >= count {
                return text.lines().map(|line| line.trim().parse().unwrap()).collect();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Whether a process lives; one that waits to be reaped does not.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Those of a process's children that wait to be reaped.
pub(crate) fn zombies_of(parent: i32) -> usize {
    let is_zombie = |stat: &str| {
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(&format!("Z {parent} ")))
    };
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let stats = numbers.filter_map(|number| std::fs::read_to_string(format!("/proc/{number}/stat")).ok());
    stats.filter(|stat| is_zombie(stat)).count()
}
