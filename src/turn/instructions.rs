//! `AGENTS.md`: what a project tells agents. From the workspace's root down to where the agent works and to what its
//! tools touch, each file is told once, and again when it has changed.
//!
//! The root is the top of the git repository that the working directory is in, else that directory. Nothing outside of
//! it is read, whatever links say.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::branch::{self, repository};
use super::step::Call;
use super::{Turn, small_file};
use crate::event::{Block, Message, Role, Source, SourceKind};

/// The file's name.
const NAME: &str = "AGENTS.md";
/// Directories that are looked at for one step.
const DIRECTORIES_MAX: usize = 256;
/// Directories that one step's calls may name.
const TOUCHED_MAX: usize = 64;

/// What the file system says of where the agent works.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// What is checked out, in a sentence.
    pub(super) branch: Option<String>,
    /// The instructions that hold, outermost first.
    pub(super) instructions: Vec<Instructions>,
}

/// One file of instructions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Instructions {
    path: PathBuf,
    text: String,
}

/// The paths that calls name, whatever the tool.
#[derive(Deserialize)]
struct Named {
    file_path: Option<PathBuf>,
    path: Option<PathBuf>,
    workdir: Option<PathBuf>,
}

impl Turn {
    /// Notes where calls look or act: what is told there is read before the next call of the model.
    pub(super) fn note_touched(&mut self, calls: &[Call]) {
        for call in calls {
            // What is no JSON, or names no path, touches nothing that we could know of.
            let Ok(named) = serde_json::from_str::<Named>(&call.arguments) else { continue };
            for path in [named.file_path, named.path, named.workdir].into_iter().flatten() {
                let path = self.cwd.join(path);
                if self.memory.touched.len() < TOUCHED_MAX && !self.memory.touched.contains(&path) {
                    self.memory.touched.push(path);
                }
            }
        }
    }

    /// Looks around; reads instructions when this is a turn's first step or calls have touched something.
    pub(super) async fn look_around(&mut self, first: bool) -> Surroundings {
        let touched = std::mem::take(&mut self.memory.touched);
        // In JSON a byte takes at most six.
        let event_max = self.config.limits.event_bytes.0 / 8;
        let bytes_max = self.config.turn.agent_instructions_bytes.0.min(event_max);
        let wanted = (first || !touched.is_empty()) && bytes_max > 0;
        let cwd = self.cwd.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let instructions = if wanted { find(&cwd, &touched, bytes_max) } else { Vec::new() };
            Surroundings { branch: branch::branch_text(&cwd), instructions }
        });
        looked.await.unwrap_or_else(|error| {
            tracing::error!(%error, "looking around failed");
            Surroundings::default()
        })
    }

    /// The message that tells instructions, unless the model has them as they are.
    pub(super) fn instructions_message(&self, found: Instructions) -> Option<Message> {
        let path = found.path.to_string_lossy().into_owned();
        let is_same_file = |message: &Message| {
            message.source.kind == SourceKind::AgentInstructions
                && message.source.path.as_deref() == Some(&path)
        };
        let told = self.conversation.iter().rfind(|message| is_same_file(message));
        if told.is_some_and(|told| told.text() == found.text) {
            return None;
        }
        let mut source = Source::of(SourceKind::AgentInstructions);
        source.path = Some(path);
        Some(Message::new(Role::User, source, vec![Block::text(found.text)]))
    }
}

/// The instructions from the root down to the working directory and to each touched path.
fn find(cwd: &Path, touched: &[PathBuf], bytes_max: u64) -> Vec<Instructions> {
    let Ok(cwd) = cwd.canonicalize() else { return Vec::new() };
    let root = repository(&cwd).unwrap_or(&cwd).to_path_buf();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let touched = touched.iter().filter_map(|path| nearest_directory(path));
    for end in std::iter::once(cwd.clone()).chain(touched) {
        let Ok(below) = end.strip_prefix(&root) else { continue };
        let mut directory = root.clone();
        let names = std::iter::once(None).chain(below.components().map(Some));
        for name in names {
            directory.extend(name);
            if seen.len() < DIRECTORIES_MAX && seen.insert(directory.clone()) {
                found.extend(read(&root, &directory, bytes_max));
            }
        }
    }
    found
}

/// The directory that a path is or is in, links resolved.
fn nearest_directory(path: &Path) -> Option<PathBuf> {
    let real = path.ancestors().find_map(|level| level.canonicalize().ok())?;
    if real.is_dir() { Some(real) } else { real.parent().map(Path::to_path_buf) }
}

/// The instructions of a directory, if it has any inside of the root.
fn read(root: &Path, directory: &Path, bytes_max: u64) -> Option<Instructions> {
    let path = directory.join(NAME);
    let real = path.canonicalize().ok().filter(|real| real.starts_with(root))?;
    let bytes = small_file::read(&real, bytes_max + 1)?;
    let kept = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(..kept)?);
    let mut text = text.trim().to_owned();
    if text.is_empty() {
        return None;
    }
    if bytes.len() > kept {
        // The cut may have split a character.
        let end = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        text.truncate(end);
        text.push_str("\n[The file goes on; read it if you need the rest.]");
    }
    let text = format!(
        "Instructions for agents from {}, for what is in {}:\n\n{text}",
        path.display(),
        directory.display()
    );
    Some(Instructions { path, text })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn texts(found: &[Instructions]) -> Vec<&str> {
        found.iter().map(|one| one.text.split_once("\n\n").unwrap().1).collect()
    }

    fn tree() -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(root.join("c/d")).unwrap();
        for (path, text) in [("AGENTS.md", "outer"), ("a/AGENTS.md", "inner"), ("c/d/AGENTS.md", "deep")] {
            fs::write(root.join(path), text).unwrap();
        }
        fs::write(top.path().join("AGENTS.md"), "above the root").unwrap();
        top
    }

    #[test]
    fn they_are_read_from_the_root_down_to_the_working_directory() {
        let tree = tree();
        assert_eq!(texts(&find(&tree.path().join("root/a/b"), &[], 1000)), ["outer", "inner"]);
        assert_eq!(texts(&find(&tree.path().join("root"), &[], 1000)), ["outer"]);
    }

    #[test]
    fn a_touched_path_brings_those_on_the_way_to_it_once() {
        let tree = tree();
        let root = tree.path().join("root");
        let touched = [root.join("c/d/new/file.rs"), root.join("c/d/x"), tree.path().to_path_buf()];
        assert_eq!(texts(&find(&root.join("a"), &touched, 1000)), ["outer", "inner", "deep"]);
    }

    #[test]
    fn links_out_of_the_root_are_not_followed_and_those_inside_are() {
        let tree = tree();
        let root = tree.path().join("root");
        fs::write(tree.path().join("secret"), "a secret").unwrap();
        std::os::unix::fs::symlink(tree.path().join("secret"), root.join("a/b/AGENTS.md")).unwrap();
        std::os::unix::fs::symlink(tree.path(), root.join("out")).unwrap();
        std::os::unix::fs::symlink("../AGENTS.md", root.join("c/AGENTS.md")).unwrap();
        let found = find(&root.join("a/b"), &[root.join("out/x"), root.join("c/x")], 1000);
        assert_eq!(texts(&found), ["outer", "inner", "outer"]);
    }

    #[test]
    fn long_ones_are_cut_on_a_character_and_say_so() {
        let tree = tree();
        let root = tree.path().join("root");
        fs::write(root.join("AGENTS.md"), "ab\u{e9}\u{e9}").unwrap();
        assert_eq!(texts(&find(&root, &[], 3)), ["ab\n[The file goes on; read it if you need the rest.]"]);
        fs::write(root.join("AGENTS.md"), " \n").unwrap();
        assert!(find(&root, &[], 3).is_empty());
    }
}
