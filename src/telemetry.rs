//! Logs: stderr for people, daily files, never stdout. Owns the process's only tracing subscriber and its panic hook;
//! started by `main`, followed by the daemon's reload.

mod bounded;
mod incident;
mod stderr;

use std::fs::{DirBuilder, DirEntry};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use self::bounded::Bounded;
pub use self::incident::Incident;
pub use self::stderr::{Stderr, say};

use crate::config::{Config, Environment, Loaded, LogFormat};

/// Log lines that wait for the disk; more are dropped, so that a slow disk stops no session.
const FILE_LINES_MAX: usize = 4096;

/// Crates whose debug output is of no use to a user, and may show headers.
const QUIET_CRATES: &str = "h2=info,hyper=info,hyper_util=info,reqwest=info,rustls=info,mio=info,rmcp=warn";

/// Crates that tell as information what is of no use to a user, and may show what servers say.
const CHATTY_CRATES: &str = "rmcp=warn";

/// Counts the lines that the daily files had no room for.
static FILE_LINES_DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Changes the filter of the running process.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Keeps the log's writer alive; dropped last, it writes what waits.
#[derive(Debug, Default)]
#[must_use = "the log ends when this is dropped"]
pub struct Telemetry {
    _files: Option<WorkerGuard>,
}

/// Why logging can't start or change.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is no filter.
    #[error("\"{filter}\" is no log level and no filter: {reason}")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong.
        reason: String,
    },
    /// The directory of logs can't be used.
    #[error("cannot write logs to {}: {reason}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Logging for a client command: stderr alone, from warnings up, more with `-v` or `DSHD_LOG`.
pub fn for_client(verbose: u8, environment: &Environment) -> Telemetry {
    incident::install_panic_hook();
    let level = environment.get("DSHD_LOG").unwrap_or("warn");
    // A wrong DSHD_LOG is refused when the configuration is loaded.
    let filter = filter(level, verbose).or_else(|_| filter("warn", 0));
    if let Ok(filter) = filter {
        install(filter, lines(LogFormat::Text, Stderr::is_terminal()));
    }
    Telemetry::default()
}

/// Logging for the daemon: stderr as configured, and daily files in `<data>/log`.
///
/// # Errors
/// [`TelemetryError`].
pub fn for_daemon(loaded: &Loaded, verbose: u8) -> Result<Telemetry, TelemetryError> {
    incident::install_panic_hook();
    let log = &loaded.config.log;
    let (files, guard) = daily_files(&loaded.paths.logs, log.files_kept, log.file_bytes.0)?;
    // There is one log a process.
    let _ = FILE_LINES_DROPPED.set(files.error_counter());
    let file_lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(files);
    let stderr_lines = lines(log.format, Stderr::is_terminal());
    install(filter(&log.level, verbose)?, stderr_lines.and_then(file_lines));
    Ok(Telemetry { _files: Some(guard) })
}

/// Applies a changed `log.level`.
///
/// # Errors
/// [`TelemetryError::Filter`]; the old level then stays.
pub fn apply(config: &Config) -> Result<(), TelemetryError> {
    let filter = filter(&config.log.level, 0)?;
    if let Some(handle) = FILTER.get()
        && let Err(error) = handle.reload(filter)
    {
        return Err(TelemetryError::Filter { filter: config.log.level.clone(), reason: error.to_string() });
    }
    Ok(())
}

/// Lines that the daily files had no room for since the start.
pub fn file_lines_dropped() -> u64 {
    FILE_LINES_DROPPED.get().map_or(0, |counter| counter.dropped_lines() as u64)
}

/// `-v` says debug, `-vv` trace; else a level, which concerns dshd and the rest up to info, or a whole filter.
fn filter(level: &str, verbose: u8) -> Result<EnvFilter, TelemetryError> {
    let level = match verbose {
        0 => level.trim(),
        1 => "debug",
        _ => "trace",
    };
    let text = match level.to_ascii_lowercase().as_str() {
        bare @ ("debug" | "trace") => format!("{bare},{QUIET_CRATES}"),
        "info" => format!("info,{CHATTY_CRATES}"),
        _ => level.to_owned(),
    };
    EnvFilter::builder()
        .parse(&text)
        .map_err(|error| TelemetryError::Filter { filter: level.to_owned(), reason: error.to_string() })
}

/// What writes lines to stderr.
fn lines<S>(format: LogFormat, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(Stderr::new).with_ansi(colours);
    match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.with_ansi(false).json().flatten_event(true).boxed(),
    }
}

fn daily_files(
    dir: &Path,
    kept: usize,
    bytes_max: u64,
) -> Result<(NonBlocking, WorkerGuard), TelemetryError> {
    let failed = |reason: String| TelemetryError::Directory { path: dir.to_path_buf(), reason };
    // Files get the umask's mode; that nobody else reads them is the directory's doing.
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| failed(error.to_string()))?;
    let files = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("dshd")
        .filename_suffix("log")
        .max_log_files(kept)
        .build(dir)
        .map_err(|error| failed(error.to_string()))?;
    // The appender names its file by the day, and has just opened it.
    let newest = std::fs::read_dir(dir)
        .ok()
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .max_by_key(DirEntry::file_name);
    let bytes = newest.and_then(|newest| newest.metadata().ok()).map_or(0, |metadata| metadata.len());
    let files = Bounded::new(files, bytes_max, bytes);
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(FILE_LINES_MAX);
    Ok(builder.thread_name("dshd-log").finish(files))
}

/// Makes this the process's log. In tests of one process the first one stays.
fn install(filter: EnvFilter, layer: impl Layer<Filtered> + Send + Sync) {
    let (filter, handle) = reload::Layer::new(filter);
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        // Only the first subscriber's handle is of use, and it is set once.
        let _ = FILTER.set(handle);
    }
}

type Filtered = tracing_subscriber::layer::Layered<reload::Layer<EnvFilter, Registry>, Registry>;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_level_concerns_dshd_and_keeps_other_crates_quiet() {
        let debug = filter("debug", 0).unwrap().to_string();
        assert!(debug.contains("debug") && debug.contains("hyper=info"), "{debug}");
        assert_eq!(filter("warn", 0).unwrap().to_string(), "warn");
        assert!(filter("warn", 2).unwrap().to_string().contains("trace"));
    }

    #[test]
    fn a_filter_that_is_none_is_refused_with_its_text() {
        let error = filter("dshd=loud", 0).unwrap_err().to_string();
        assert!(error.starts_with("\"dshd=loud\" is no log level"), "{error}");
    }

    #[test]
    fn what_was_logged_is_in_todays_file_once_the_guard_is_gone() {
        let data = tempfile::tempdir().unwrap();
        let dir = data.path().join("log");
        let (mut files, guard) = daily_files(&dir, 2, 1 << 20).unwrap();
        files.write_all(b"one line\n").unwrap();
        drop(guard);
        let written: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(written.len(), 1);
        assert_eq!(std::fs::read_to_string(&written[0]).unwrap(), "one line\n");
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn old_files_are_removed_beyond_those_that_are_kept() {
        let data = tempfile::tempdir().unwrap();
        for day in 1..=5 {
            std::fs::write(data.path().join(format!("dshd.2020-01-0{day}.log")), "old").unwrap();
        }
        let (_files, guard) = daily_files(data.path(), 2, 1 << 20).unwrap();
        drop(guard);
        let kept = std::fs::read_dir(data.path()).unwrap().count();
        assert!(kept <= 2, "{kept} files are kept");
    }
}
