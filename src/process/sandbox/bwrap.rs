//! bubblewrap: a mount, process, IPC and, without network, network namespace of the program's own.
//!
//! What it runs is our own supervisor, as the first process of the namespace: when that ends, the kernel ends all others.
//! So bubblewrap's own ways of ending with its parent are not used: they would kill a program that is asked to end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::View;

/// The program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::process) struct Bwrap(pub(in crate::process) PathBuf);

/// Namespaces, and nothing that a privileged user would keep.
const BASE: [&str; 5] = ["--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try", "--cap-drop", "ALL"];
const NO_NETWORK: &str = "--unshare-net";

/// What is done to a path. In the order of paths' depth, each covers what was done above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Empty,
    Write,
    Show,
    Freeze,
    Hide,
}

/// Makes all that a view may need once, and ends.
pub(super) fn probe_arguments() -> Vec<OsString> {
    let mut arguments = base(Path::new("/"), &View::default());
    arguments.extend(["--tmpfs", "/tmp", "--as-pid-1", "--", "/proc/self/exe", "--version"].map(Into::into));
    arguments
}

/// The arguments up to the program that it is to run in `directory`.
pub(in crate::process) fn arguments(view: &View, directory: &Path) -> Vec<OsString> {
    let mut arguments = base(directory, view);
    for (path, act) in acts(view) {
        let path = path.as_os_str();
        let bind = |arguments: &mut Vec<OsString>, how: &str, from: &std::ffi::OsStr| {
            arguments.extend([how.into(), from.into(), path.into()]);
        };
        match act {
            Act::Write => bind(&mut arguments, "--bind", path),
            // A directory that is not there yet is made, so that no program makes it.
            Act::Freeze if !Path::new(path).exists() => {
                arguments.extend(["--tmpfs".into(), path.into(), "--remount-ro".into(), path.into()]);
            }
            Act::Show | Act::Freeze => bind(&mut arguments, "--ro-bind", path),
            Act::Empty => arguments.extend(["--tmpfs".into(), path.into()]),
            Act::Hide if Path::new(path).is_dir() => {
                arguments.extend(["--tmpfs".into(), path.into(), "--remount-ro".into(), path.into()]);
            }
            Act::Hide => bind(&mut arguments, "--ro-bind", "/dev/null".as_ref()),
        }
    }
    arguments.push("--as-pid-1".into());
    arguments.push("--".into());
    arguments
}

fn base(directory: &Path, view: &View) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = BASE.map(Into::into).into();
    if !view.network {
        arguments.push(NO_NETWORK.into());
    }
    let all_writable = view.writable.iter().any(|path| path == Path::new("/"));
    let root = if all_writable { "--bind" } else { "--ro-bind" };
    arguments.extend([root, "/", "/", "--dev", "/dev", "--proc", "/proc"].map(Into::into));
    arguments.extend(["--chdir".into(), directory.into()]);
    arguments
}

/// What is to be done, outer paths first. What would happen to what is hidden, or is not there in an empty place, is left
/// out.
fn acts(view: &View) -> Vec<(&Path, Act)> {
    let lists = [
        (&view.private, Act::Empty),
        (&view.writable, Act::Write),
        (&view.shown, Act::Show),
        (&view.frozen, Act::Freeze),
        (&view.hidden, Act::Hide),
    ];
    let mut all: Vec<(&Path, Act)> = Vec::new();
    for (paths, act) in lists {
        all.extend(paths.iter().filter(|path| *path != Path::new("/")).map(|path| (path.as_path(), act)));
    }
    // What holds frozen files is a mount of its own, since what is none could be moved away with them.
    all.extend(view.frozen.iter().filter_map(|path| Some((path.parent()?, Act::Write))));
    all.sort_by_key(|(path, act)| (path.components().count(), *act));
    all.dedup();
    let mut kept: Vec<(&Path, Act)> = Vec::new();
    for (path, act) in all {
        let around = kept.iter().rfind(|(above, _)| path.starts_with(above)).map(|(_, act)| *act);
        let is_needed = match (around, act) {
            (Some(Act::Hide), _) | (Some(Act::Empty), Act::Empty | Act::Freeze | Act::Hide) => false,
            (Some(Act::Empty), Act::Write | Act::Show) => true,
            (None | Some(Act::Write | Act::Show | Act::Freeze), act) => act != Act::Show,
        };
        if is_needed {
            kept.push((path, act));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn outer_places_come_first_and_what_is_hidden_stays_so() {
        let view = View {
            hidden: paths(&["/home/me/.ssh", "/tmp/data", "/home/me/src/key"]),
            private: paths(&["/run", "/run/user/7", "/tmp"]),
            writable: paths(&["/home/me/src", "/tmp/work"]),
            shown: paths(&["/usr/bin", "/run/sw/bin", "/home/me/src/bin", "/home/me/.ssh/bin"]),
            frozen: paths(&["/home/me/src/.git/hooks"]),
            network: false,
        };
        let expected = [
            ("/run", Act::Empty),
            ("/tmp", Act::Empty),
            ("/tmp/work", Act::Write),
            ("/home/me/src", Act::Write),
            ("/run/sw/bin", Act::Show),
            ("/home/me/.ssh", Act::Hide),
            ("/home/me/src/.git", Act::Write),
            ("/home/me/src/key", Act::Hide),
            ("/home/me/src/.git/hooks", Act::Freeze),
        ];
        assert_eq!(acts(&view), expected.map(|(path, act)| (Path::new(path), act)));
    }

    #[test]
    fn a_workspace_that_is_a_private_place_is_not_emptied() {
        let view = View { private: paths(&["/tmp"]), writable: paths(&["/tmp"]), ..View::default() };
        assert_eq!(acts(&view), [(Path::new("/tmp"), Act::Empty), (Path::new("/tmp"), Act::Write)]);
    }

    #[test]
    fn the_network_is_left_out_unless_it_is_wanted() {
        let has = |network| {
            let view = View { network, ..View::default() };
            arguments(&view, Path::new("/")).contains(&NO_NETWORK.into())
        };
        assert!(has(false) && !has(true));
    }
}
