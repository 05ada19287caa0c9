//! Commentary on stderr: remarks for a person at a terminal, notes for one who asked for more. Never the result.

use std::io::{IsTerminal, Write};

use super::Globals;

/// Says something under `-v`.
pub(super) fn note(globals: &Globals, text: &str) {
    if globals.args.verbose > 0 {
        write("note: ", text);
    }
}

/// Says something to a person at a terminal who wants more than the result.
pub(super) fn remark(globals: &Globals, text: &str) {
    if !globals.args.quiet && !globals.args.json && std::io::stderr().is_terminal() {
        write("", text);
    }
}

/// Says something that the user must know although the command goes on.
pub(super) fn warn(text: &str) {
    write("warning: ", text);
}

/// Says what to do next.
pub(super) fn help(text: &str) {
    write("help: ", text);
}

/// Says something that belongs to what was asked for.
pub(super) fn say(text: &str) {
    write("", text);
}

fn write(before: &str, text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(anstream::stderr(), "{before}{text}");
}
