//! Whatever a model gives a tool, reading it never panics, and asking what it needs changes nothing.

use std::ops::Deref as _;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use dshd::config::Config;
use dshd::event::{PermissionMode, SessionId};
use dshd::store::Blobs;
use dshd::store::memory::MemoryStore;
use dshd::tool::{Guard, Place, ToolContext, Tools};
use tokio_util::sync::CancellationToken;

const NAMES: [&str; 6] = ["bash", "read", "write", "edit", "glob", "grep"];

/// Texts around which random bytes are more often arguments than not.
const FRAMES: [(&str, &str); 5] = [
    ("", ""),
    (r#"{"file_path":""#, r#"","content":"x","old_string":"a","new_string":"b"}"#),
    (r#"{"pattern":""#, r#""}"#),
    (r#"{"command":""#, r#"","sandbox_permissions":"require_escalated"}"#),
    (r#"{"file_path":"f","old_string":""#, r#"","new_string":"b"}"#),
];

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn arguments() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("f"), "one\ntwo\n").unwrap();
    let session = SessionId::new("s").unwrap();
    let tools = Tools::new(&Config::default());
    let place = Place { cwd: workspace.path(), delegated: false };
    let offer = runtime.block_on(tools.offer(&place));
    let context = ToolContext {
        session: session.clone(),
        call_id: "c".to_owned(),
        cwd: workspace.path().to_path_buf(),
        mode: PermissionMode::ReadOnly,
        takes_images: false,
        state: Arc::default(),
        blobs: Blobs::new(Arc::new(MemoryStore::default()), session),
        guard: Guard::default(),
        delegate: None,
        cancel: CancellationToken::new(),
    };
    // After a panic nothing of these is looked at.
    let shared = AssertUnwindSafe((runtime, offer, context, workspace));
    bolero::check!().with_type::<(u8, u8, Vec<u8>)>().for_each(|(name, frame, bytes)| {
        let (runtime, offer, context, workspace) = shared.deref();
        let name = NAMES[usize::from(*name) % NAMES.len()];
        let (before, after) = FRAMES[usize::from(*frame) % FRAMES.len()];
        let raw = format!("{before}{}{after}", String::from_utf8_lossy(bytes));
        let tool = offer.get(name).unwrap();
        let _ = runtime.block_on(tool.needs(&raw, context));
        assert_eq!(entries(workspace.path()), 1);
    });
}
