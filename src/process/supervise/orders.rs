//! What a supervisor is told, as arguments of its command line.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::process::sandbox::View;

/// Which system calls are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::process) enum Filter {
    /// None.
    #[default]
    Off,
    /// Those that no program needs.
    Bwrap,
    /// These, and those that Landlock does not see.
    Landlock,
}

/// The orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::process) struct Orders {
    /// Where it reports to.
    pub(in crate::process) report: RawFd,
    /// Closed when the daemon ends.
    pub(in crate::process) lifeline: RawFd,
    /// The program that it was started from, when it is open still.
    pub(in crate::process) own_program: Option<RawFd>,
    pub(in crate::process) filter: Filter,
    /// Held by Landlock to this.
    pub(in crate::process) view: Option<View>,
    /// A directory for temporary files, which it makes and removes.
    pub(in crate::process) temporary: Option<PathBuf>,
    /// What it starts.
    pub(in crate::process) program: OsString,
    pub(in crate::process) arguments: Vec<OsString>,
}

impl Filter {
    const ALL: [Self; 3] = [Self::Off, Self::Bwrap, Self::Landlock];

    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Bwrap => "bwrap",
            Self::Landlock => "landlock",
        }
    }
}

impl Orders {
    /// As arguments, after the one that makes a supervisor.
    pub(in crate::process) fn to_arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        let mut say = |name: &str, value: &OsStr| all.extend([name.into(), value.to_owned()]);
        say("report", self.report.to_string().as_ref());
        say("lifeline", self.lifeline.to_string().as_ref());
        if let Some(fd) = self.own_program {
            say("own", fd.to_string().as_ref());
        }
        say("filter", self.filter.name().as_ref());
        if let Some(path) = &self.temporary {
            say("temporary", path.as_os_str());
        }
        if let Some(view) = &self.view {
            say("network", if view.network { "on" } else { "off" }.as_ref());
            let lists = [
                ("hidden", &view.hidden),
                ("private", &view.private),
                ("writable", &view.writable),
                ("shown", &view.shown),
            ];
            for (name, paths) in lists {
                for path in paths {
                    say(name, path.as_os_str());
                }
            }
        }
        all.extend(["--".into(), self.program.clone()]);
        all.extend(self.arguments.iter().cloned());
        all
    }

    /// From such arguments; none when they are no orders.
    pub(super) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut orders = Self::default();
        loop {
            let name = arguments.next()?;
            if name == "--" {
                break;
            }
            let value = arguments.next()?;
            let number = || value.to_str()?.parse().ok();
            match name.to_str()? {
                "report" => orders.report = number()?,
                "lifeline" => orders.lifeline = number()?,
                "own" => orders.own_program = Some(number()?),
                "filter" => {
                    orders.filter = Filter::ALL.into_iter().find(|filter| value == filter.name())?;
                }
                "temporary" => orders.temporary = Some(value.into()),
                "network" => orders.view.get_or_insert_default().network = value == "on",
                "hidden" => orders.view.get_or_insert_default().hidden.push(value.into()),
                "private" => orders.view.get_or_insert_default().private.push(value.into()),
                "writable" => orders.view.get_or_insert_default().writable.push(value.into()),
                "shown" => orders.view.get_or_insert_default().shown.push(value.into()),
                _ => return None,
            }
        }
        orders.program = arguments.next()?;
        orders.arguments = arguments.collect();
        Some(orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_command_line() {
        let view = View {
            hidden: vec!["/a".into(), "/--".into()],
            private: vec!["/tmp".into()],
            writable: vec!["/w".into()],
            shown: vec!["/s".into()],
            frozen: Vec::new(),
            network: true,
        };
        for view in [None, Some(view)] {
            let orders = Orders {
                report: 7,
                lifeline: 8,
                own_program: Some(9),
                filter: Filter::Landlock,
                view,
                temporary: Some("/tmp/x".into()),
                program: "bash".into(),
                arguments: vec!["-c".into(), "--".into(), "hidden".into()],
            };
            assert_eq!(Orders::parse(orders.to_arguments().into_iter()), Some(orders));
        }
    }

    #[test]
    fn other_arguments_are_no_orders() {
        for arguments in
            [vec!["report"], vec!["what", "1", "--", "x"], vec!["report", "x", "--", "x"], vec!["--"]]
        {
            assert_eq!(Orders::parse(arguments.into_iter().map(Into::into)), None);
        }
    }
}
