//! What the tests of the tools on files work with: a directory, the tools, and a session's context.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::{ToolContext, ToolOutput, Tools};
use crate::config::Config;

const SOON: Duration = Duration::from_secs(20);

pub(super) struct Bench {
    pub(super) tools: Tools,
    pub(super) context: ToolContext,
    pub(super) directory: tempfile::TempDir,
}

pub(super) fn bench_with(change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = Config::default();
    change(&mut config);
    let directory = tempfile::tempdir().unwrap();
    let context = ToolContext::of_test(directory.path().to_owned());
    Bench { tools: Tools::new(&config), context, directory }
}

pub(super) fn bench() -> Bench {
    bench_with(|_| {})
}

impl Bench {
    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) async fn call(&self, tool: &str, arguments: &Value) -> ToolOutput {
        let tool = self.tools.get(tool).unwrap();
        tokio::time::timeout(SOON, tool.call(&arguments.to_string(), &self.context)).await.unwrap()
    }

    pub(super) async fn read(&self, name: &str) -> ToolOutput {
        self.call("read", &json!({ "file_path": name })).await
    }

    pub(super) async fn write(&self, name: &str, content: &str) -> ToolOutput {
        self.call("write", &json!({ "file_path": name, "content": content })).await
    }

    pub(super) async fn edit(&self, name: &str, old: &str, new: &str) -> ToolOutput {
        self.call("edit", &json!({ "file_path": name, "old_string": old, "new_string": new })).await
    }

    /// Makes a file and reads it.
    pub(super) async fn seen(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
        let output = self.read(name).await;
        assert!(!output.is_error, "{}", output.text);
    }

    pub(super) fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The names in the directory, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The code of a call that failed.
pub(super) fn code(output: &ToolOutput) -> &str {
    assert!(output.is_error, "{}", output.text);
    output.error.as_ref().map_or("", |error| &error.code)
}
