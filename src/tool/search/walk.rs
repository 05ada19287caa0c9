//! The walk over a directory's files: several threads, ignore files honoured also outside of a repository, version control
//! and hidden files left out, links not followed, nothing but regular files given out.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, Match, ParallelVisitor, ParallelVisitorBuilder, WalkBuilder, WalkState};
use rustix::fs::OFlags;

use super::Stop;
use crate::tool::{Guard, paths};

/// Directories of version control. They are never searched, unless a search begins inside.
const VERSION_CONTROL: [&str; 6] = [".git", ".svn", ".hg", ".bzr", ".jj", ".sl"];
/// What the kernel makes up. A search of the whole machine leaves it out.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Deeper directories are left out. Paths of this depth are near the longest that can be opened.
const DEPTH_MAX: usize = 512;

/// Where to walk.
pub(in crate::tool) struct Walk<'a> {
    pub(in crate::tool) root: &'a Path,
    pub(in crate::tool) cwd: &'a Path,
    /// Hidden files, too.
    pub(in crate::tool) hidden: bool,
    pub(in crate::tool) threads: usize,
    /// What is left out whatever was asked for.
    pub(in crate::tool) guard: &'a Guard,
    pub(in crate::tool) stop: &'a Stop,
}

/// Takes the files that one thread of a walk finds.
pub(in crate::tool) trait Files: Send {
    /// One regular file. An error counts the file as one that could not be read; one that is gone does not matter.
    fn file(&mut self, entry: &DirEntry) -> io::Result<()>;
}

impl Walk<'_> {
    /// Gives each file to one of the takers, one of which is made for each thread and dropped when its thread is done.
    /// Gives back how many files and directories could not be read.
    pub(in crate::tool) fn each<'s, T: Files + 's>(&'s self, taker: impl FnMut() -> T) -> u64 {
        let unreadable = AtomicU64::new(0);
        self.builder().build_parallel().visit(&mut Takers { walk: self, taker, unreadable: &unreadable });
        unreadable.into_inner()
    }

    fn builder(&self) -> WalkBuilder {
        let repository = self.root.ancestors().any(|above| above.join(".git").exists());
        let mut builder = WalkBuilder::new(self.root);
        builder
            .hidden(!self.hidden)
            .require_git(false)
            .parents(repository)
            .current_dir(self.cwd)
            .add_custom_ignore_filename(".rgignore")
            .max_depth(Some(DEPTH_MAX))
            .threads(self.threads);
        // Outside of a repository nothing says where the project ends. Rules above the working directory are not its own:
        // people keep a .gitignore of "*" in their home.
        let above = if repository { Vec::new() } else { rules_between(self.cwd, self.root) };
        let everything = self.root == Path::new("/");
        // A walk follows no links, so a real path below the root is the root's and what follows.
        let (guard, named) = (self.guard.clone(), self.root.to_owned());
        let real = paths::resolve(self.root).unwrap_or_else(|_| named.clone());
        builder.filter_entry(move |entry| {
            let directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            if entry.depth() == 0 {
                return true;
            }
            let left_out = directory
                && (VERSION_CONTROL.iter().any(|name| entry.file_name() == *name)
                    || (everything && KERNEL.iter().any(|path| entry.path() == Path::new(path))));
            let below = entry.path().strip_prefix(&named).unwrap_or(entry.path());
            !left_out && !guard.hides(&real.join(below)) && !ignored(&above, entry.path(), directory)
        });
        builder
    }
}

/// The rules of the directories from `cwd` down to the parent of `root`, the deepest first.
fn rules_between(cwd: &Path, root: &Path) -> Vec<Gitignore> {
    let above = root.ancestors().skip(1).take_while(|directory| directory.starts_with(cwd));
    above.filter_map(rules_of).collect()
}

fn rules_of(directory: &Path) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(directory);
    let mut any = false;
    for name in [".gitignore", ".ignore", ".rgignore"] {
        let path = directory.join(name);
        if path.is_file() {
            // What is wrong in one line of it does not make the other lines wrong.
            let _partial = builder.add(path);
            any = true;
        }
    }
    any.then(|| builder.build().ok()).flatten()
}

fn ignored(above: &[Gitignore], path: &Path, directory: bool) -> bool {
    above
        .iter()
        .map(|rules| rules.matched(path, directory))
        .find(|matched| !matched.is_none())
        .is_some_and(|matched| matches!(matched, Match::Ignore(_)))
}

struct Takers<'a, F> {
    walk: &'a Walk<'a>,
    taker: F,
    unreadable: &'a AtomicU64,
}

struct Taking<'a, T> {
    stop: &'a Stop,
    taker: T,
    unreadable: &'a AtomicU64,
}

impl<'s, T: Files + 's, F: FnMut() -> T> ParallelVisitorBuilder<'s> for Takers<'s, F> {
    fn build(&mut self) -> Box<dyn ParallelVisitor + 's> {
        Box::new(Taking { stop: self.walk.stop, taker: (self.taker)(), unreadable: self.unreadable })
    }
}

impl<T: Files> ParallelVisitor for Taking<'_, T> {
    fn visit(&mut self, entry: Result<DirEntry, ignore::Error>) -> WalkState {
        if self.stop.is_set() {
            return WalkState::Quit;
        }
        let failed = match entry {
            Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => {
                self.taker.file(&entry).is_err_and(|error| !is_gone(&error))
            }
            Ok(_) => false,
            Err(error) => !error.io_error().is_some_and(is_gone),
        };
        if failed {
            self.unreadable.fetch_add(1, Ordering::Relaxed);
        }
        WalkState::Continue
    }
}

/// What was there a moment ago may be gone, or be something else.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Opens what the walk found, if it still is a regular file. A FIFO that took its place does not block us.
pub(in crate::tool) fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}
