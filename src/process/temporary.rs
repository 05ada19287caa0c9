//! Directories for the temporary files of programs that can't be given a `/tmp` of their own: one each, gone with it.
//!
//! The supervisor makes and removes it. What is killed with its supervisor can't, so the daemon does: when it kills, at its
//! end, and after a crash at the next start.

use std::path::PathBuf;

use super::mark;

/// A new one's path.
pub(super) fn fresh() -> PathBuf {
    let name = format!("{}{}", prefix(mark::this_process()), uuid::Uuid::new_v4().simple());
    std::env::temp_dir().join(name)
}

/// Removes those of programs that a daemon started. Blocks on the disk.
pub(super) fn remove_all_of(process: u64) {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    let prefix = prefix(process);
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            // What is not ours can't be removed, and need not be.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn prefix(process: u64) -> String {
    format!("dshd-tmp-{process:05x}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_one_daemon_are_removed_and_those_of_others_are_not() {
        let (own, other) = (fresh(), std::env::temp_dir().join(format!("{}x", prefix(0xf_ffff_ffff))));
        for directory in [&own, &other] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("file"), "x").unwrap();
        }
        remove_all_of(mark::this_process());
        assert!(!own.exists() && other.exists());
        std::fs::remove_dir_all(other).unwrap();
    }
}
