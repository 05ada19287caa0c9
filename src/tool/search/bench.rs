//! A directory and the tools on it, for tests.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::Config;
use crate::tool::{ToolContext, ToolOutput, Tools};

const SOON: Duration = Duration::from_mins(1);

pub(in crate::tool) struct Bench {
    pub(in crate::tool) tools: Tools,
    pub(in crate::tool) context: ToolContext,
    directory: tempfile::TempDir,
}

pub(in crate::tool) fn bench_with(change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = Config::default();
    change(&mut config);
    let directory = tempfile::tempdir().unwrap();
    let context = ToolContext::of_test(directory.path().to_owned());
    Bench { tools: Tools::new(&config), context, directory }
}

pub(in crate::tool) fn bench() -> Bench {
    bench_with(|_| {})
}

impl Bench {
    pub(in crate::tool) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(in crate::tool) fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(in crate::tool) async fn call(&self, name: &str, arguments: serde_json::Value) -> ToolOutput {
        let tool = self.tools.get(name).unwrap();
        tokio::time::timeout(SOON, tool.call(&arguments.to_string(), &self.context)).await.unwrap()
    }
}
