//! `grep` and `glob` beside `rg` on one tree, in one run: the same files, the same matches, or it says that they are not.
//!
//! On 2026-12-01, 2 cores of an AMD EPYC that others used too, Linux 6.18, release, 40,000 files, rg 15: grep of a word 519 ms
//! beside 481 (1.08), of a class 548 beside 487 (1.12), of every line 524 beside 1,179 (0.44); glob of few files 31 beside
//! 25 (1.25), of all by time 119 beside 146 (0.82, rg had 200 hidden files more). Where it loses: of all files in no order
//! rg takes 40 ms and glob 113 (2.85), because it asks each match for its time to show the newest.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use dshd::config::Config;
use dshd::event::{PermissionMode, SessionId};
use dshd::store::Blobs;
use dshd::store::memory::MemoryStore;
use dshd::tool::{Place, ToolContext, ToolState, Tools};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::sized;

const DIRECTORIES: usize = 200;
const ROUNDS: usize = 9;
/// Files with a needle in them: one in so many.
const NEEDLE_EVERY: usize = 50;

/// A tree as repositories are: text in many directories, some of it ignored, some binary, some hidden.
fn tree() -> (TempDir, usize) {
    let home = TempDir::new().unwrap();
    let files = sized(40_000, 2_000);
    let line = "    let value = compute(&state, index).map_err(|error| Failure::from(error))?;\n";
    for at in 0..files {
        let directory = home.path().join(format!("crate_{:03}/src/deep", at % DIRECTORIES));
        if at < DIRECTORIES {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::create_dir_all(home.path().join(format!("crate_{at:03}/target"))).unwrap();
            std::fs::write(home.path().join(format!("crate_{at:03}/target/out.rs")), "needle_ignored\n")
                .unwrap();
            std::fs::write(directory.join("data.bin"), b"\0needle_binary\n").unwrap();
            std::fs::write(directory.join(".hidden.rs"), "needle_hidden\n").unwrap();
        }
        let mut text = line.repeat(20 + at % 60);
        if at % NEEDLE_EVERY == 0 {
            writeln!(text, "fn needle_{at}() {{}}").unwrap();
        }
        std::fs::write(directory.join(format!("file_{at}.rs")), text).unwrap();
    }
    std::fs::write(home.path().join(".gitignore"), "target/\n").unwrap();
    (home, files)
}

struct Bench {
    runtime: Runtime,
    tools: Tools,
    context: ToolContext,
}

impl Bench {
    fn new(cwd: PathBuf) -> Self {
        let session = SessionId::new("bench").unwrap();
        let context = ToolContext {
            blobs: Blobs::new(Arc::new(MemoryStore::default()), session.clone()),
            session,
            call_id: "call_1".to_owned(),
            cwd,
            mode: PermissionMode::FullAccess,
            takes_images: false,
            state: Arc::new(ToolState::default()),
            guard: dshd::tool::Guard::default(),
            delegate: None,
            cancel: CancellationToken::new(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { runtime, tools: Tools::new(&Config::default()), context }
    }

    /// One call: its milliseconds, and how much it found.
    fn call(&self, name: &str, arguments: &Value) -> (f64, u64) {
        let place = Place { cwd: &self.context.cwd, delegated: false };
        let tool = self.runtime.block_on(self.tools.offer(&place)).get(name).unwrap();
        let arguments = arguments.to_string();
        let began = Instant::now();
        let output = self.runtime.block_on(tool.call(&arguments, &self.context));
        let took = began.elapsed().as_secs_f64() * 1e3;
        assert!(!output.is_error, "{}", output.text);
        let meta: Value = serde_json::from_str(output.meta.unwrap().get()).unwrap();
        (took, meta["total"].as_u64().unwrap())
    }
}

/// One run of `rg`: its milliseconds, and the lines that it wrote.
fn rg(program: &Path, cwd: &Path, arguments: &[&str]) -> (f64, u64) {
    let began = Instant::now();
    let output = Command::new(program)
        .args(["--no-config", "--no-require-git"])
        .args(arguments)
        .current_dir(cwd)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let took = began.elapsed().as_secs_f64() * 1e3;
    (took, memchr::memchr_iter(b'\n', &output.stdout).count() as u64)
}

/// `rg` of the variable `RG`, else of the path.
fn find_rg() -> Option<PathBuf> {
    let program = std::env::var_os("RG").map_or_else(|| PathBuf::from("rg"), PathBuf::from);
    let there = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
    there.is_ok_and(|status| status.success()).then_some(program)
}

/// The best of some rounds of each, taken in turns, so that what disturbs one disturbs the other.
fn beside(bench: &Bench, rg_at: Option<&Path>, call: &(&str, Value), arguments: &[&str]) -> Value {
    let (mut ours, mut theirs, mut found) = (f64::INFINITY, f64::INFINITY, (0, 0));
    for _ in 0..sized(ROUNDS, 2) {
        let (took, count) = bench.call(call.0, &call.1);
        (ours, found.0) = (ours.min(took), count);
        if let Some(program) = rg_at {
            let (took, count) = rg(program, &bench.context.cwd, arguments);
            (theirs, found.1) = (theirs.min(took), count);
        }
    }
    let round = |ms: f64| (ms * 100.0).round() / 100.0;
    if rg_at.is_none() {
        return json!({"ours_ms": round(ours), "found": found.0, "rg_ms": null, "ratio": null});
    }
    json!({
        "ours_ms": round(ours), "rg_ms": round(theirs), "ratio": round(ours / theirs), "found": found.0,
        "same": found.0 == found.1, "rg": arguments.join(" "),
    })
}

/// Searches of a warm tree. For `rg` a glob overrides what hides a file, so hidden files are taken out by another one. `rg` starts a process and writes all that it finds; ours starts none, counts all and keeps the
/// first lines by path, or the newest files.
pub(crate) fn search() -> Value {
    let (home, files) = tree();
    let rg_at = find_rg();
    let rg_at = rg_at.as_deref();
    if rg_at.is_none() {
        eprintln!("no rg found (set RG=/path/to/rg): search has no ratios");
    }
    let bench = Bench::new(home.path().to_owned());
    let grep = |pattern: &str| ("grep", json!({ "pattern": pattern }));
    let glob = |pattern: &str| ("glob", json!({ "pattern": pattern }));
    json!({
        "files": files,
        "grep_word": beside(&bench, rg_at, &grep("needle_"), &["-n", "needle_"]),
        "grep_class": beside(&bench, rg_at, &grep(r"needle_\d+\(\)"), &["-n", r"needle_\d+\(\)"]),
        "grep_every_line": beside(&bench, rg_at, &grep("compute"), &["-n", "compute"]),
        "glob_few": beside(&bench, rg_at, &glob("*_77*.rs"), &["--files", "-g", "*_77*.rs", "-g", "!.*"]),
        "glob_all": beside(&bench, rg_at, &glob("**/*.rs"), &["--files", "-g", "**/*.rs", "-g", "!.*"]),
        "glob_all_by_time": beside(
            &bench, rg_at, &glob("**/*.rs"), &["--files", "-g", "**/*.rs", "-g", "!.*", "--sortr", "modified"],
        ),
    })
}
