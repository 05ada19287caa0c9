//! `dshd top`: what the daemon does, looked at again and again.

mod rates;
mod view;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use self::rates::Rates;
pub(super) use self::view::moves;
use super::attach::keyboard::Keyboard;
use super::reach::{self, Reached};
use super::{Failure, Globals, exit, output, refusal, tell};
use crate::config::Loaded;
use crate::protocol::{Empty, Method, StatusResult};
use crate::signal::SignalStream;

/// Arguments of `dshd top`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd top
  dshd top --stat -i 5
  dshd top --json -n 1 | jq .usage")]
pub struct TopArgs {
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// Look so often, then end
    #[arg(short = 'n', value_name = "N")]
    pub count: Option<u64>,
    /// A line for each look; so it is without a terminal
    #[arg(long)]
    pub stat: bool,
}

/// How the terminal is cleared, and given back.
const CLEAR: &str = "\x1b[H\x1b[J";
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Lines between two headers.
const HEADER_EVERY: u64 = 20;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds, as 1 or 0.5".to_owned())?;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("expected 0.1 to 86400 seconds".to_owned())
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    rates: &'a Rates,
    #[serde(flatten)]
    status: &'a StatusResult,
}

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Screen,
    Lines,
    Json,
}

pub(super) async fn run(args: TopArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let form =
        match (globals.args.json, args.stat || !io::stdout().is_terminal() || !io::stdin().is_terminal()) {
            (true, _) => Form::Json,
            (false, true) => Form::Lines,
            (false, false) => Form::Screen,
        };
    // The first look says at once when there is nothing to look at.
    let reached = reach::viewer(globals, &loaded).await?;
    let mut signals = SignalStream::install()
        .map_err(|error| Failure::bug(format!("cannot listen for signals: {error}")))?;
    let screen = match form {
        Form::Screen => Some(FullScreen::enter()?),
        Form::Lines | Form::Json => None,
    };
    let mut top = Top { globals, loaded: &loaded, form, reached: Some(reached), before: None, looks: 0 };
    top.watch(&args, &mut signals, screen).await
}

struct Top<'a> {
    globals: &'a Globals,
    loaded: &'a Loaded,
    form: Form,
    reached: Option<Reached>,
    before: Option<StatusResult>,
    looks: u64,
}

impl Top<'_> {
    async fn watch(
        &mut self,
        args: &TopArgs,
        signals: &mut SignalStream,
        mut screen: Option<FullScreen>,
    ) -> Result<u8, Failure> {
        let mut tick = interval(args.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let typed = async {
                match &mut screen {
                    Some(screen) => screen.keyboard.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = signals.next() => {
                    let code = signals.first_stop().map_or(exit::INTERRUPTED, exit::of_signal);
                    // Leaving is how it ends.
                    return Ok(if screen.is_some() && code == exit::INTERRUPTED { exit::OK } else { code });
                }
                typed = typed => match typed {
                    // q, Q, Ctrl-C, Ctrl-D.
                    Some(bytes) if !bytes.iter().any(|byte| matches!(byte, b'q' | b'Q' | 3 | 4)) => {}
                    Some(_) | None => return Ok(exit::OK),
                },
                _ = tick.tick() => {
                    self.look(args.interval).await?;
                    if args.count.is_some_and(|count| self.looks >= count) {
                        return Ok(exit::OK);
                    }
                }
            }
        }
    }

    /// Looks once. A daemon that is gone is waited for.
    async fn look(&mut self, since: Duration) -> Result<(), Failure> {
        let status = match self.ask().await {
            Ok(status) => status,
            Err(failure) if is_away(&failure) => {
                self.before = None;
                return self.say_away(&failure);
            }
            Err(failure) => return Err(failure),
        };
        let rates = Rates::between(self.before.as_ref(), &status, since);
        self.looks += 1;
        match self.form {
            Form::Json => {
                output::print_json(&Document { schema: "dshd.top/1", rates: &rates, status: &status })?;
            }
            Form::Lines => {
                let header = self.looks % HEADER_EVERY == 1;
                output::print_raw(&view::line(&rates, &status, header))?;
            }
            Form::Screen => {
                let text = view::screen(&rates, &status, self.globals);
                output::print_raw(&format!("{CLEAR}{text}"))?;
            }
        }
        self.before = Some(status);
        Ok(())
    }

    async fn ask(&mut self) -> Result<StatusResult, Failure> {
        let reached = match self.reached.take() {
            Some(reached) => reached,
            None => reach::viewer(self.globals, self.loaded).await?,
        };
        let status = reached.call(Method::Status, &Empty {}).await?;
        self.reached = Some(reached);
        Ok(status)
    }

    fn say_away(&self, failure: &Failure) -> Result<(), Failure> {
        match self.form {
            Form::Screen => {
                output::print_raw(&format!("{CLEAR}{}\nwaiting for it; q leaves\n", failure.message))
            }
            Form::Lines | Form::Json => {
                tell::say(&failure.message);
                Ok(())
            }
        }
    }
}

/// Whether a daemon may come back.
fn is_away(failure: &Failure) -> bool {
    failure.kind == refusal::NO_DAEMON || failure.code == exit::UNREACHABLE
}

/// The terminal's other screen, and its keys; both given back when dropped.
struct FullScreen {
    keyboard: Keyboard,
}

impl FullScreen {
    fn enter() -> Result<Self, Failure> {
        let failed = |error| Failure::new(exit::REFUSED, "io", format!("cannot use this terminal: {error}"));
        let keyboard = Keyboard::take().map_err(failed)?;
        output::print_raw(ENTER)?;
        Ok(Self { keyboard })
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        // A terminal that is gone needs no mending.
        let _ = output::print_raw(LEAVE);
    }
}
