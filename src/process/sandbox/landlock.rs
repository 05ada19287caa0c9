//! Landlock: the kernel holds a process to what it was granted. It knows grants alone, below whole directories; so what
//! is hidden is what is left out of a list of all that is not.
//!
//! Names of files can be listed everywhere, since a right to list would be one for the whole directory. Their contents
//! can't be read.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, PathFdError,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
    path_beneath_rules,
};

use super::View;

/// The rights that we know of. A kernel that knows fewer enforces those; what it lacks is in docs/security.md.
const KNOWN: ABI = ABI::V7;
/// Without the right to cut off files (ABI 3) what is read-only could be emptied, so older kernels are not enough.
const NEEDED: ABI = ABI::V3;
/// Devices that every program may use, since nothing is behind them.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Looked at one by one, never as a whole.
const DEVICES_DIRECTORY: &str = "/dev";
/// Entries of directories that are listed because something in them is hidden. Beyond it nothing more is granted.
const GRANTS_MAX: usize = 20_000;

/// The rules can't be made.
#[derive(Debug, thiserror::Error)]
pub(in crate::process) enum RulesError {
    /// The kernel refuses them.
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
    /// The root can't be opened.
    #[error(transparent)]
    Path(#[from] PathFdError),
}

/// Whether the kernel can do what we need.
pub(super) fn probe() -> Result<(), String> {
    let needed = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .and_then(Ruleset::create);
    match needed {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the kernel has no Landlock of at least ABI 3: {error}")),
    }
}

/// The rules of a view, ready to be put in force by the process that they are for. `temporary` is a directory of its own.
pub(in crate::process) fn rules(view: &View, temporary: Option<&Path>) -> Result<RulesetCreated, RulesError> {
    let root = PathFd::new("/")?;
    let mut ruleset =
        Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?.scope(Scope::from_all(KNOWN))?;
    if !view.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(KNOWN))?;
    }
    let mut not_read = [view.hidden.clone(), view.private.clone()].concat();
    not_read.push(PathBuf::from(DEVICES_DIRECTORY));
    let readable = beside(&[PathBuf::from("/")], &not_read);
    let shown = beside(&view.shown, &view.hidden);
    let writable = beside(&view.writable, &view.hidden);
    ruleset
        .create()?
        .add_rule(PathBeneath::new(root, AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(KNOWN)))?
        .add_rules(path_beneath_rules(shown, AccessFs::from_read(KNOWN)))?
        .add_rules(path_beneath_rules(writable, AccessFs::from_all(KNOWN)))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::from_file(KNOWN)))?
        .add_rules(path_beneath_rules(temporary, AccessFs::from_all(KNOWN)))
        .map_err(RulesError::from)
}

/// All that is in `roots`, as few paths as possible, but nothing of `left_out`. Symbolic links are no part of it: what
/// they lead to is, where it is itself.
fn beside(roots: &[PathBuf], left_out: &[PathBuf]) -> Vec<PathBuf> {
    let mut granted = Vec::new();
    let mut open: Vec<PathBuf> = roots.to_vec();
    while let Some(path) = open.pop() {
        if granted.len() + open.len() > GRANTS_MAX {
            break;
        }
        if left_out.iter().any(|left| path.starts_with(left)) {
            continue;
        }
        if !left_out.iter().any(|left| left.starts_with(&path)) {
            granted.push(path);
            continue;
        }
        let Ok(entries) = std::fs::read_dir(&path) else { continue };
        for entry in entries.filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                open.push(entry.path());
            }
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_no_part_of_what_is_granted_and_all_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for path in ["a/b", "a/secret/x", "c/d"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a/secret"), root.join("a/link")).unwrap();
        let mut granted = beside(std::slice::from_ref(&root), &[root.join("a/secret")]);
        granted.sort();
        assert_eq!(granted, [root.join("a/b"), root.join("c")]);
        assert_eq!(beside(std::slice::from_ref(&root), &[]), [root.join("")]);
        assert_eq!(beside(&[root.join("c")], &[root.join("a")]), [root.join("c")]);
    }
}
