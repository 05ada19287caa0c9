//! What `glob` and `grep` share: where a search begins, the walk over files that honours ignore files, and how a search
//! that takes too long or is cancelled ends.

#[cfg(test)]
pub(super) mod bench;
pub(super) mod pattern;
pub(super) mod walk;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::{Failed, ToolContext, ToolOutput, clip};
use crate::config::Config;

/// Serialized facts for viewers of one search, in bytes.
pub(super) const META_BYTES_MAX: usize = 64 * 1024;
/// Searches of one tool that walk at the same time; more wait for their turn.
const AT_ONCE_MAX: u32 = 4;
/// The most threads of one walk; more do not make it faster.
const THREADS_MAX: usize = 12;
/// How long a search that is over its time may take to hand over what it has.
const HAND_OVER: Duration = Duration::from_secs(2);
const CANCELLED: &str = "the call was cancelled";

/// Tells the threads of a walk to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A call that is dropped takes its threads with it.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.now();
    }
}

/// The bounds of a tool's searches.
pub(super) struct Searches {
    pub(super) threads: usize,
    timeout: Duration,
    places: Arc<Semaphore>,
}

/// What a search found, and whether it came to its end.
pub(super) struct Found<T> {
    pub(super) found: T,
    /// Why it is not complete.
    pub(super) cut_after: Option<Duration>,
}

impl Searches {
    pub(super) fn new(config: &Config) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            threads: cores.min(THREADS_MAX),
            timeout: config.tools.search_timeout,
            places: Arc::new(Semaphore::new(AT_ONCE_MAX as usize)),
        }
    }

    /// Runs `search` on a thread for blocking work, until it ends, `tools.search_timeout` is over or the call is cancelled.
    /// A search that is out of time gives back what it has.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        context: &ToolContext,
        search: impl FnOnce(&Stop) -> Result<T, ToolOutput> + Send + 'static,
    ) -> Result<Found<T>, ToolOutput> {
        let aborted = || ToolOutput::failed(Failed::Aborted, CANCELLED);
        let out_of_time = tokio::time::sleep(self.timeout);
        tokio::pin!(out_of_time);
        let place = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Err(aborted()),
            place = Arc::clone(&self.places).acquire_owned() => place,
            () = &mut out_of_time => {
                return Err(ToolOutput::failed_without_code("too many searches run at the same time; try again"));
            }
        };
        let stop = StopOnDrop(Stop::default());
        let told = stop.0.clone();
        let mut searching = tokio::task::spawn_blocking(move || {
            let _place = place;
            search(&told)
        });
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => Err(aborted()),
            done = &mut searching => Ok(Found { found: ended(done)?, cut_after: None }),
            () = &mut out_of_time => {
                stop.0.now();
                // A read that hangs in the kernel is left to it; its thread ends with it.
                match tokio::time::timeout(HAND_OVER, searching).await {
                    Ok(done) => Ok(Found { found: ended(done)?, cut_after: Some(self.timeout) }),
                    Err(_) => Err(ToolOutput::failed_without_code(&format!(
                        "the search hangs in the file system and was given up after {} s",
                        self.timeout.as_secs()
                    ))),
                }
            }
        }
    }
}

fn ended<T>(done: Result<Result<T, ToolOutput>, tokio::task::JoinError>) -> Result<T, ToolOutput> {
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "a search failed inside");
        Err(ToolOutput::failed_without_code("the search failed inside; this is a bug"))
    })
}

/// Where a search begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Root {
    Directory(PathBuf),
    File(PathBuf),
}

/// Looks at what a call named, or at the working directory.
pub(super) fn root(cwd: &Path, named: Option<&Path>) -> Result<Root, ToolOutput> {
    let path = named.map_or_else(|| cwd.to_owned(), |named| lexical(&cwd.join(named)));
    let shown = || clip::line(&path.display().to_string());
    let metadata = fs::metadata(&path).map_err(|error| {
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            ToolOutput::failed(Failed::NotFound, &format!("no such file or directory: {}", shown()))
        } else {
            ToolOutput::failed_without_code(&format!("cannot search {}: {error}", shown()))
        }
    })?;
    if metadata.is_dir() {
        // A walk does not follow links; the one that was named is meant.
        let link = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        Ok(Root::Directory(if link { path.join("") } else { path }))
    } else if metadata.is_file() {
        Ok(Root::File(path))
    } else {
        Err(ToolOutput::failed(
            Failed::NotRegularFile,
            &format!("{} is neither a directory nor a regular file", shown()),
        ))
    }
}

/// Without `.`; `..` stays, because it may follow a link.
fn lexical(path: &Path) -> PathBuf {
    path.components().collect()
}

/// A path as the model and viewers see it: relative to the working directory where it is below it, on one line.
pub(super) fn shown<'a>(path: &'a Path, cwd: &Path) -> Cow<'a, str> {
    let relative = match path.strip_prefix(cwd) {
        Ok(below) if !below.as_os_str().is_empty() => below,
        Ok(_) | Err(_) => path,
    };
    let text = relative.to_string_lossy();
    if text.contains(char::is_control) {
        let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        return Cow::Owned(text.chars().map(escape).collect());
    }
    text
}

/// What keeps a result from being the whole truth, as sentences in brackets.
pub(super) fn incomplete(cut_after: Option<Duration>, unreadable: u64) -> String {
    let mut notes = String::new();
    if let Some(after) = cut_after {
        let _ = write!(
            notes,
            "\n\n(The search was stopped after {after:?}; there may be more. Narrow pattern or path.)"
        );
    }
    if unreadable > 0 {
        let noun = if unreadable == 1 { "file or directory" } else { "files or directories" };
        let _ = write!(notes, "\n\n({unreadable} {noun} could not be read.)");
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_the_working_directory_are_shown_relative_and_on_one_line() {
        let cwd = Path::new("/w");
        assert_eq!(shown(Path::new("/w/a/b"), cwd), "a/b");
        assert_eq!(shown(Path::new("/v/a"), cwd), "/v/a");
        assert_eq!(shown(Path::new("/w"), cwd), "/w");
        assert_eq!(shown(Path::new("/w/a\nb"), cwd), "a\\nb");
    }

    /// Runs until it is told to stop, and says that it did.
    fn endless(stopped: &Arc<Semaphore>) -> impl FnOnce(&Stop) -> Result<(), ToolOutput> + Send + use<> {
        let stopped = Arc::clone(stopped);
        move |stop| {
            while !stop.is_set() {
                std::thread::yield_now();
            }
            stopped.add_permits(1);
            Ok(())
        }
    }

    fn searches(timeout: Duration) -> Searches {
        let mut config = Config::default();
        config.tools.search_timeout = timeout;
        Searches::new(&config)
    }

    #[tokio::test]
    async fn a_search_that_is_out_of_time_hands_over_what_it_has() {
        let stopped = Arc::new(Semaphore::new(0));
        let timeout = Duration::from_millis(20);
        let context = ToolContext::of_test("/".into());
        let found = searches(timeout).run(&context, endless(&stopped)).await.unwrap();
        assert_eq!(found.cut_after, Some(timeout));
    }

    #[tokio::test]
    async fn a_search_that_is_cancelled_or_dropped_stops_its_thread() {
        let stopped = Arc::new(Semaphore::new(0));
        let searches = searches(Duration::from_mins(10));
        let context = ToolContext::of_test("/".into());
        let cancel = context.cancel.clone();
        let (run, ()) = tokio::join!(searches.run(&context, endless(&stopped)), async {
            tokio::task::yield_now().await;
            cancel.cancel();
        });
        assert_eq!(run.err().unwrap().error.unwrap().code, "ABORTED");
        let context = ToolContext::of_test("/".into());
        let dropped =
            tokio::time::timeout(Duration::from_millis(20), searches.run(&context, endless(&stopped)));
        assert!(dropped.await.is_err());
        let both = tokio::time::timeout(Duration::from_secs(20), stopped.acquire_many(2));
        assert!(both.await.is_ok(), "both threads have stopped");
    }

    #[tokio::test]
    async fn only_so_many_searches_walk_at_the_same_time() {
        let searches = searches(Duration::from_millis(50));
        let _busy = Arc::clone(&searches.places).acquire_many_owned(AT_ONCE_MAX).await.unwrap();
        let context = ToolContext::of_test("/".into());
        let refused = searches.run(&context, |_| Ok(())).await.err().unwrap();
        assert_eq!(refused.text, "Error: too many searches run at the same time; try again");
    }

    #[test]
    fn what_a_result_lacks_is_told() {
        assert_eq!(incomplete(None, 0), "");
        assert_eq!(incomplete(None, 1), "\n\n(1 file or directory could not be read.)");
        assert_eq!(
            incomplete(Some(Duration::from_secs(30)), 0),
            "\n\n(The search was stopped after 30s; there may be more. Narrow pattern or path.)"
        );
    }
}
