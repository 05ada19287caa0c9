//! Incidents: a panic is logged once, with an id that its victims are told too.

use std::cell::RefCell;
use std::fmt;
use std::panic::PanicHookInfo;
use std::sync::Once;

/// The id of one bug's appearance, in the log and in what the client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident(String);

thread_local! {
    /// The panic that this thread is unwinding from.
    static LAST: RefCell<Option<Incident>> = const { RefCell::new(None) };
}

impl Incident {
    /// A new one; the caller logs it.
    #[must_use]
    pub fn new() -> Self {
        let mut id = uuid::Uuid::new_v4().simple().to_string();
        id.truncate(12);
        Self(id)
    }

    /// That of the panic which was just caught on this thread, already logged; else a new one.
    #[must_use]
    pub fn of_caught_panic() -> Self {
        LAST.with(RefCell::take).unwrap_or_default()
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Incident {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Logs every panic of this process with an incident id. Where no log is, stderr is told.
pub(super) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(report)));
}

fn report(info: &PanicHookInfo<'_>) {
    let incident = Incident::new();
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let message = info.payload_as_str().unwrap_or("no message");
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!(%incident, place, cause = message, "a bug in dshd: a task panicked");
    } else {
        super::say(&format!("error: a bug in dshd: {message} at {place} (incident {incident})"));
    }
    LAST.with(|last| *last.borrow_mut() = Some(incident));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_panic_has_the_id_that_was_logged_and_only_once() {
        install_panic_hook();
        let caught = std::panic::catch_unwind(|| panic!("on purpose"));
        assert!(caught.is_err());
        let logged = LAST.with(|last| last.borrow().clone()).unwrap();
        assert_eq!(Incident::of_caught_panic(), logged);
        assert_ne!(Incident::of_caught_panic(), logged);
    }
}
