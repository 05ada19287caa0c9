//! The methods, and what the wire says of each: one table.

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $scope:ident, $phase:ident, $way:ident;)*) => {
        /// A method that a client may call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method { $($(#[$doc])* $variant,)* }

        impl Method {
            /// Every method.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name on the wire.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The method of a name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Whether scope `observe` may not call it.
            pub fn needs_control(self) -> bool {
                match self { $(Self::$variant => methods!(@control $scope),)* }
            }

            /// Whether it is served before `initialize`.
            pub fn before_initialize(self) -> bool {
                match self { $(Self::$variant => methods!(@early $phase),)* }
            }

            /// Whether it lets things go, so that no limit refuses it.
            pub fn lets_go(self) -> bool {
                match self { $(Self::$variant => methods!(@go $way),)* }
            }
        }
    };
    (@control control) => { true };
    (@control observe) => { false };
    (@early early) => { true };
    (@early late) => { false };
    (@go lets_go) => { true };
    (@go bounded) => { false };
}

methods! {
    /// Shows a token.
    Authenticate = "authenticate", observe, early, bounded;
    /// Opens the conversation.
    Initialize = "initialize", observe, early, bounded;
    /// Says something to an agent.
    Prompt = "session/prompt", control, late, bounded;
    /// Stops a turn or takes back a prompt.
    Cancel = "session/cancel", control, late, lets_go;
    /// Makes a session.
    Create = "session/create", control, late, bounded;
    /// Opens a stored session.
    Resume = "session/resume", control, late, bounded;
    /// Changes its settings.
    Update = "session/update", control, late, bounded;
    /// Follows a session.
    Subscribe = "session/subscribe", observe, late, bounded;
    /// Stops following it.
    Unsubscribe = "session/unsubscribe", observe, late, lets_go;
    /// Reads a page of events.
    Read = "session/read", observe, late, bounded;
    /// Lists sessions.
    List = "session/list", observe, late, bounded;
    /// Shows what waits.
    Queue = "session/queue", observe, late, bounded;
    /// Shows a picture.
    Blob = "session/blob", observe, late, bounded;
    /// Waits until idle.
    Wait = "session/wait", observe, late, bounded;
    /// Disposes of an agent.
    Close = "session/close", control, late, lets_go;
    /// Removes a session for good.
    Delete = "session/delete", control, late, bounded;
    /// Tells the working directory.
    GetDirectory = "session/working-directory/get", control, late, bounded;
    /// Changes it.
    SetDirectory = "session/working-directory/set", control, late, bounded;
    /// Answers what a call asks for.
    Answer = "session/approval/answer", control, late, lets_go;
    /// Lists and revokes what was allowed for good.
    Rules = "session/approval/rules", control, late, bounded;
    /// Lists routes and models.
    Models = "models/list", observe, late, bounded;
    /// Answers.
    Ping = "server/ping", observe, early, lets_go;
    /// Tells how the daemon is.
    Status = "server/status", observe, late, lets_go;
    /// Stops the daemon.
    Drain = "server/drain", control, late, bounded;
    /// Ends the connection.
    Shutdown = "shutdown", observe, early, lets_go;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_methods_are_inverse() {
        for &method in Method::ALL {
            assert_eq!(Method::from_name(method.name()), Some(method));
        }
        assert_eq!(Method::from_name("session/nothing"), None);
    }
}
