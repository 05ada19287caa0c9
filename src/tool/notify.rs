//! What a tool tells after its call: the arrow to sessions turned around once more.

use crate::event::EventBody;

/// Tells a session of what happened beside its turns, e.g. that a background job ended.
pub trait Notify: std::fmt::Debug + Send + Sync {
    /// Has the events logged, and the model told the text: in the next step of a running turn, else in a turn that
    /// begins for it. Returns at once; a session that has left memory hears nothing.
    fn tell(&self, events: Vec<EventBody>, text: Option<String>);
}
