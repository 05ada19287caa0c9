//! What the figures were measured on.

use serde_json::{Value, json};

pub(crate) fn facts() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let memory = read("/proc/meminfo");
    json!({
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory": memory.lines().next().unwrap_or("").trim_start_matches("MemTotal:").trim(),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}
