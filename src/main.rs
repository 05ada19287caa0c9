//! The `dshd` binary: arguments, configuration, telemetry, runtime, exit code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use dshd::cli::{self, Failure, Globals, Invocation, exit};
use dshd::config::{self, Environment};
use dshd::process::supervise;
use dshd::telemetry;

fn main() -> ExitCode {
    // Between the daemon and a command stands this program, too; then it is nothing else.
    if let Some(code) = supervise::run_if_asked(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let environment = Environment::of_process();
    let invocation = match cli::parse(std::env::args_os(), environment) {
        Ok(cli::Parsed::Run(invocation)) => *invocation,
        Ok(cli::Parsed::Told) => return ExitCode::SUCCESS,
        Err(refused) => return ExitCode::from(refused.failure.tell(refused.json)),
    };
    let json = invocation.globals.args.json;
    let outcome = catch_unwind(AssertUnwindSafe(|| run(invocation)));
    let code = match outcome {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => failure.tell(json),
        // The panic hook has told the message and the incident.
        Err(_) => exit::BUG,
    };
    ExitCode::from(code)
}

fn run(invocation: Invocation) -> Result<u8, Failure> {
    let Invocation { command, globals } = invocation;
    if command.is_daemon() {
        return run_daemon(command, &globals);
    }
    let _telemetry = telemetry::for_client(globals.args.verbose, &globals.environment);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| no_runtime(&error))?;
    let outcome = runtime.block_on(cli::run(command, &globals));
    // A blocking read of stdin may never return.
    runtime.shutdown_background();
    outcome
}

fn run_daemon(command: cli::Command, globals: &Globals) -> Result<u8, Failure> {
    supervise::enable();
    let loaded = config::load(&globals.environment, &globals.flags)?;
    let _telemetry = telemetry::for_daemon(&loaded, globals.args.verbose)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| no_runtime(&error))?;
    let outcome = runtime.block_on(cli::run_daemon(command, loaded, globals));
    // The daemon has waited for what it started; a blocking read of stdin may never return.
    runtime.shutdown_background();
    outcome
}

fn no_runtime(error: &std::io::Error) -> Failure {
    Failure::new(exit::BUG, "internal", format!("cannot start the asynchronous runtime: {error}"))
}
