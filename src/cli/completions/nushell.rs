//! Completions for nushell, which `clap_complete` does not write: one `extern` a command.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, ValueHint};

/// The script of a command that was built, and of all below it.
pub(super) fn script(root: &Command) -> String {
    let mut script = String::from("module completions {\n");
    let mut pending = vec![(root.get_name().to_owned(), root)];
    while let Some((name, command)) = pending.pop() {
        for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
            pending.push((format!("{name} {}", child.get_name()), child));
        }
        external(&mut script, &name, command);
    }
    script.push_str("}\n\nexport use completions *\n");
    script
}

fn external(script: &mut String, name: &str, command: &Command) {
    // Writing to a text cannot fail.
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(script, "\n  # {}\n  export extern \"{name}\" [\n", one_line(&about));
    for arg in command.get_positionals() {
        let _ = writeln!(script, "    {}", positional(arg));
    }
    for arg in command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set()) {
        if let Some(flag) = flag(arg) {
            let _ = writeln!(script, "    {flag}");
        }
    }
    script.push_str("  ]\n");
}

fn positional(arg: &Arg) -> String {
    let name = arg.get_id().as_str();
    let rest = if matches!(arg.get_action(), ArgAction::Append) { "..." } else { "" };
    let optional = if arg.is_required_set() || !rest.is_empty() { "" } else { "?" };
    format!("{rest}{name}{optional}: {}{}", kind(arg), comment(arg))
}

fn flag(arg: &Arg) -> Option<String> {
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("--{long}(-{short})"),
        (Some(long), None) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => return None,
    };
    let value = if arg.get_action().takes_values() { format!(": {}", kind(arg)) } else { String::new() };
    Some(name + &value + &comment(arg))
}

fn kind(arg: &Arg) -> &'static str {
    let paths = [ValueHint::AnyPath, ValueHint::FilePath, ValueHint::DirPath];
    if paths.contains(&arg.get_value_hint()) { "path" } else { "string" }
}

fn comment(arg: &Arg) -> String {
    arg.get_help().map(|help| format!("  # {}", one_line(&help.to_string()))).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::super::Cli;
    use super::*;

    #[test]
    fn every_command_has_its_extern_with_its_flags() {
        let mut command = Cli::command();
        command.build();
        let script = script(&command);
        for name in ["dshd", "dshd prompt", "dshd config show", "dshd token create"] {
            assert!(script.contains(&format!("export extern \"{name}\" [")), "{name} is missing");
        }
        assert!(script.contains("--session(-s): string  # "), "{script}");
        assert!(script.contains("    --sources  # "), "{script}");
    }
}
