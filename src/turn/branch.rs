//! The git branch of a directory, read from its files: no program is started for it.

use std::fs;
use std::path::{Path, PathBuf};

use super::small_file;

/// Directories that are looked at on the way up.
pub(super) const LEVELS_MAX: usize = 64;
/// Bytes of a file of git's that are read.
const BYTES_MAX: u64 = 4096;
/// Letters of a commit that are shown.
const COMMIT_CHARS: usize = 12;

/// What is checked out there, in a sentence; `None` outside of repositories and where it can't be read.
pub(super) fn branch_text(directory: &Path) -> Option<String> {
    let head = read_text(&git_directory(directory)?.join("HEAD"))?;
    let head = head.trim();
    match head.strip_prefix("ref:") {
        Some(name) => {
            let name = name.trim();
            let name = name.strip_prefix("refs/heads/").unwrap_or(name);
            Some(format!("The git branch is {}.", one_line(name)))
        }
        None if head.is_empty() => None,
        None => {
            let commit: String = head.chars().take(COMMIT_CHARS).collect();
            Some(format!("Git has commit {} checked out and no branch.", one_line(&commit)))
        }
    }
}

/// The topmost directory of the repository that a directory is in.
pub(super) fn repository(directory: &Path) -> Option<&Path> {
    directory.ancestors().take(LEVELS_MAX).find(|level| fs::symlink_metadata(level.join(".git")).is_ok())
}

/// Where the repository's own files are: `.git`, or what the file `.git` of a worktree or submodule names.
fn git_directory(directory: &Path) -> Option<PathBuf> {
    let top = repository(directory)?;
    let entry = top.join(".git");
    if entry.is_dir() {
        return Some(entry);
    }
    let named = read_text(&entry)?;
    let named = named.trim().strip_prefix("gitdir:")?.trim();
    Some(top.join(named))
}

fn read_text(path: &Path) -> Option<String> {
    String::from_utf8(small_file::read(path, BYTES_MAX)?).ok()
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository_with(head: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join(".git")).unwrap();
        fs::create_dir_all(directory.path().join("deep/er")).unwrap();
        fs::write(directory.path().join(".git/HEAD"), head).unwrap();
        directory
    }

    #[test]
    fn a_branch_is_named_from_below_too() {
        let repository = repository_with("ref: refs/heads/feature/x\n");
        let text = branch_text(&repository.path().join("deep/er"));
        assert_eq!(text.as_deref(), Some("The git branch is feature/x."));
    }

    #[test]
    fn a_worktrees_head_is_found_where_its_file_points() {
        let main = repository_with("ref: refs/heads/main\n");
        let worktree = tempfile::tempdir().unwrap();
        let own = main.path().join(".git/worktrees/w");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("HEAD"), "ref: refs/heads/other\n").unwrap();
        fs::write(worktree.path().join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        assert_eq!(branch_text(worktree.path()).as_deref(), Some("The git branch is other."));
        let inside = main.path().join("sub");
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join(".git"), "gitdir: ../.git/worktrees/w\n").unwrap();
        assert_eq!(branch_text(&inside).as_deref(), Some("The git branch is other."));
    }

    #[test]
    fn a_commit_without_branch_is_named_as_one_and_nonsense_is_not() {
        let detached = repository_with("0123456789abcdef0123456789abcdef01234567\n");
        assert_eq!(
            branch_text(detached.path()).as_deref(),
            Some("Git has commit 0123456789ab checked out and no branch.")
        );
        assert_eq!(branch_text(repository_with("\n").path()), None);
        let broken = tempfile::tempdir().unwrap();
        fs::write(broken.path().join(".git"), "nonsense").unwrap();
        assert_eq!(branch_text(broken.path()), None);
    }
}
